//! Arguments that select the data, and the columns in which a model finds its texts.

use super::arguments::Loaded;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::PathBuf;
use undertone::data::{Format, Options, Task, Tokenizer, format_of, read};
use undertone::evaluate::Limits;
use undertone::model::TaskHead;
use undertone::model::folder::Reading;
use undertone_run::{MAX_TOKENS, TaskName};

/// The data and how to read them.
#[derive(Args)]
pub struct DataArguments {
    /// Data file: .tsv, .csv, .jsonl, .json, .parquet, or .txt with one text per line; all but
    /// .parquet may be compressed (.gz or .zst). Also a glob such as 'rows-*.csv', or a folder of
    /// Parquet shards
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Format of the data file [default: from its extension]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Task to use the model for [default: that of its training, or inferred from the model]
    #[arg(long, value_enum)]
    task: Option<TaskName>,
    /// Text column, or two comma-separated columns for a pair of texts [default: as in training, or
    /// a usual name such as `text` or `sentence`]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    text: Vec<String>,
    /// Label column [default: as in training, or `label`]
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// Prompt column, or a template such as 'Question: {question}', for the completion task
    /// [default: as in training, or `prompt`]
    #[arg(long, value_name = "COLUMN", alias = "prompt-column")]
    prompt: Option<String>,
    /// Completion column, or a template, for the completion task [default: as in training, or
    /// `completion`]
    #[arg(long, value_name = "COLUMN", alias = "completion-column")]
    completion: Option<String>,
    /// Conversation column, for the chat task [default: as in training, or `messages`]
    #[arg(long, value_name = "COLUMN", alias = "messages-column")]
    messages: Option<String>,
    /// Maximum sequence length in tokens; longer texts are cut [default: as in training, or 256 if
    /// unknown]
    #[arg(long)]
    max_tokens: Option<usize>,
    /// Batch size, in sequences
    #[arg(long, default_value_t = 64)]
    batch: usize,
}

/// Text columns of public datasets, tried in this order.
const USUAL_TEXTS: [&[&str]; 8] = [
    &["sentence1", "sentence2"],
    &["question1", "question2"],
    &["premise", "hypothesis"],
    &["question", "sentence"],
    &["sentence"],
    &["text"],
    &["content"],
    &["review"],
];

impl DataArguments {
    /// The task head requested by the user.
    pub fn task_head(&self) -> Option<TaskHead> {
        self.task.map(TaskHead::of)
    }

    pub fn limits(&self) -> Outcome<Limits> {
        if self.batch == 0 {
            return Err(Failure::arguments("--batch must be at least 1"));
        }
        Ok(Limits { sequences: self.batch, ..Limits::default() })
    }

    pub fn options(&self) -> Options {
        Options { format: self.format, progress: true, ..Options::default() }
    }

    pub fn format(&self) -> Outcome<Format> {
        Ok(format_of(&self.data, self.format)?)
    }

    /// The requested task, or the task of training if the model has its head.
    pub fn task(&self, loaded: &Loaded) -> Option<TaskName> {
        let trained_for = loaded.reading.as_ref().and_then(|reading| reading.task);
        let head = loaded.model.network.head.task_head;
        self.task.or(trained_for).filter(|name| TaskHead::of(*name) == head)
    }

    /// The task and its columns: those named by the user, those of training, or the usual ones.
    pub fn resolve(&self, loaded: &Loaded, with_label: bool) -> Outcome<Task> {
        let head = loaded.model.network.head.task_head;
        let (reading, name) = (loaded.reading.as_ref(), self.task(loaded));
        // A model can be used for a task other than that of its training, which reads other
        // columns.
        let reading = reading.filter(|reading| reading.task == name);
        let column = |given: &Option<String>, trained: Option<&String>, usual: &str| {
            given.as_ref().or(trained).cloned().unwrap_or_else(|| usual.to_owned())
        };
        let task = match (name, head) {
            (Some(TaskName::Completion), _) => Task::Completion {
                prompt: column(
                    &self.prompt,
                    reading.and_then(|reading| reading.prompt.as_ref()),
                    "prompt",
                ),
                completion: column(
                    &self.completion,
                    reading.and_then(|reading| reading.completion.as_ref()),
                    "completion",
                ),
            },
            (Some(TaskName::Chat), _) => {
                let trained = reading.and_then(|reading| reading.messages.as_ref());
                Task::Chat { messages: column(&self.messages, trained, "messages") }
            }
            (_, TaskHead::SequenceClassification) => {
                let trained = reading.and_then(|reading| reading.label.as_ref());
                Task::Classification {
                    text: self.texts(reading)?,
                    label: with_label.then(|| column(&self.label, trained, "label")),
                }
            }
            (_, TaskHead::CausalLanguageModel | TaskHead::MaskedLanguageModel) => {
                let mut columns = self.texts(reading)?;
                if columns.len() > 1 {
                    return Err(Failure::arguments(
                        "language modeling reads one column of text; give one --text",
                    ));
                }
                let text = columns.remove(0);
                match head {
                    TaskHead::MaskedLanguageModel => Task::MaskedLanguageModeling { text },
                    _ => Task::LanguageModeling { text },
                }
            }
            _ => {
                return Err(Failure::arguments(
                    "the model's head is for neither classification nor language modeling",
                ));
            }
        };
        task.check()?;
        self.refuse_unused(&task)?;
        if reading.is_some() {
            self.check_trained_columns(&task)?;
        }
        Ok(task)
    }

