//! Everything that can be wrong with a file, each with where it is and what to do about it.

use std::path::{Path, PathBuf};

/// Why a file, or a setting, could not be turned into batches.
///
/// Lines count from 1 and the header is line 1; a Parquet file has no lines, so there it is the
/// row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no such file.
    #[error("{file} does not exist; check the path", file = file.display())]
    MissingFile {
        /// The file asked for.
        file: PathBuf,
    },

    /// The operating system refused.
    #[error("{file} cannot be read ({reason}); check that it is a file you may \
     read", file = file.display())]
    Io {
        /// The file asked for.
        file: PathBuf,
        /// What the operating system said.
        reason: String,
    },

    /// A file without a single row.
    #[error("{file} holds no rows; give a file with at least one row of \
     data", file = file.display())]
    EmptyFile {
        /// The empty file.
        file: PathBuf,
    },

    /// The extension says nothing about the format.
    #[error(
        "{file} has an extension that names no format; rename it to .tsv, .csv, .jsonl, .parquet \
         or .txt, or state the format",
        file = file.display()
    )]
    UnknownFormat {
        /// The file asked for.
        file: PathBuf,
    },

    /// A column that the file does not have.
    #[error(
        "{file} has no column {column:?}; choose among {available:?}",
        file = file.display()
    )]
    MissingColumn {
        /// The file asked for.
        file: PathBuf,
        /// The column asked for.
        column: String,
        /// The columns it has.
        available: Vec<String>,
    },

    /// A column that the header names twice.
    #[error("{file}:1: the header names column {column:?} twice; rename one of \
     them", file = file.display())]
    RepeatedColumn {
        /// The file.
        file: PathBuf,
        /// The ambiguous column.
        column: String,
    },

    /// A row with another number of fields than the header.
    #[error(
        "{file}:{line}: the row has {found} fields but the header has {expected}; repair or remove \
         the row",
        file = file.display()
    )]
    TornRow {
        /// The file.
        file: PathBuf,
        /// Where the row begins.
        line: u64,
        /// Fields of the header.
        expected: usize,
        /// Fields of the row.
        found: usize,
    },

    /// A CSV field whose quotes do not pair up.
    #[error(
        "{file}:{line}: {problem}; write a quote inside a quoted field as \"\"",
        file = file.display()
    )]
    BadQuote {
        /// The file.
        file: PathBuf,
        /// Where the row begins.
        line: u64,
        /// What is wrong with the quotes.
        problem: &'static str,
    },

    /// Bytes that are not UTF-8.
    #[error("{file}:{line}: the text is not UTF-8; convert the file to UTF-8 \
     first", file = file.display())]
    BadUtf8 {
        /// The file.
        file: PathBuf,
        /// The line.
        line: u64,
    },

    /// A line that is not the JSON object it should be.
    #[error(
        "{file}:{line}: {reason}; every line must be one JSON object whose columns are text, \
         numbers or booleans",
        file = file.display()
    )]
    BadJson {
        /// The file.
        file: PathBuf,
        /// The line.
        line: u64,
        /// What the parser found.
        reason: String,
    },

    /// A line, or a CSV row, too long to be one.
    #[error(
        "{file}:{line}: the row is longer than {limit} bytes; check that the rows are separated by \
         line breaks and quotes are closed",
        file = file.display()
    )]
    LineTooLong {
        /// The file.
        file: PathBuf,
        /// Where the row begins.
        line: u64,
        /// The most bytes a row may have.
        limit: usize,
    },

    /// A row without a value that the task needs.
    #[error(
        "{file}:{line}: column {column:?} has no value; fill it in or remove the row",
        file = file.display()
    )]
    MissingValue {
        /// The file.
        file: PathBuf,
        /// The line.
        line: u64,
        /// The column without a value.
        column: String,
    },

    /// A label that is not one of the known ones.
    #[error(
        "{file}:{line}: label {label:?} is not one of {known:?}; correct the row or name all the \
         labels",
        file = file.display()
    )]
    UnknownLabel {
        /// The file.
        file: PathBuf,
        /// The line.
        line: u64,
        /// What the file says.
        label: String,
        /// What it may say.
        known: Vec<String>,
    },

    /// More different labels than a classification can have.
    #[error(
        "{file}: column {column:?} holds more than {limit} different values; choose the column \
         that holds the labels",
        file = file.display()
    )]
    TooManyLabels {
        /// The file.
        file: PathBuf,
        /// The column taken for the labels.
        column: String,
        /// The most labels there may be.
        limit: usize,
    },

    /// A row whose text leaves nothing to learn from.
    #[error(
        "{file}:{line}: the text gives no token to learn from; remove the row or use a tokenizer \
         with an end-of-text token",
        file = file.display()
    )]
    NoTokens {
        /// The file.
        file: PathBuf,
        /// The line.
        line: u64,
    },

    /// A tokenizer that cannot be loaded, or that cannot read a text.
    #[error(
        "{file}: the tokenizer is unusable ({reason}); fetch the model's tokenizer.json again",
        file = file.display()
    )]
    Tokenizer {
        /// The tokenizer's file.
        file: PathBuf,
        /// What went wrong.
        reason: String,
    },

    /// A Parquet file that cannot be read.
    #[error(
        "{file}: the Parquet file cannot be read ({reason}); write it again with plain text, \
         integer or boolean columns",
        file = file.display()
    )]
    Parquet {
        /// The file.
        file: PathBuf,
        /// What went wrong.
        reason: String,
    },

    /// A setting outside its domain.
    #[error("{name} is {value}, but must be {rule}")]
    Invalid {
        /// The setting, as a person would name it.
        name: &'static str,
        /// What was given.
        value: String,
        /// What must hold.
        rule: String,
    },
}

impl Error {
    /// Tells a missing file from one that cannot be read.
    pub(crate) fn io(file: &Path, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Error::MissingFile { file: file.into() },
            _ => Error::Io { file: file.into(), reason: error.to_string() },
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

/// The result of every fallible call of this room.
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
