//! `[data]`: the files, their columns and the privacy unit.

use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// A task by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// A label for a text or a pair of texts.
    Classification,
    /// The next token of a text.
    LanguageModelling,
    /// The completion of a prompt.
    Completion,
}

/// `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// The task.
    pub task: TaskName,
    /// The private training file.
    pub train: PathBuf,
    /// The file that the trained model is evaluated on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<PathBuf>,
    /// Format of the files, where the extension does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Column of the text, or the two columns of a pair.
    #[serde(default, deserialize_with = "one_or_more")]
    pub text: Vec<String>,
    /// Column of the label.
    #[serde(default = "label")]
    pub label: String,
    /// The labels; read from the training file if they are not given, and then taken to be public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Column of the prompt (completion).
    #[serde(default = "prompt")]
    pub prompt: String,
    /// Column of the completion (completion).
    #[serde(default = "completion")]
    pub completion: String,
    /// The most tokens of a sequence.
    #[serde(default = "max_tokens")]
    pub max_tokens: usize,
    /// What becomes of longer texts in language modelling.
    #[serde(default)]
    pub long_texts: LongTexts,
    /// Column that names the author: the privacy unit is then all examples of an author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The most examples of an author.
    #[serde(default = "most_per_author")]
    pub most_per_author: usize,
}

fn label() -> String {
    "label".into()
}
fn prompt() -> String {
    "prompt".into()
}
fn completion() -> String {
    "completion".into()
}
fn max_tokens() -> usize {
    128
}
fn most_per_author() -> usize {
    8
}

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(name) => vec![name],
        OneOrMore::More(names) => names,
    })
}

/// Format of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Tab-separated with a header and without quoting, as GLUE publishes its tasks
    Tsv,
    /// Comma-separated with a header, quoted as RFC 4180 says
    Csv,
    /// One JSON object a line
    Jsonl,
    /// Apache Parquet, of which the plain columns are read
    Parquet,
    /// One text a line, in a single column called `text`; blank lines are skipped
    Text,
}

impl Format {
    /// The format that the file's extension names.
    pub fn from_extension(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?;
        match extension.to_ascii_lowercase().as_str() {
            "tsv" => Some(Format::Tsv),
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            "parquet" => Some(Format::Parquet),
            "txt" => Some(Format::Text),
            _ => None,
        }
    }
}

/// What becomes of a text with more tokens than the model takes, in language modelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongTexts {
    /// It is truncated.
    #[default]
    Cut,
    /// It becomes several examples, all of the privacy unit of its row.
    Split {
        /// The most examples of a text; what goes beyond is dropped.
        at_most: usize,
    },
}

impl LongTexts {
    /// The most examples that a text can become.
    pub fn most_per_text(&self) -> usize {
        match self {
            LongTexts::Cut => 1,
            LongTexts::Split { at_most } => *at_most,
        }
    }
}
