//! What a run is: one file from which the sampler, the mechanism and the ledger are all derived, so
//! that they cannot disagree.

mod check;
mod forward;
mod method;
mod ranges;
mod resolve;
mod resolve_forward;
mod sections;

pub use forward::{
    AdaptPlan, After, AttentionName, EncoderName, ForwardPlan, ForwardSettings, Learn, Lengths,
    MvgPlan, NoiseIs, PublicFile, RowsName,
};
pub use method::Given;
pub use resolve::{Adaptation, Resolved};
pub use sections::{
    AdaclipPlan, AnadpPlan, ComputePlan, DataPlan, Method, ModeName, ModelPlan, NoiseSchedule,
    PrivacyPlan, RapFtPlan, RelevanceSource, TaskName, TrainingPlan,
};

use super::error::{Error, Result};
use super::optimiser;
use crate::data::{Task, Unit};
use crate::model::Purpose;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A run, as its file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Which model, and what of it is trained.
    pub model: ModelPlan,
    /// What it learns from.
    pub data: DataPlan,
    /// What is guaranteed to those whom the data are about.
    pub privacy: PrivacyPlan,
    /// How it learns.
    pub training: TrainingPlan,
    /// What changes time and memory, and nothing else.
    #[serde(default)]
    pub compute: ComputePlan,
}

impl Plan {
    /// Reads a run file; each of `changes` is `key=value` with the key's path, such as
    /// `privacy.epsilon=2`.
    pub fn read(path: &Path, changes: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::folder(path, format!("the run file cannot be read: {e}")))?;
        Self::parse(&text, changes).map_err(|e| match e {
            Error::Plan(sentence) => Error::folder(path, sentence),
            other => other,
        })
    }

    /// As [`Plan::read`], from the file's text.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self> {
        // Lines are those of the text, which after a change is no longer what is read.
        let place = |e: &toml::de::Error| match e.span() {
            Some(span) if changes.is_empty() => {
                let before = &text.as_bytes()[..span.start.min(text.len())];
                format!("line {}: ", 1 + before.iter().filter(|&&byte| byte == b'\n').count())
            }
            _ => String::new(),
        };
        let unreadable = |e: toml::de::Error| {
            Error::plan(format!("{}{}", place(&e), e.message().replace('\n', " ")))
        };
        let mut table: toml::Table = text.parse().map_err(unreadable)?;
        for change in changes {
            let Some((path, value)) = change.split_once('=') else {
                return Err(Error::plan(format!(
                    "--set {change}: write it as key=value, such as privacy.epsilon=2"
                )));
            };
            set(&mut table, path.trim(), value.trim())?;
        }
        // What a finished run adds to its plan says nothing about a new one.
        let was_finished = table.remove("resolved").is_some();
        let wrong = |e: serde_path_to_error::Error<toml::de::Error>| {
            let (key, e) = (e.path().to_string(), e.inner());
            // At the top there is no key to name.
            let key = if key == "." { String::new() } else { format!("{key}: ") };
            Error::plan(format!("{}{key}{}", place(e), e.message().replace('\n', " ")))
        };
        let plan: Self = if changes.is_empty() && !was_finished {
            // From the text again, for the line in an error.
            serde_path_to_error::deserialize(toml::Deserializer::parse(text).map_err(unreadable)?)
        } else {
            serde_path_to_error::deserialize(toml::Value::Table(table))
        }
        .map_err(wrong)?;
        plan.check()?;
        Ok(plan)
    }

    /// The columns that the task reads.
    pub fn task(&self) -> Task {
        let data = &self.data;
        match data.task {
            TaskName::Classification => {
                Task::Classification { text: data.text.clone(), label: Some(data.label.clone()) }
            }
            TaskName::LanguageModelling => Task::LanguageModelling { text: data.text[0].clone() },
            TaskName::Completion => Task::Completion {
                prompt: data.prompt.clone(),
                completion: data.completion.clone(),
            },
        }
    }

    /// What the model's head must be for.
    pub fn purpose(&self) -> Purpose {
        match self.data.task {
            TaskName::Classification => Purpose::SequenceClassification,
            TaskName::LanguageModelling | TaskName::Completion => Purpose::CausalLanguageModel,
        }
    }

    /// Whether the run is private by its method.
    pub fn is_private(&self) -> bool {
        self.privacy.method != Method::None
    }

    /// Whose presence is hidden.
    pub fn unit(&self) -> Unit {
        match &self.data.author {
            Some(column) => {
                Unit::Author { column: column.clone(), at_most: self.data.most_per_author }
            }
            None => Unit::Row,
        }
    }

    /// The optimiser's settings.
    pub fn optimiser(&self) -> optimiser::Settings {
        let training = &self.training;
        optimiser::Settings {
            kind: training.optimiser,
            momentum: training.momentum,
            betas: training.betas,
            epsilon: training.adam_epsilon,
            weight_decay: training.weight_decay,
        }
    }
}

