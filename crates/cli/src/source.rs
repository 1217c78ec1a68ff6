//! Where a run comes from: a run file, or flags in its place.

use crate::arguments::ChangeArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use toml::Value;
use undertone::tensor::Device;
use undertone::{Plan, ResolvedPlan};
use undertone_run::{AutoKey, LearningRateSchedule, TaskName, Tuning, WrittenRun};

/// The folder that runs go to where nobody says otherwise.
const RUNS: &str = "runs";

/// Flags in place of a run file; each is a key of one.
#[derive(Args, Default)]
#[command(next_help_heading = "Without a run file")]
pub struct SourceArguments {
    /// Model folder, or the model's name on the Hugging Face hub
    #[arg(long, value_name = "DIR|NAME")]
    pub model: Option<String>,
    /// The private training file
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub columns: ColumnArguments,
    /// Target ε; with a run file, in place of its own
    #[arg(long)]
    pub epsilon: Option<f64>,
}

/// The task and the columns that it reads.
#[derive(Args, Clone, Default)]
pub struct ColumnArguments {
    /// Column of the text, or the two of a pair, with a comma between
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub text: Vec<String>,
    /// Column of the label
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// Names of the labels, with commas between; those found in the file are assumed to be public
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Column of the prompt
    #[arg(long, value_name = "COLUMN")]
    pub prompt: Option<String>,
    /// Column of the completion
    #[arg(long, value_name = "COLUMN")]
    pub completion: Option<String>,
    /// Column of the author: the privacy unit is then the user
    #[arg(long, value_name = "COLUMN")]
    pub author: Option<String>,
    /// What the model learns [default: what the columns are for]
    #[arg(long, value_enum)]
    pub task: Option<TaskName>,
    /// File that the trained model is evaluated on
    #[arg(long, value_name = "FILE")]
    pub validation: Option<PathBuf>,
}

impl ColumnArguments {
    fn is_empty(&self) -> bool {
        let columns = [&self.label, &self.prompt, &self.completion, &self.author];
        self.text.is_empty()
            && self.labels.is_empty()
            && columns.iter().all(|column| column.is_none())
            && self.task.is_none()
            && self.validation.is_none()
    }

    /// The task that was named, or the one that the named columns are for.
    pub fn task(&self) -> Option<TaskName> {
        let classifies = self.label.is_some() || !self.labels.is_empty();
        let completes = self.prompt.is_some() || self.completion.is_some();
        match (self.task, classifies, completes) {
            (Some(task), ..) => Some(task),
            (None, true, false) => Some(TaskName::Classification),
            (None, false, true) => Some(TaskName::Completion),
            (None, false, false) if !self.text.is_empty() => Some(TaskName::LanguageModelling),
            _ => None,
        }
    }

    /// As changes of a run file.
    fn changes(&self) -> Outcome<Vec<String>> {
        let Some(task) = self.task() else {
            return Err(Failure::arguments(
                "say what the model learns: --text with --label, --prompt with --completion, or \
                 --text alone",
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
            ("author", &self.author),
        ] {
            changes.extend(value.as_ref().map(|value| format!("data.{key}={}", quoted(value))));
        }
        let validation = self.validation.as_ref();
        changes.extend(validation.map(|path| format!("data.validation={}", quoted_path(path))));
        Ok(changes)
    }
}

/// A task as in run files.
pub fn name_of(task: TaskName) -> &'static str {
    match task {
        TaskName::Classification => "classification",
        TaskName::LanguageModelling => "language-modelling",
        TaskName::MaskedLanguageModelling => "masked-language-modelling",
        TaskName::Completion => "completion",
        TaskName::Chat => "chat",
    }
}

/// A text as TOML writes it.
pub fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

pub fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Texts as a TOML array.
pub fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// The key of a run file that a model's folder or name belongs to.
pub fn key_of_model(model: &str) -> &'static str {
    let is_folder = Path::new(model).exists() || model.starts_with(['.', '/']);
    if is_folder { "path" } else { "hub" }
}

impl SourceArguments {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.names_nothing() && self.epsilon.is_none()
    }

    fn names_nothing(&self) -> bool {
        self.model.is_none() && self.data.is_none() && self.columns.is_empty()
    }

    /// The run file with its changes, or what the flags say in its place.
    pub fn read(&self, file: Option<&Path>, set: &ChangeArguments) -> Outcome<WrittenRun> {
        let mut changes: Vec<String> =
            self.epsilon.iter().map(|epsilon| format!("privacy.epsilon={epsilon:?}")).collect();
        let written = match file {
            Some(path) => {
                if !self.names_nothing() {
                    return Err(Failure::arguments(
                        "a run file names model, data and columns itself; change its keys with \
                         --set",
                    ));
                }
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
                changes.extend(set.changes());
                WrittenRun::parse("", &changes)?
            }
        };
        if !written.left_out().is_empty() {
            output::note(format_args!(
                "left out, since they do not apply to privacy.method = {}: {}",
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
            "give a run file, which `undertone init` writes, or in its place {}",
            lacking.join(", ")
        ))
    }
}

/// The plan of a run, with what the recipe chose; a mistake in a run file names the file.
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

/// Tells what the recipe chose, in one line.
pub fn tell_choices(resolved: &ResolvedPlan) {
    if !resolved.chosen.is_empty() {
        let chosen = resolved.chosen.iter().map(|key| choice(*key, &resolved.plan));
        let chosen: Vec<String> = chosen.collect();
        output::note(format_args!("chosen by the recipe: {}", chosen.join(", ")));
    }
}

/// A chosen value in words.
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
        AutoKey::Optimiser => {
            let name = match training.optimiser {
                undertone_run::OptimiserKind::Sgd => "sgd",
                undertone_run::OptimiserKind::Adamw => "adamw",
                undertone_run::OptimiserKind::AdamCorrected => "adam-corrected",
            };
            name.to_owned()
        }
        other => other.path().to_owned(),
    }
}

/// A new folder of a run: named after the run file, or runs/first.
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
        assert_eq!(columns(&["t"], None, None).task(), Some(TaskName::LanguageModelling));
        assert_eq!(columns(&[], None, Some("p")).task(), Some(TaskName::Completion));
        assert_eq!(columns(&["t"], Some("l"), Some("p")).task(), None);
        assert_eq!(columns(&[], None, None).task(), None);
    }
}
