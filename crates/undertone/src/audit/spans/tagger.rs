//! Detects names of people by a token classification model, such as a BERT for named entity
//! recognition (NER).

use super::{EntityKind, Finder, Span};
use crate::data::{Batch, Example, Tokenizer, pieces};
use crate::evaluate::{Limits, likeliest};
use crate::model::{Error, Model, Result, TaskHead};

/// A token classification model, and which of its classes mark people.
#[derive(Clone, Debug)]
pub struct Tagger {
    model: Model,
    tokenizer: Tokenizer,
    /// BIO mark of each class.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Begin,
    Inside,
    Outside,
}

impl Mark {
    /// Parses a BIO, BIOES or BILOU label: B-PER, I-PER, also E-, S-, L- and U-; or plain PER and
    /// PERSON.
    fn of(label: &str) -> Self {
        let (position, kind) = match label.split_once('-') {
            Some((position, kind)) if position.len() == 1 => (position, kind),
            _ => ("I", label),
        };
        match (kind.to_ascii_uppercase().as_str(), position) {
            ("PER" | "PERSON", "B" | "S" | "U") => Self::Begin,
            ("PER" | "PERSON", _) => Self::Inside,
            _ => Self::Outside,
        }
    }
}

impl Tagger {
    /// Wraps a token classification model that has a class for people.
    pub fn new(model: Model, tokenizer: Tokenizer) -> Result<Self> {
        if model.network.head.task_head != TaskHead::TokenClassification {
            return Err(Error::Request("the tagger must be a token classification model".into()));
        }
        let labels = model.labels()?;
        let marks: Vec<Mark> = labels.iter().map(|label| Mark::of(label)).collect();
        if marks.iter().all(|mark| *mark == Mark::Outside) {
            let labels = labels.join(", ");
            return Err(Error::Request(format!(
                "the tagger has no class for people (PER); its classes are {labels}"
            )));
        }
        Ok(Self { model, tokenizer, marks })
    }

    /// BIO mark of each token of each sequence, including special tokens.
    fn marks(&self, examples: &[Example]) -> Result<Vec<Vec<Mark>>> {
        let mut marks = vec![Vec::new(); examples.len()];
        let limits = Limits::default();
        for piece in pieces(examples, limits.sequences, limits.tokens) {
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let logits = self.model.logits(&batch, None)?;
            let (values, columns) = (logits.to_vec()?, logits.columns());
            for (row, &i) in piece.iter().enumerate() {
                let rows = batch.range(row);
                let of = |row: usize| self.marks[likeliest(&values[row * columns..][..columns])];
                marks[i] = rows.map(of).collect();
            }
        }
        Ok(marks)
    }
}

/// Whether this byte offset lies between two letters or digits.
fn within_word(text: &str, at: usize) -> bool {
    let is_of_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    is_of_word(text[..at].chars().next_back()) && is_of_word(text[at..].chars().next())
}

impl Finder for Tagger {
    fn find(&self, texts: &[String]) -> Result<Vec<Vec<Span>>> {
        let broken = |e: crate::data::Error| Error::Request(e.to_string());
        let mut examples = Vec::new();
        // For each sequence, the index of its text and the byte ranges of its tokens; `before`
        // special tokens precede them.
        let (mut places, mut before) = (Vec::new(), 0);
        for (i, text) in texts.iter().enumerate() {
            let tokens = self.tokenizer.with_bytes(text).map_err(broken)?;
            for piece in tokens.chunks(self.tokenizer.max_text_tokens().max(1)) {
                let ids: Vec<u32> = piece.iter().map(|(id, _)| *id).collect();
                let (framed, ahead) = self.tokenizer.framed(&ids);
                before = ahead;
                examples.push(Example {
                    tokens: framed.ids,
                    segments: framed.segments,
                    ..Example::default()
                });
                places.push((i, piece.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>()));
            }
        }
        let marks = self.marks(&examples)?;
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); texts.len()];
        for ((text, bytes), marks) in places.iter().zip(marks) {
            let full_text = &texts[*text];
            let mut mark = Mark::Outside;
            let mut last_end = None;
            for (bytes, own) in bytes.iter().zip(&marks[before..]) {
                // Tokens within a word take the mark of its first token.
                let same_word =
                    last_end == Some(bytes.start) && within_word(full_text, bytes.start);
                let begins = !same_word
                    && (*own == Mark::Begin || (*own == Mark::Inside && mark == Mark::Outside));
                if !same_word {
                    mark = *own;
                }
                last_end = Some(bytes.end);
                match spans[*text].last_mut() {
                    Some(span) if mark != Mark::Outside && !begins => span.end = bytes.end,
                    _ if mark != Mark::Outside => {
                        spans[*text].push(Span {
                            start: bytes.start,
                            end: bytes.end,
                            kind: EntityKind::Person,
                        });
                    }
                    _ => {}
                }
            }
        }
        // Some tokenizers include the space before a word in its byte range.
        for (spans, text) in spans.iter_mut().zip(texts) {
            for span in spans.iter_mut() {
                let covered = &text[span.range()];
                span.start += covered.len() - covered.trim_start().len();
                span.end = span.start + covered.trim().len();
            }
            spans.retain(|span| span.start < span.end);
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customary_labels_are_understood() {
        let of = |labels: [&str; 4]| labels.map(Mark::of);
        assert_eq!(of(["B-PER", "S-PERSON", "U-per", "B-PERSON"]), [Mark::Begin; 4]);
        assert_eq!(of(["I-PER", "E-PER", "PERSON", "PER"]), [Mark::Inside; 4]);
        assert_eq!(of(["O", "B-ORG", "I-LOC", "LABEL_3"]), [Mark::Outside; 4]);
    }
}
