//! `[data]`: the data files, their columns and the privacy unit.

use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// The task that the model is fine-tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// Classification of a text or a pair of texts.
    Classification,
    /// Causal language modelling: the next token of a text.
    LanguageModelling,
    /// Masked language modelling: the original tokens of masked positions of a text.
    MaskedLanguageModelling,
    /// Causal language modelling of completions, given their prompts.
    Completion,
    /// Causal language modelling of the assistant's turns of conversations.
    Chat,
}

/// `[data]`: the data files, their columns and the privacy unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// The task that the model is fine-tuned for.
    pub task: TaskName,
    /// The private training file; or several, by a pattern or a folder of Parquet shards.
    pub train: PathBuf,
    /// The file that the trained model is evaluated on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<PathBuf>,
    /// Whether the validation file is public and does not depend on the training file: metrics on
    /// it are then post-processing, and training may be stopped by them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub validation_is_public: bool,
    /// Format of the files; by default that of their extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// What happens at a row that cannot be read.
    #[serde(default, skip_serializing_if = "OnBadRow::is_refuse")]
    pub on_bad_row: OnBadRow,
    /// Column of the text, or the two columns of a pair.
    #[serde(default, deserialize_with = "one_or_more")]
    pub text: Vec<String>,
    /// Column of the label.
    #[serde(default = "label")]
    pub label: String,
    /// Names of the classes, which are public; by default found in the training file. Published
    /// files then number the classes, and their names stay in the run folder's `private/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Whether class names that are found in the training file may be published: they are copied
    /// from private rows into the ledger, the model and its card.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub publish_labels: bool,
    /// Column of the prompt, or a template such as `Question: {question}`, in the task
    /// `completion`.
    #[serde(default = "prompt")]
    pub prompt: String,
    /// Column of the completion, or a template, in the task `completion`.
    #[serde(default = "completion")]
    pub completion: String,
    /// Column of the conversation, in the task `chat`.
    #[serde(default = "messages", skip_serializing_if = "is_messages")]
    pub messages: String,
    /// Maximum number of tokens of a sequence.
    #[serde(default = "max_tokens")]
    pub max_tokens: usize,
    /// How longer texts are treated in language modelling.
    #[serde(default)]
    pub long_texts: LongTexts,
    /// Whether an author's short texts are joined into sequences, in language modelling.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pack: bool,
    /// Column of the author: the privacy unit is then the user, with all examples of an author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Maximum examples of an author.
    #[serde(default = "most_per_author")]
    pub most_per_author: usize,
    /// Share of the privacy units of the training file that is never trained on, for audits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_out: Option<f64>,
    /// Copies of each example with some tokens replaced, in classification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub augment: Option<Augment>,
}

/// Copies of each example with some tokens replaced: further examples of its privacy unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augment {
    /// How often each example is there, itself among them.
    pub copies: usize,
    /// Share of the tokens that is replaced.
    pub share: f64,
    /// Masked language model (folder, or name on the hub) that fills in what is replaced; by
    /// default the mask token stays there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infill: Option<String>,
}

impl Default for Augment {
    fn default() -> Self {
        Self { copies: 4, share: 0.15, infill: None }
    }
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
/// Maximum number of tokens of a sequence, where nothing else is said.
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
    /// Tab-separated with a header and without quoting, as GLUE publishes its tasks
    Tsv,
    /// Tab-separated with a header, quoted as in CSV, as spreadsheets write it
    #[serde(rename = "quoted-tsv")]
    QuotedTsv,
    /// Comma-separated with a header, quoted as RFC 4180 says; separated by semicolons if the
    /// header has one and no comma
    Csv,
    /// One JSON object a line, or one array of objects
    Jsonl,
    /// Apache Parquet, of which the plain columns are read
    Parquet,
    /// One text a line, in a single column called `text`; blank lines are skipped
    Text,
}

impl Format {
    /// The format that the file's extension names, before `.gz` or `.zst` if it ends in that.
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
            // Its pages are compressed one by one.
            "parquet" if !compressed => Some(Format::Parquet),
            "txt" => Some(Format::Text),
            _ => None,
        }
    }
}

/// What happens at a torn row, which has another number of fields than the header, or at a line
/// that is no JSON object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnBadRow {
    /// The file is refused.
    #[default]
    Refuse,
    /// The row is left out, and counted.
    Skip,
}

impl OnBadRow {
    /// Whether the file is refused.
    pub fn is_refuse(&self) -> bool {
        *self == Self::Refuse
    }
}

/// How a text with more than the maximum tokens is treated, in language modelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongTexts {
    /// The text is truncated.
    #[default]
    Cut,
    /// It becomes several examples, all of the privacy unit of its row.
    Split {
        /// Maximum examples of a text; the rest of it is dropped.
        at_most: usize,
    },
}

impl LongTexts {
    /// Maximum examples of a text.
    pub fn most_per_text(&self) -> usize {
        match self {
            LongTexts::Cut => 1,
            LongTexts::Split { at_most } => *at_most,
        }
    }
}