    /// The text columns.
    fn texts(&self, reading: Option<&Reading>) -> Outcome<Vec<String>> {
        if !self.text.is_empty() {
            return Ok(self.text.clone());
        }
        let format = self.format()?;
        let columns = read::columns(&self.data, format)?;
        match reading.map(|reading| reading.text.as_slice()) {
            // A plain text file has a single column without a name.
            Some([_]) if format == Format::Text => return Ok(columns),
            Some(trained) if !trained.is_empty() => return Ok(trained.to_vec()),
            _ => {}
        }
        let usual = USUAL_TEXTS
            .iter()
            .find(|names| names.iter().all(|name| columns.iter().any(|c| c == name)));
        let Some(names) = usual else {
            return Err(Failure::arguments(format!(
                "say which column holds the text with --text; {} has {}",
                self.data.display(),
                columns.join(", ")
            )));
        };
        // With only the text columns and a label, there is no other choice.
        if columns.len() > names.len() + 1 {
            output::note(format_args!(
                "reading the text from {}; choose other columns with --text",
                names.join(" and ")
            ));
        }
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Rejects column flags that the task does not use.
    fn refuse_unused(&self, task: &Task) -> Outcome {
        let completes = matches!(task, Task::Completion { .. });
        let chats = matches!(task, Task::Chat { .. });
        for (flag, given, reads) in [
            ("--text", !self.text.is_empty(), !completes && !chats),
            ("--label", self.label.is_some(), task.label().is_some()),
            ("--prompt", self.prompt.is_some(), completes),
            ("--completion", self.completion.is_some(), completes),
            ("--messages", self.messages.is_some(), chats),
        ] {
            if given && !reads {
                return Err(Failure::arguments(format!(
                    "{flag} has no effect here; leave it out, or choose another task with --task"
                )));
            }
        }
        Ok(())
    }

    /// Rejects a file that lacks a column used in training, unless the user has named another one.
    fn check_trained_columns(&self, task: &Task) -> Outcome {
        let flag = |name: &str| match task {
            Task::Completion { .. } => "--prompt and --completion",
            Task::Chat { .. } => "--messages",
            _ if task.label() == Some(name) => "--label",
            _ => "--text",
        };
        let columns = read::columns(&self.data, self.format()?)?;
        let given = [&self.label, &self.prompt, &self.completion, &self.messages];
        let is_given = |name: &str| {
            self.text.iter().chain(given.into_iter().flatten()).any(|given| given.contains(name))
        };
        let missing =
            task.columns().into_iter().find(|name| !has(&columns, name) && !is_given(name));
        let Some(name) = missing else { return Ok(()) };
        Err(Failure::arguments(format!(
            "{} has no column {name:?}, which the model was trained on; choose another one with {} \
             (it has {})",
            self.data.display(),
            flag(name),
            columns.join(", ")
        )))
    }

    /// The model's tokenizer, with the maximum length given by the user or used in training.
    pub fn tokenizer(&self, loaded: &Loaded) -> Outcome<Tokenizer> {
        let in_training = loaded.reading.as_ref().map_or(MAX_TOKENS, |reading| reading.max_tokens);
        Ok(loaded.model.tokenizer(&loaded.folder, self.max_tokens.unwrap_or(in_training))?)
    }
}

/// Whether a file with these columns has one of this name; a column of an object within JSON has
/// the object's name before a dot.
pub fn has(columns: &[String], name: &str) -> bool {
    let outer = name.split('.').next().unwrap_or(name);
    columns.iter().any(|column| column == name || column == outer)
}
