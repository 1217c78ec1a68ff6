//! Tokenises rows into examples of the task.

use super::LongTexts;
use super::cut::Predicted;
use super::error::{Error, Result};
use super::example::{Example, Target};
use super::labels::Labels;
use super::read::Row;
use super::task::Task;
use super::tokenise::{Tokeniser, Tokens};
use std::path::PathBuf;

/// Turns the rows of a file into examples.
pub(crate) struct Encoder<'a> {
    pub file: PathBuf,
    pub task: Task,
    pub tokeniser: &'a Tokeniser,
    /// Class labels; `None` leaves the label column unread.
    pub labels: Option<&'a Labels>,
    pub long_texts: LongTexts,
}

impl Encoder<'_> {
    /// The examples of a row, at least one. The caller sets their privacy unit.
    ///
    /// `row.values` holds the values of the task's columns, in their order.
    pub fn examples(&self, row: &Row) -> Result<Vec<Example>> {
        let examples = match (&self.task, row.values.as_slice()) {
            (Task::Classification { text, .. }, values) => {
                let tokens = match &values[..text.len()] {
                    [first, second] => self.tokeniser.pair(first, second)?,
                    texts => self.tokeniser.text(texts.first().map_or("", String::as_str))?,
                };
                vec![whole(tokens, self.class(row, values.get(text.len()))?)]
            }
            (Task::LanguageModelling { .. }, [text, ..]) => {
                predicted(self.tokeniser.language(text, self.long_texts)?)
            }
            (Task::MaskedLanguageModelling { .. }, [text, ..]) => {
                // Masks are drawn anew in every step, so there is no target yet.
                let pieces = self.tokeniser.masked_language(text, self.long_texts)?;
                pieces.into_iter().map(|tokens| whole(tokens, Target::None)).collect()
            }
            (Task::Completion { .. }, [prompt, completion, ..]) => {
                predicted(self.tokeniser.completion(prompt, completion)?)
            }
            _ => Vec::new(),
        };
        match examples.iter().all(|example| !example.tokens.is_empty()) && !examples.is_empty() {
            true => Ok(examples),
            false => Err(Error::NoTokens { file: self.file.clone(), line: row.line }),
        }
    }

    fn class(&self, row: &Row, label: Option<&String>) -> Result<Target> {
        match (self.labels, self.task.label(), label) {
            (Some(_), Some(column), Some(label)) if label.is_empty() => Err(Error::MissingValue {
                file: self.file.clone(),
                line: row.line,
                column: column.to_owned(),
            }),
            (Some(labels), Some(_), Some(label)) => {
                labels.require(label, &self.file, row.line).map(Target::Class)
            }
            _ => Ok(Target::None),
        }
    }
}

fn whole(tokens: Tokens, target: Target) -> Example {
    Example { tokens: tokens.ids, segments: tokens.segments, target, unit: 0 }
}

fn predicted(sequences: impl IntoIterator<Item = Predicted>) -> Vec<Example> {
    let example =
        |(tokens, from)| Example { tokens, target: Target::Next { from }, ..Example::default() };
    sequences.into_iter().map(example).collect()
}
