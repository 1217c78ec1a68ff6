//! Tokenizes rows into examples of the task.

use super::LongTexts;
use super::chat::ChatTemplate;
use super::cut::Predicted;
use super::error::{Error, Result};
use super::example::{Example, Target};
use super::labels::Labels;
use super::read::Row;
use super::task::Task;
use super::tokenize::{Tokenizer, Tokens};
use std::path::PathBuf;

/// Converts the rows of a file into examples.
pub struct Encoder<'a> {
    pub file: PathBuf,
    pub task: Task,
    pub tokenizer: &'a Tokenizer,
    /// Class labels; if `None`, the label column is not read.
    pub labels: Option<&'a Labels>,
    pub long_texts: LongTexts,
    /// The model's chat template, for conversations.
    chat: Option<ChatTemplate>,
}

impl<'a> Encoder<'a> {
    /// Creates an encoder for the rows of a file.
    pub fn new(
        file: PathBuf,
        task: Task,
        tokenizer: &'a Tokenizer,
        labels: Option<&'a Labels>,
        long_texts: LongTexts,
    ) -> Result<Self> {
        let chat = match task {
            Task::Chat { .. } => Some(ChatTemplate::load(tokenizer.folder())?),
            _ => None,
        };
        Ok(Self { file, task, tokenizer, labels, long_texts, chat })
    }

    /// The examples of a row, at least one. The caller sets their privacy unit.
    ///
    /// `row.values` holds the values of the task's columns, in order.
    pub fn examples(&self, row: &Row) -> Result<Vec<Example>> {
        let examples = match (&self.task, row.values.as_slice()) {
            (Task::Classification { text, .. }, values) => {
                let tokens = match &values[..text.len()] {
                    [first, second] => self.tokenizer.pair(first, second)?,
                    texts => self.tokenizer.text(texts.first().map_or("", String::as_str))?,
                };
                vec![whole(tokens, self.class(row, values.get(text.len()))?)]
            }
            (Task::LanguageModeling { .. }, [text, ..]) => {
                predicted(self.tokenizer.language(text, self.long_texts)?)
            }
            (Task::MaskedLanguageModeling { .. }, [text, ..]) => {
                // Masks are redrawn in every step, so there is no target yet.
                let pieces = self.tokenizer.masked_language(text, self.long_texts)?;
                pieces.into_iter().map(|tokens| whole(tokens, Target::None)).collect()
            }
            (Task::Completion { .. }, values) => match self.task.prompt_and_completion(values)? {
                Some((prompt, completion)) => {
                    predicted(self.tokenizer.completion(&prompt, &completion)?)
                }
                None => Vec::new(),
            },
            (Task::Chat { .. }, [messages, ..]) => vec![self.conversation(row, messages)?],
            _ => Vec::new(),
        };
        match examples.iter().all(|example| !example.tokens.is_empty()) && !examples.is_empty() {
            true => Ok(examples),
            false => Err(Error::NoTokens { file: self.file.clone(), line: row.line }),
        }
    }

    fn conversation(&self, row: &Row, messages: &str) -> Result<Example> {
        let wrong = |reason: String| {
            let (file, line) = (self.file.clone(), row.line);
            Error::Conversation { file, line, reason }
        };
        let Some(chat) = &self.chat else { return Err(wrong("there is no chat template".into())) };
        let laid_out = chat.lay_out(messages)?.map_err(wrong)?;
        let (tokens, spans) = self.tokenizer.conversation(&laid_out)?;
        match spans.is_empty() {
            true => Err(wrong("the assistant's turns have no token".into())),
            false => Ok(Example { tokens, target: Target::Spans(spans), ..Example::default() }),
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