/// Sets a value at a dotted path; the value is TOML, or else text.
fn set(table: &mut toml::Table, path: &str, value: &str) -> Result<()> {
    let parsed = format!("value = {value}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().filter(|key| !key.is_empty());
    let Some(last) = last else {
        return Err(Error::plan(format!(
            "--set {path}: write the key's path, such as privacy.epsilon"
        )));
    };
    let mut here = table;
    for key in keys {
        let inner = here.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let toml::Value::Table(inner) = inner else {
            return Err(Error::plan(format!("--set {path}: {key} is a value, not a table")));
        };
        here = inner;
    }
    here.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::Clip;
    use crate::model::tuning::Tuning;
    use undertone_accounting::schedule::Passes;
    use undertone_accounting::{Accountant, epsilon};

    const FILE: &str = r#"
[model]
path = "models/a"
tuning = { lora = { rank = 8, alpha = 16, targets = ["query", "value"] } }
[data]
task = "classification"
train = "train.tsv"
text = ["sentence"]
max_tokens = 64
[privacy]
method = "dp-sgd"
epsilon = 8.0
delta = 1e-5
clip = "automatic"
schedule = "uniform"
[training]
epochs = 3
batch = 1024
learning_rate = 5e-4
optimiser = "adamw"
"#;

    fn changed(changes: &[&str]) -> Result<Plan> {
        Plan::parse(FILE, &changes.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_run_file_is_read_with_defaults_and_changes() {
        let plan = changed(&[]).unwrap();
        assert_eq!(
            (plan.privacy.epsilon, plan.privacy.clip, plan.data.label.as_str()),
            (Some(8.0), Clip::Automatic, "label")
        );
        let plan = changed(&[
            "privacy.epsilon=2",
            "privacy.clip=0.5",
            "model.tuning=full",
            "data.text=[\"a\", \"b\"]",
        ])
        .unwrap();
        assert_eq!((plan.privacy.epsilon, plan.privacy.clip), (Some(2.0), Clip::Flat(0.5)));
        assert_eq!((plan.model.tuning, plan.data.text.len()), (Tuning::Full, 2));
        assert_eq!(
            changed(&["privacy.clip={ per_layer = 2.0 }"]).unwrap().privacy.clip,
            Clip::PerLayer(2.0)
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let plan = changed(&["privacy.clip=0.5", "data.author=who"]).unwrap();
        let text = toml::to_string(&plan).unwrap();
        assert_eq!(Plan::parse(&text, &[]).unwrap(), plan);
        let with_answer = format!("{text}\n[resolved]\nunits = 3\n");
        assert_eq!(Plan::parse(&with_answer, &[]).unwrap(), plan);
    }

    #[test]
    fn mistakes_are_named() {
        for (change, sentence) in [
            ("privacy.epsilon", "key=value"),
            ("privacy.epsilom=2", "epsilom"),
            ("privacy.clip=-1", "privacy.clip"),
            ("privacy.clip=high", "clip is"),
            ("training.epochs=0", "training.epochs is 0, but must be from 1"),
            ("training.epochs=4000000000", "training.epochs"),
            ("training.batch=-1", "training.batch:"),
            ("privacy.epsilon=true", "privacy.epsilon:"),
            ("privacy.epsilon=1e308", "privacy.epsilon is 1e308,"),
            ("privacy.delta=1", "privacy.delta is 1, but"),
            ("privacy.clip=1e300", "privacy.clip"),
            ("privacy.clip=1e-40", "privacy.clip"),
            ("privacy.reserve=-1", "privacy.reserve"),
            ("privacy.step_distance=nan", "privacy.step_distance"),
            ("privacy.rap_ft.alpha=-5", "privacy.rap_ft.alpha"),
            ("privacy.rap_ft.initial={ top_p = 7.0 }", "privacy.rap_ft.initial.top_p"),
            ("privacy.rap_ft.initial={ beam = 0 }", "privacy.rap_ft.initial.beam"),
            ("privacy.forward.dims=[100000]", "privacy.forward.dims"),
            ("privacy.mvg.spread=inf", "privacy.mvg.spread"),
            ("model.tuning.lora.alpha=1e300", "model.tuning.lora.alpha"),
            ("data.max_tokens=0", "data.max_tokens"),
            ("data.most_per_author=0", "data.most_per_author"),
            ("data.labels=[]", "data.labels"),
            ("training.learning_rate=nan", "learning_rate"),
            ("privacy.method=none", "has no epsilon"),
            ("privacy.noise_multiplier=1.0", "either epsilon or noise_multiplier"),
            ("model.hub=name", "either path"),
            ("data.text=[]", "data.text"),
            ("data.task=guessing", "guessing"),
            ("privacy.mode=paper", "as published"),
            ("privacy.anadp.range=[2.0, 4.0]", "anadp.range"),
            ("privacy.anadp.alpha=2.0", "anadp.alpha"),
            ("privacy.anadp.quantiles=[0.5, 1.5]", "anadp.quantiles"),
            ("model.tuning.full.x=1", ""),
        ] {
            let error = changed(&[change]).unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains('\n'), "{change}: {error}");
        }
        let error = Plan::parse(&FILE.replace("batch = 1024", "batch = \"many\""), &[])
            .unwrap_err()
            .to_string();
        let line = 1 + FILE.lines().position(|line| line.starts_with("batch")).unwrap();
        assert!(error.contains(&format!("line {line}: training.batch:")), "{error}");
        let error =
            Plan::parse(&FILE.replace("batch = 1024", "batch = 1\ntrolley = 2"), &[]).unwrap_err();
        assert!(
            error.to_string().contains(&format!("line {}: training.trolley", line + 1)),
            "{error}"
        );
    }

    #[test]
    fn the_noise_spends_the_budget_and_no_more() {
        for schedule in ["uniform", "linear", "exponential", "cosine", "step", "ewpba"] {
            let plan = changed(&[&format!("privacy.schedule={schedule}")]).unwrap();
            let resolved = plan.resolve(67_349).unwrap();
            assert_eq!((resolved.steps_per_epoch, resolved.noise_multipliers.len()), (65, 3));
            let passes = Passes::over(67_349, 1024, 3).unwrap();
            let spent =
                epsilon(&passes.compose(&resolved.noise_multipliers), 1e-5, Accountant::Auto)
                    .unwrap();
            assert!(
                spent.epsilon.upper <= 8.0 && spent.epsilon.upper > 7.9,
                "{schedule}: {:?}",
                spent.epsilon
            );
        }
        assert!(changed(&[]).unwrap().resolve(1000).is_err(), "a batch larger than the data");
        let open = changed(&["privacy.method=none"]).err();
        assert!(open.is_some());
    }
}
