//! Source of a run: a run file, or flags instead of one.

use crate::arguments::ChangeArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use toml::Value;
use undertone::tensor::Device;
use undertone::{Plan, ResolvedPlan};
use undertone_run::{AutoKey, LearningRateSchedule, TaskName, Tuning, WrittenRun};

/// Default parent folder of runs.
pub const RUNS: &str = "runs";

/// Flags that replace a run file; each sets one of its keys.
#[derive(Args, Default)]
#[command(next_help_heading = "Without a run file")]
pub struct SourceArguments {
    /// Model folder, or model name on the Hugging Face Hub
    #[arg(long, value_name = "DIR|NAME")]
    pub model: Option<String>,
    /// Private training file
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub columns: ColumnArguments,
    /// Target ε; overrides that of the run file
    #[arg(long)]
    pub epsilon: Option<f64>,
}

/// Flags for common keys of a run file, which override it.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Common keys")]
pub struct KeyArguments {
    /// Number of epochs (training.epochs)
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Batch size in privacy units (training.batch)
    #[arg(long, value_name = "N")]
    batch: Option<u64>,
    /// Peak learning rate (training.learning_rate)
    #[arg(long, visible_alias = "lr", value_name = "RATE")]
    learning_rate: Option<f64>,
    /// Maximum number of tokens per sequence; longer texts are cut (data.max_tokens)
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<usize>,
    /// Rank of LoRA (model.tuning.lora.rank)
    #[arg(long, value_name = "N")]
    lora_rank: Option<usize>,
}

