//! A scan for personal data and secrets: which kinds a file contains and where, and a redacted
//! copy.
//!
//! Findings are exact, so they are for the data owner only. Nothing here is differentially private,
//! and no scan finds everything: it misses names that are on no list, and people who are described
//! but not named.

pub mod checksums;
mod forms;
mod kinds;
mod mask;
mod national;
mod redact;
mod secrets;

pub use kinds::Kind;
pub use mask::mask;
pub use redact::redacted;

use crate::audit::spans::{EntityKind, Finder};
use crate::model::Result;
use rayon::prelude::*;
use std::ops::Range;

/// Personal data in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Byte range in the text.
    pub range: Range<usize>,
    pub kind: Kind,
    /// Details, such as the country of a national id; empty if the kind says it all.
    pub detail: &'static str,
}

/// How far before a number its context is searched for a word such as "SSN", in bytes.
const CONTEXT: usize = 40;

/// A text and the name of its column, which serves as context as well.
pub struct Text<'a> {
    pub column: &'a str,
    pub text: &'a str,
}

impl Text<'_> {
    /// Whether one of the words (in lowercase) occurs in the column's name or shortly before the
    /// byte.
    fn has_context(&self, words: &[&str], before: usize) -> bool {
        let mut from = before.saturating_sub(CONTEXT);
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let near = self.text[from..before].to_lowercase();
        let column = self.column.to_lowercase().replace(['_', '-', '.'], " ");
        words.iter().any(|word| has_word(&near, word) || has_word(&column, word))
    }
}

/// Whether the word, or several, is in the text, with no letter or digit beside it.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| stands_alone(text, &(start..start + word.len())))
}

/// Whether no letter or digit precedes or follows the range.
fn stands_alone(text: &str, range: &Range<usize>) -> bool {
    let before = text[..range.start].chars().next_back();
    let after = text[range.end..].chars().next();
    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
}

/// Finds all kinds: people with `people`, everything else by forms and checksums.
pub struct Scanner {
    people: Box<dyn Finder>,
    forms: forms::Forms,
    national: national::National,
    secrets: secrets::Secrets,
}

impl Scanner {
    /// A scanner that uses `people` to find names of people, phone numbers and addresses, such as
    /// the finders of the audits.
    pub fn new(people: Box<dyn Finder>) -> Scanner {
        Scanner {
            people,
            forms: forms::Forms::default(),
            national: national::National::default(),
            secrets: secrets::Secrets::default(),
        }
    }

    /// The findings in each text, in order and without overlap.
    pub fn scan(&self, texts: &[Text]) -> Result<Vec<Vec<Finding>>> {
        let owned: Vec<String> = texts.iter().map(|text| text.text.to_owned()).collect();
        let people = self.people.find(&owned)?;
        let Self { forms, national, secrets, .. } = self;
        let of = |(text, spans): (&Text, &Vec<crate::audit::spans::Span>)| {
            let mut findings = secrets.find(text);
            findings.extend(national.find(text));
            findings.extend(forms.find(text));
            findings.extend(spans.iter().map(|span| Finding {
                range: span.range(),
                kind: of_entity(span.kind),
                detail: "",
            }));
            without_overlap(findings)
        };
        Ok(texts.par_iter().zip(&people).map(of).collect())
    }
}

fn of_entity(kind: EntityKind) -> Kind {
    match kind {
        EntityKind::Person => Kind::Person,
        EntityKind::Email => Kind::Email,
        EntityKind::Phone => Kind::Phone,
        EntityKind::Address => Kind::Address,
    }
}

/// Merges overlapping findings into one that covers all of them and has the kind of the longest, or
/// of the first of the longest.
fn without_overlap(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| finding.range.start);
    let mut all: Vec<(Finding, usize)> = Vec::new();
    for finding in findings {
        let length = finding.range.len();
        match all.last_mut() {
            Some((last, longest)) if finding.range.start < last.range.end => {
                let range = last.range.start..last.range.end.max(finding.range.end);
                if length > *longest {
                    (*last, *longest) = (finding, length);
                }
                last.range = range;
            }
            _ => all.push((finding, length)),
        }
    }
    all.into_iter().map(|(finding, _)| finding).collect()
}

#[cfg(test)]
mod tests;
