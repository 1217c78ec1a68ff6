//! Errors in reading data, each with its position in the file and what to do about it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use undertone_accounting::SystemError;

/// Why a file or a setting cannot be turned into batches.
///
/// Lines count from 1, with the header as line 1. For Parquet, which has no lines, `line` is the
/// row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{file} does not exist; check the path", file = file.display())]
    MissingFile { file: PathBuf },

    /// The operating system refused to open or read the file.
    #[error("{file} cannot be read ({reason}); check that it is a file you may \
     read", file = file.display())]
    Io {
        file: PathBuf,
        /// The operating system's error message.
        reason: String,
    },

    /// A system error occurred while the file was read, such as too many open files.
    #[error("{file} could not be read: {source}", file = file.display())]
    System {
        file: PathBuf,
        /// The operating system's error.
        source: SystemError,
    },

    /// The file has no rows.
    #[error("{file} holds no rows; give a file with at least one row of \
     data", file = file.display())]
    EmptyFile { file: PathBuf },

    /// The file extension does not identify a format.
    #[error(
        "{file} has an unknown extension; rename it to .tsv, .csv, .jsonl, .parquet or .txt (all \
         except .parquet may be followed by .gz or .zst), or set the format",
        file = file.display()
    )]
    UnknownFormat { file: PathBuf },

    /// The file does not have this column.
    #[error(
        "{file} has no column {column:?}; choose among {available:?}",
        file = file.display()
    )]
    MissingColumn {
        file: PathBuf,
        column: String,
        /// The columns of the file.
        available: Vec<String>,
    },

    /// The header contains a column twice.
    #[error("{file}:1: the header names column {column:?} twice; rename one of \
     them", file = file.display())]
    RepeatedColumn { file: PathBuf, column: String },

    /// A row's number of fields differs from the header's.
    #[error(
        "{file}:{line}: the row has {found} fields but the header has {expected}; repair or remove \
         the row",
        file = file.display()
    )]
    TornRow {
        file: PathBuf,
        /// The row's first line.
        line: u64,
        /// Number of fields in the header.
        expected: usize,
        /// Number of fields in the row.
        found: usize,
    },

    /// A CSV field with unbalanced quotes.
    #[error(
        "{file}:{line}: {problem}; write a quote inside a quoted field as \"\"",
        file = file.display()
    )]
    BadQuote {
        file: PathBuf,
        /// The row's first line.
        line: u64,
        problem: &'static str,
    },

    #[error("{file}:{line}: the text is not UTF-8; convert the file to UTF-8 \
     first", file = file.display())]
    BadUtf8 { file: PathBuf, line: u64 },

    /// A line is not a JSON object with plain columns.
    #[error(
        "{file}:{line}: {reason}; every line must be one JSON object whose columns are text, \
         numbers or booleans",
        file = file.display()
    )]
    BadJson {
        file: PathBuf,
        line: u64,
        /// The parser's message.
        reason: String,
    },

    /// A JSON array is malformed.
    #[error(
        "{file}:{line}: {problem}; a file that begins with a bracket must be one JSON array of \
         objects",
        file = file.display()
    )]
    BadArray { file: PathBuf, line: u64, problem: &'static str },

    /// A line or CSV row exceeds the maximum number of bytes.
    #[error(
        "{file}:{line}: the row is longer than {limit} bytes; check that the rows are separated by \
         line breaks and quotes are closed",
        file = file.display()
    )]
    LineTooLong {
        file: PathBuf,
        /// The row's first line.
        line: u64,
        /// Maximum number of bytes in a row.
        limit: usize,
    },

    /// A row lacks a value that the task needs.
    #[error(
        "{file}:{line}: column {column:?} has no value; fill it in or remove the row",
        file = file.display()
    )]
    MissingValue { file: PathBuf, line: u64, column: String },

    /// A label is not among the given ones.
    #[error(
        "{file}:{line}: label {label:?} is not one of {known}; correct the row or name all the \
         labels",
        file = file.display()
    )]
    UnknownLabel {
        file: PathBuf,
        line: u64,
        /// The beginning of the label in the file.
        label: String,
        /// The given labels, shortened.
        known: String,
    },

    /// The column cannot be used as the label.
    #[error(
        "{file}: column {column:?} cannot be the label: {reason}; choose the label column, or name \
         the classes in data.labels (--labels)",
        file = file.display()
    )]
    NotLabels {
        file: PathBuf,
        /// The column used as the label.
        column: String,
        /// Why it cannot contain labels, without quoting any of its values.
        reason: String,
    },

    /// The text of a row has no token to train on.
    #[error(
        "{file}:{line}: the text has no token to train on; remove the row or use a tokenizer with \
         an end-of-text token",
        file = file.display()
    )]
    NoTokens { file: PathBuf, line: u64 },

    /// No file matches the pattern.
    #[error("no file matches {pattern}; check the path", pattern = pattern.display())]
    NoFiles { pattern: PathBuf },

    /// The model's chat template cannot render a conversation.
    #[error("{file}:{line}: {reason}; correct or remove the row", file = file.display())]
    Conversation { file: PathBuf, line: u64, reason: String },

    /// The chat template cannot be used.
    #[error("{file}: the chat template is unusable ({reason})", file = file.display())]
    ChatTemplate { file: PathBuf, reason: String },

    /// The tokenizer cannot be loaded, or cannot encode a text.
    #[error(
        "{file}: the tokenizer is unusable ({reason}); fetch the model's tokenizer.json again",
        file = file.display()
    )]
    Tokenizer { file: PathBuf, reason: String },

    #[error(
        "{file}: the Parquet file cannot be read ({reason}); write it again with plain text, \
         integer or boolean columns",
        file = file.display()
    )]
    Parquet { file: PathBuf, reason: String },

    /// A setting is outside its domain.
    #[error("{name} is {value}, but must be {rule}")]
    Invalid {
        /// The setting's name, in words.
        name: &'static str,
        value: String,
        /// The condition that must hold.
        rule: String,
    },
}

impl Error {
    /// `MissingFile` or `Io`, depending on the kind of error.
    pub(crate) fn io(file: &Path, error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Error::MissingFile { file: file.into() },
            ErrorKind::PermissionDenied
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidData
            | ErrorKind::InvalidFilename
            | ErrorKind::UnexpectedEof => {
                Error::Io { file: file.into(), reason: error.to_string() }
            }
            _ => Error::System { file: file.into(), source: SystemError::new(error) },
        }
    }

    pub(crate) fn invalid(
        name: &'static str,
        value: impl std::fmt::Display,
        rule: impl Into<String>,
    ) -> Self {
        Error::Invalid { name, value: value.to_string(), rule: rule.into() }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_file_line_and_remedy_in_one_sentence() {
        let error = Error::TornRow { file: "a.tsv".into(), line: 7, expected: 2, found: 3 };
        assert_eq!(
            error.to_string(),
            "a.tsv:7: the row has 3 fields but the header has 2; repair or remove the row"
        );
    }
}