impl KeyArguments {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.changes().is_empty()
    }

    /// A given flag that only matters for training.
    pub fn training_flag(&self) -> Option<&'static str> {
        [
            ("--epochs", self.epochs.is_some()),
            ("--batch", self.batch.is_some()),
            ("--learning-rate", self.learning_rate.is_some()),
            ("--lora-rank", self.lora_rank.is_some()),
        ]
        .into_iter()
        .find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// The flags as overrides of run-file keys.
    pub fn changes(&self) -> Vec<String> {
        let text = |key: &str, value: Option<String>| value.map(|value| format!("{key}={value}"));
        [
            text("training.epochs", self.epochs.map(|n| n.to_string())),
            text("training.batch", self.batch.map(|n| n.to_string())),
            text("training.learning_rate", self.learning_rate.map(|rate| format!("{rate:?}"))),
            text("data.max_tokens", self.max_tokens.map(|n| n.to_string())),
            text("model.tuning.lora.rank", self.lora_rank.map(|n| n.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn rank_is_given(&self) -> bool {
        self.lora_rank.is_some()
    }

    /// Fails if `--lora-rank` meets a fine-tuning method that has none.
    pub fn check_tuning(&self, tuning: Option<&Tuning>) -> Outcome {
        match (self.lora_rank, tuning) {
            (Some(_), Some(other)) if !matches!(other, Tuning::Lora(_)) => {
                Err(Failure::arguments(format!(
                    "--lora-rank is for LoRA, and model.tuning is {:?}; leave it out, or add --set \
                     'model.tuning={{ lora = {{}} }}'",
                    other.name()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The task and its columns.
#[derive(Args, Clone, Default)]
pub struct ColumnArguments {
    /// Text column, or two comma-separated columns for a pair of texts
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub text: Vec<String>,
    /// Label column
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// Comma-separated label names [default: read from the file and kept private]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Prompt column, or a template such as 'Question: {question}'
    #[arg(long, value_name = "COLUMN")]
    pub prompt: Option<String>,
    /// Completion column, or a template
    #[arg(long, value_name = "COLUMN")]
    pub completion: Option<String>,
    /// Conversation column
    #[arg(long, value_name = "COLUMN")]
    pub messages: Option<String>,
    /// Author column; makes the user the privacy unit
    #[arg(long, value_name = "COLUMN")]
    pub author: Option<String>,
    /// Task to train for [default: inferred from the columns]
    #[arg(long, value_enum)]
    pub task: Option<TaskName>,
    /// Validation file to evaluate the model on
    #[arg(long, value_name = "FILE")]
    pub validation: Option<PathBuf>,
}

impl ColumnArguments {
    fn is_empty(&self) -> bool {
        let columns = [&self.label, &self.prompt, &self.completion, &self.messages, &self.author];
        self.text.is_empty()
            && self.labels.is_empty()
            && columns.iter().all(|column| column.is_none())
            && self.task.is_none()
            && self.validation.is_none()
    }

    /// The given task, or the one inferred from the given columns.
    pub fn task(&self) -> Option<TaskName> {
        let classifies = self.label.is_some() || !self.labels.is_empty();
        let completes = self.prompt.is_some() || self.completion.is_some();
        let reads_text = !self.text.is_empty();
        match (self.task, classifies, completes, self.messages.is_some()) {
            (Some(task), ..) => Some(task),
            (None, true, false, false) => Some(TaskName::Classification),
            (None, false, true, false) => Some(TaskName::Completion),
            (None, false, false, true) => Some(TaskName::Chat),
            (None, false, false, false) if reads_text => Some(TaskName::LanguageModeling),
            _ => None,
        }
    }

    /// The flags as overrides of run-file keys.
    fn changes(&self) -> Outcome<Vec<String>> {
        let Some(task) = self.task() else {
            return Err(Failure::arguments(
                "specify the columns to learn from: --text with --label, --prompt with \
                 --completion, --messages, or --text alone",
            ));
        };
        let mut changes = vec![format!("data.task={}", quoted(name_of(task)))];
        if !self.text.is_empty() {
            changes.push(format!("data.text={}", list(&self.text)));
        }
        if !self.labels.is_empty() {
            changes.push(format!("data.labels={}", list(&self.labels)));
        }
        for (key, value) in [
            ("label", &self.label),
            ("prompt", &self.prompt),
            ("completion", &self.completion),
            ("messages", &self.messages),
            ("author", &self.author),
        ] {
            changes.extend(value.as_ref().map(|value| format!("data.{key}={}", quoted(value))));
        }
        let validation = self.validation.as_ref();
        changes.extend(validation.map(|path| format!("data.validation={}", quoted_path(path))));
        Ok(changes)
    }
}

/// Name of a task in run files.
pub fn name_of(task: TaskName) -> &'static str {
    match task {
        TaskName::Classification => "classification",
        TaskName::LanguageModeling => "language-modeling",
        TaskName::MaskedLanguageModeling => "masked-language-modeling",
        TaskName::Completion => "completion",
        TaskName::Chat => "chat",
    }
}

/// A TOML string literal.
pub fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

pub fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// A TOML array of strings.
pub fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// The run-file key of a model: `path` for a folder, `hub` for a name.
pub fn key_of_model(model: &str) -> &'static str {
    let is_path = model.starts_with(['.', '/']) || model.contains(['\\', ':']);
    let is_folder = is_path || Path::new(model).exists();
    if is_folder { "path" } else { "hub" }
}

impl SourceArguments {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.names_nothing() && self.epsilon.is_none()
    }

    fn names_nothing(&self) -> bool {
        self.model.is_none() && self.data.is_none() && self.columns.is_empty()
    }

    /// The run file with overrides, or the run described by the flags.
    pub fn read(
        &self,
        file: Option<&Path>,
        keys: &KeyArguments,
        set: &ChangeArguments,
    ) -> Outcome<WrittenRun> {
        let mut changes: Vec<String> =
            self.epsilon.iter().map(|epsilon| format!("privacy.epsilon={epsilon:?}")).collect();
        if let Some(path) = file
            && keys.rank_is_given()
        {
            keys.check_tuning(WrittenRun::read(path, &set.changes())?.tuning())?;
        }
        let written = match file {
            Some(path) => {
                if !self.names_nothing() {
                    return Err(Failure::arguments(
                        "the run file already names the model, data and columns; change its keys \
                         with --set",
                    ));
                }
                changes.extend(keys.changes());
                changes.extend(set.changes());
                WrittenRun::read(path, &changes)?
            }
            None => {
                let has_budget = self.epsilon.is_some()
                    || set.changes().iter().any(|change| change.starts_with("privacy."));
                let (Some(model), Some(data), false, true) =
                    (&self.model, &self.data, self.columns.is_empty(), has_budget)
                else {
                    return Err(self.incomplete(has_budget));
                };
                changes.push(format!("model.{}={}", key_of_model(model), quoted(model)));
                changes.push(format!("data.train={}", quoted_path(data)));
                changes.extend(self.columns.changes()?);
                changes.extend(keys.changes());
                changes.extend(set.changes());
                WrittenRun::parse("", &changes)?
            }
        };
        if !written.left_out().is_empty() {
            output::note(format_args!(
                "omitted, because they do not apply to privacy.method = {}: {}",
                quoted(written.method().name()),
                written.left_out().join(", ")
            ));
        }
        Ok(written)
    }

    fn incomplete(&self, has_budget: bool) -> Failure {
        let needed = [
            ("--model", self.model.is_none()),
            ("--data", self.data.is_none()),
            ("--text or --prompt", self.columns.is_empty()),
            ("--epsilon", !has_budget),
        ];
        let lacking: Vec<&str> =
            needed.iter().filter(|(_, lacks)| *lacks).map(|(flag, _)| *flag).collect();
        Failure::arguments(format!(
            "pass a run file (`undertone init` writes one), or instead {}",
            lacking.join(", ")
        ))
    }
}

/// Resolves the plan of a run, including the settings chosen by the recipe; errors in a run file
/// name the file.
pub fn resolve(
    written: &WrittenRun,
    file: Option<&Path>,
    device: &Device,
) -> Outcome<ResolvedPlan> {
    let resolved = Plan::resolve(written, device);
    Ok(resolved.map_err(|error| match (error, file) {
        (undertone::Error::Run(undertone_run::Error::RunFile(sentence)), Some(path)) => {
            undertone::Error::Run(undertone_run::Error::folder(path, sentence))
        }
        (other, _) => other,
    })?)
}

/// Prints the settings chosen by the recipe in one line.
pub fn tell_choices(resolved: &ResolvedPlan) {
    if !resolved.chosen.is_empty() {
        let chosen = resolved.chosen.iter().map(|key| choice(*key, &resolved.plan));
        let chosen: Vec<String> = chosen.collect();
        output::note(format_args!("chosen by the recipe: {}", chosen.join(", ")));
    }
}

/// Description of a chosen setting.
pub fn choice(key: AutoKey, plan: &Plan) -> String {
    let file = plan.file();
    let training = &file.training;
    match key {
        AutoKey::Tuning => match &file.model.tuning {
            Tuning::Lora(lora) => format!("LoRA of rank {}", lora.rank),
            other => format!("tuning {}", other.name()),
        },
        AutoKey::Delta => format!("δ = {:e}", file.privacy.delta.unwrap_or_default()),
        AutoKey::Clip => match file.privacy.clip {
            undertone_run::Clip::Flat(bound) => format!("clip {bound}"),
            other => format!("clip {other:?}"),
        },
        AutoKey::Epochs => format!("{} epochs", training.epochs),
        AutoKey::Batch => format!("batch {}", training.batch),
        AutoKey::LearningRate => format!("learning rate {}", training.learning_rate),
        AutoKey::LearningRateSchedule => match training.learning_rate_schedule {
            LearningRateSchedule::Constant => "constant learning rate".to_owned(),
            LearningRateSchedule::Linear => "linear decay".to_owned(),
            LearningRateSchedule::Cosine => "cosine decay".to_owned(),
        },
        AutoKey::Warmup => format!("warm-up {}", training.warmup),
        AutoKey::Optimizer => {
            let name = match training.optimizer {
                undertone_run::OptimizerKind::Sgd => "sgd",
                undertone_run::OptimizerKind::Adamw => "adamw",
                undertone_run::OptimizerKind::AdamCorrected => "adam-corrected",
            };
            name.to_owned()
        }
        other => other.path().to_owned(),
    }
}

/// A new run folder, named after the run file, or runs/first.
pub fn new_folder(file: Option<&Path>) -> PathBuf {
    let stem = file.and_then(Path::file_stem).and_then(|stem| stem.to_str());
    let name = stem.filter(|stem| *stem != "run").unwrap_or("first");
    first_free(name, |path| path.exists())
}

fn first_free(name: &str, exists: impl Fn(&Path) -> bool) -> PathBuf {
    let others = (2_u64..).map(|number| format!("{name}-{number}"));
    let names = std::iter::once(name.to_owned()).chain(others);
    let mut paths = names.map(|name| Path::new(RUNS).join(name));
    paths.find(|path| !exists(path)).unwrap_or_else(|| Path::new(RUNS).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_exists_is_not_taken() {
        let taken = ["runs/sst2", "runs/sst2-2"].map(Path::new);
        assert_eq!(first_free("sst2", |path| taken.contains(&path)), Path::new("runs/sst2-3"));
        assert_eq!(first_free("first", |path| taken.contains(&path)), Path::new("runs/first"));
    }

    #[test]
    fn columns_name_the_task() {
        let columns = |text: &[&str], label: Option<&str>, prompt: Option<&str>| ColumnArguments {
            text: text.iter().map(ToString::to_string).collect(),
            label: label.map(str::to_owned),
            prompt: prompt.map(str::to_owned),
            ..ColumnArguments::default()
        };
        assert_eq!(columns(&["t"], Some("l"), None).task(), Some(TaskName::Classification));
        assert_eq!(columns(&["t"], None, None).task(), Some(TaskName::LanguageModeling));
        assert_eq!(columns(&[], None, Some("p")).task(), Some(TaskName::Completion));
        assert_eq!(columns(&["t"], Some("l"), Some("p")).task(), None);
        assert_eq!(columns(&[], None, None).task(), None);
    }
}
