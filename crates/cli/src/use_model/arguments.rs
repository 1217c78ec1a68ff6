//! The arguments that say which model and which data.

use crate::arguments::ModelArgument;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use undertone::data::{Format, Labels, Options, Task, Tokeniser, format_of, read};
use undertone::evaluate::Limits;
use undertone::model::folder::{LoadOptions, Reading, locate};
use undertone::model::tuning::load_adapted;
use undertone::model::{Model, TaskHead};
use undertone_run::{MAX_TOKENS, TaskName, private_labels};

/// A model, the adapter to put on it, and the device that it is loaded on.
#[derive(Args)]
pub struct ModelArguments {
    #[command(flatten)]
    base: ModelArgument,
    /// Adapter folder (LoRA, adapter, bitfit or head) to put on the model
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArguments,
}

/// A model with its folder, and with its adapter on.
pub struct Loaded {
    pub model: Model,
    pub folder: PathBuf,
    /// How the run that trained it read its texts, if the adapter or the model says so.
    pub reading: Option<Reading>,
    /// Class names that the run folder around it keeps private.
    private_names: Option<Vec<String>>,
}

impl Loaded {
    /// The class names: those of the model or, in the folder of the run that trained it, those that
    /// the run found in its training file.
    pub fn labels(&self) -> Outcome<Labels> {
        match &self.private_names {
            Some(names) => Ok(Labels::given(names.clone())?),
            None => Ok(self.model.label_set()?),
        }
    }
}

impl ModelArguments {
    /// Loads the model for a task, or for the one that its folder names.
    pub fn load(&self, task_head: Option<TaskHead>) -> Outcome<Loaded> {
        let folder = locate(&self.base.model)?;
        let options = LoadOptions { task_head, ..LoadOptions::default() };
        let mut model = load_adapted(&folder, self.adapter.as_deref(), options)?;
        if !model.fresh.is_empty() {
            let names = model.fresh.join(", ");
            crate::output::note(format_args!(
                "warning: the weights lack {names}; random numbers stand in their place, so train \
                 before you trust"
            ));
        }
        model.to_device(&self.device.device()?)?;
        let of_adapter = self.adapter.as_deref().map(Reading::of).transpose()?.flatten();
        let reading = match of_adapter {
            Some(reading) => Some(reading),
            None => Reading::of(&folder)?,
        };
        let trained = self.adapter.as_deref().unwrap_or(&folder);
        let classifies = model.network.head.task_head == TaskHead::SequenceClassification;
        let private_names = match classifies {
            true => private_labels(trained)?,
            false => None,
        };
        let classes = model.network.head.out.outputs;
        if let Some(names) = private_names.as_ref().filter(|names| names.len() != classes) {
            return Err(Failure::arguments(format!(
                "{} belongs to a run with {} classes, but the model has {classes}; bring back the \
                 files of one run",
                trained.display(),
                names.len()
            )));
        }
        Ok(Loaded { model, folder, reading, private_names })
    }
}

/// Which data, and how they are read.
#[derive(Args)]
pub struct DataArguments {
    /// File with the data: .tsv, .csv, .jsonl, .json, .parquet, or .txt with a text per line; all
    /// but .parquet may be compressed (.gz, .zst). A pattern ('rows-*.csv') reads several files, a
    /// folder its Parquet shards
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// The file's format, where its extension does not say it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// What to do with a row [default: what the model is for]
    #[arg(long, value_enum)]
    pub task: Option<TaskName>,
    /// Column of the text; twice for a pair [default: the usual names]
    #[arg(long, value_name = "COLUMN")]
    text: Vec<String>,
    /// Column of the label
    #[arg(long, value_name = "COLUMN", default_value = "label")]
    label: String,
    /// Column of the conversation (chat)
    #[arg(long, value_name = "COLUMN", default_value = "messages")]
    messages_column: String,
    /// Column of the prompt, or a template such as 'Question: {question}' (completion)
    #[arg(long, value_name = "COLUMN", default_value = "prompt")]
    prompt_column: String,
    /// Column of what should follow the prompt (completion)
    #[arg(long, value_name = "COLUMN", default_value = "completion")]
    completion_column: String,
    /// Longest sequence; longer texts are cut [default: that of the run which trained the model,
    /// else 256]
    #[arg(long)]
    max_tokens: Option<usize>,
    /// Batch size: sequences computed together
    #[arg(long, default_value_t = 64)]
    batch: usize,
}

/// Columns that public datasets use for their texts, tried in this order.
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

    /// The task and the columns it reads, for the model's head.
    pub fn resolve(&self, task_head: TaskHead, with_label: bool) -> Outcome<Task> {
        let text = || -> Outcome<Vec<String>> {
            if !self.text.is_empty() {
                return Ok(self.text.clone());
            }
            let columns = read::columns(&self.data, self.format()?)?;
            let usual = USUAL_TEXTS
                .iter()
                .find(|names| names.iter().all(|name| columns.iter().any(|c| c == name)));
            match usual {
                Some(names) => Ok(names.iter().map(ToString::to_string).collect()),
                None => Err(Failure::arguments(format!(
                    "say which column holds the text with --text; {} has {}",
                    self.data.display(),
                    columns.join(", ")
                ))),
            }
        };
        let task = match (self.task, task_head) {
            (Some(TaskName::Completion), _) => Task::Completion {
                prompt: self.prompt_column.clone(),
                completion: self.completion_column.clone(),
            },
            (Some(TaskName::Chat), _) => Task::Chat { messages: self.messages_column.clone() },
            (_, TaskHead::SequenceClassification) => Task::Classification {
                text: text()?,
                label: with_label.then(|| self.label.clone()),
            },
            (_, TaskHead::CausalLanguageModel | TaskHead::MaskedLanguageModel) => {
                let mut columns = text()?;
                if columns.len() > 1 {
                    return Err(Failure::arguments(
                        "language modelling reads one column of text; give one --text",
                    ));
                }
                let text = columns.remove(0);
                match task_head {
                    TaskHead::MaskedLanguageModel => Task::MaskedLanguageModelling { text },
                    _ => Task::LanguageModelling { text },
                }
            }
            _ => {
                return Err(Failure::arguments(
                    "the model's head is for neither classification nor language modelling",
                ));
            }
        };
        task.check()?;
        Ok(task)
    }

    /// The tokenizer of the model, cutting where the user says or training did.
    pub fn tokeniser(&self, loaded: &Loaded) -> Outcome<Tokeniser> {
        let in_training = loaded.reading.map_or(MAX_TOKENS, |reading| reading.max_tokens);
        Ok(loaded.model.tokeniser(&loaded.folder, self.max_tokens.unwrap_or(in_training))?)
    }
}
