//! `[data]`: the data files, their columns and the privacy unit.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The task the model is fine-tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// Classify a text or a pair of texts.
    Classification,
    /// Predict the next token of a text (causal language modeling).
    LanguageModeling,
    /// Predict the masked tokens of a text (masked language modeling).
    MaskedLanguageModeling,
    /// Predict a completion from its prompt (causal language modeling).
    Completion,
    /// Predict the assistant's turns of a conversation (causal language modeling).
    Chat,
}

/// `[data]`: the data files, their columns and the privacy unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// The task the model is fine-tuned for; required.
    pub task: TaskName,
    /// The private training file, or several files given as a pattern or a folder of Parquet
    /// shards; required.
    pub train: PathBuf,
    /// The file on which the model is evaluated after each epoch and at the end; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<PathBuf>,
    /// Whether the validation file is public and independent of the training file, so that metrics
    /// on it may be published and may stop training early; false by default. The ledger lists this
    /// as an assumption.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub validation_is_public: bool,
    /// Format of the data files; inferred from the file extension by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// What to do with a row that cannot be read; `refuse` by default.
    #[serde(default, skip_serializing_if = "OnBadRow::is_refuse")]
    pub on_bad_row: OnBadRow,
    /// Column of the text, or the two columns of a pair of texts; required, except for completion
    /// and chat.
    #[serde(default, deserialize_with = "one_or_more")]
    pub text: Vec<String>,
    /// Column of the label; `label` by default.
    #[serde(default = "label")]
    pub label: String,
    /// Public names of the classes, in order; by default the base model's, or those found in the
    /// training file. Names found in the file, at most 50 of up to 64 characters and each in 20
    /// rows on average, stay in the run folder's `private/`, and published files number the
    /// classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Whether class names read from the training file may be published, which copies them from
    /// private rows into the ledger, the model and its card; false by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub publish_labels: bool,
    /// Values of the label column that are read as another class, such as `{ SPORTS = "Sports" }`,
    /// which makes them public; none by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rename_labels: BTreeMap<String, String>,
    /// Column of the prompt, or a template of columns such as `Question: {question}`, where `{{` is
    /// a brace; `prompt` by default.
    #[serde(default = "prompt")]
    pub prompt: String,
    /// Column of the completion, or a template, in which `{column:json}` is the value as a JSON
    /// string; `completion` by default.
    #[serde(default = "completion")]
    pub completion: String,
    /// Column of the conversation, a list of objects with `role` and `content`; `messages` by
    /// default.
    #[serde(default = "messages", skip_serializing_if = "is_messages")]
    pub messages: String,
    /// Maximum number of tokens per sequence; 256 by default.
    #[serde(default = "max_tokens")]
    pub max_tokens: usize,
    /// What to do with texts longer than `max_tokens`; `cut` by default.
    #[serde(default)]
    pub long_texts: LongTexts,
    /// Whether an author's short texts are packed into sequences of `max_tokens`; false by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pack: bool,
    /// Column of the author, which makes the privacy unit the user with all of their examples; none
    /// by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Maximum number of examples per author, the first in the file; 8 by default.
    #[serde(default = "most_per_author")]
    pub most_per_author: usize,
    /// Fraction of the training file's privacy units, at most 0.5, that is held out from training
    /// for audits; none by default. Chosen by a public hash of the author's name or the row's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_out: Option<f64>,
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
fn messages() -> String {
    "messages".into()
}
fn is_messages(column: &str) -> bool {
    column == messages()
}
/// Default maximum number of tokens per sequence.
pub const MAX_TOKENS: usize = 256;

fn max_tokens() -> usize {
    MAX_TOKENS
}
fn most_per_author() -> usize {
    8
}

pub(super) fn one_or_more<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
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
    /// Tab-separated with a header, without quoting, like the GLUE files
    Tsv,
    /// Tab-separated with a header, quoted like CSV, as written by spreadsheets
    #[serde(rename = "quoted-tsv")]
    QuotedTsv,
    /// Comma-separated with a header, quoted as in RFC 4180; semicolon-separated if the header
    /// contains semicolons but no comma
    Csv,
    /// One JSON object per line, or an array of objects
    Jsonl,
    /// Apache Parquet
    Parquet,
    /// One text per line, in a single column named `text`; blank lines are skipped
    Text,
}

impl Format {
    /// The format implied by the file's extension, ignoring a trailing `.gz` or `.zst`.
    pub fn from_extension(path: &Path) -> Option<Format> {
        let extension = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
        let (mut named, mut compressed) = (extension(path)?, false);
        if ["gz", "zst"].contains(&named.as_str()) {
            (named, compressed) = (extension(path.file_stem()?.as_ref())?, true);
        }
        match named.as_str() {
            "tsv" => Some(Format::Tsv),
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            // Parquet compresses its own pages.
            "parquet" if !compressed => Some(Format::Parquet),
            "txt" => Some(Format::Text),
            _ => None,
        }
    }
}

/// What to do with a malformed row: one whose number of fields differs from the header's, or a line
/// that is not a JSON object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnBadRow {
    /// Reject the file.
    #[default]
    Refuse,
    /// Skip the row and count it.
    Skip,
}

impl OnBadRow {
    /// Whether the file is rejected.
    pub fn is_refuse(&self) -> bool {
        *self == Self::Refuse
    }
}

/// How language modeling treats a text longer than the maximum number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongTexts {
    /// Truncate the text.
    #[default]
    Cut,
    /// Split the text into several examples, all belonging to the privacy unit of its row.
    Split {
        /// Maximum number of examples per text; the rest of the text is dropped.
        at_most: usize,
    },
}

impl LongTexts {
    /// Maximum number of examples per text.
    pub fn most_per_text(&self) -> usize {
        match self {
            LongTexts::Cut => 1,
            LongTexts::Split { at_most } => *at_most,
        }
    }
}
