//! What a run is: one file from which the sampler, the mechanism and the ledger are all derived, so that they cannot disagree.

use super::error::{Error, Result};
use super::optimiser;
use super::rate::RateSchedule;
use crate::data::{Format, LongTexts, Task, Unit};
use crate::gradient::Clip;
use crate::model::Purpose;
use crate::model::tuning::Tuning;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};
use undertone_accounting::schedule::{Ewpba, Passes, Shape, ewpba, shaped};
use undertone_accounting::{Accountant, epsilon};

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

/// Which model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPlan {
    /// Its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Or its name on the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// What of it is trained.
    #[serde(default = "full")]
    pub tuning: Tuning,
}

fn full() -> Tuning {
    Tuning::Full
}

/// The tasks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// A label for a text or a pair of texts.
    Classification,
    /// The next token of a text.
    LanguageModelling,
    /// What follows a prompt.
    Completion,
}

/// What it learns from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPlan {
    /// What is to be learnt.
    pub task: TaskName,
    /// The private file.
    pub train: PathBuf,
    /// The file that the trained model is measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<PathBuf>,
    /// Their format, where the extension does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Column or columns of the text.
    #[serde(default, deserialize_with = "one_or_more")]
    pub text: Vec<String>,
    /// Column of the label.
    #[serde(default = "label")]
    pub label: String,
    /// The labels; found in the training file if they are not given, and then taken to be public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Column of what is given (completion).
    #[serde(default = "prompt")]
    pub prompt: String,
    /// Column of what is to be written (completion).
    #[serde(default = "completion")]
    pub completion: String,
    /// Longest sequence.
    #[serde(default = "max_tokens")]
    pub max_tokens: usize,
    /// What becomes of longer texts in language modelling.
    #[serde(default)]
    pub long_texts: LongTexts,
    /// Column that names the author: all rows of an author are then protected together.
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

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
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

/// How privacy is ensured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// It is not.
    None,
    /// Every unit's gradient is clipped, and Gaussian noise is added to their sum.
    DpSgd,
}

/// How the noise is spread over the epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseSchedule {
    /// The same in all of them.
    #[default]
    Uniform,
    /// Falling along a line.
    Linear,
    /// Falling along half a wave.
    Cosine,
    /// Epoch-weighted, as EW-FT does.
    Ewpba,
}

/// What is guaranteed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyPlan {
    /// How.
    pub method: Method,
    /// ε that the run may spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// δ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// The noise multiplier, in place of ε.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// How each unit's gradient is bounded.
    #[serde(default = "automatic", deserialize_with = "clip_or_number")]
    pub clip: Clip,
    /// How the noise is spread over the epochs.
    #[serde(default)]
    pub schedule: NoiseSchedule,
    /// How far apart the epochs of a schedule that is not uniform are.
    #[serde(default = "step_distance")]
    pub step_distance: f64,
    /// The part of ε that ewpba starts from holding back.
    #[serde(default = "reserve")]
    pub reserve: f64,
}

fn automatic() -> Clip {
    Clip::Automatic
}
fn step_distance() -> f64 {
    2.0
}
fn reserve() -> f64 {
    1.0
}

/// A number alone is the bound of flat clipping.
fn clip_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Clip, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ClipOrNumber {
        Number(f64),
        Clip(Clip),
    }
    let read = ClipOrNumber::deserialize(deserializer).map_err(|_| {
        serde::de::Error::custom(
            "clip is \"automatic\", a number, { flat = number } or { per_layer = number }",
        )
    })?;
    Ok(match read {
        ClipOrNumber::Number(bound) => Clip::Flat(bound),
        ClipOrNumber::Clip(clip) => clip,
    })
}

/// How it learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingPlan {
    /// Passes over the data.
    pub epochs: u32,
    /// Units in a step; on average, if the run is private.
    pub batch: u64,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// How it rises and falls.
    #[serde(default)]
    pub learning_rate_schedule: RateSchedule,
    /// The part of all steps in which it rises.
    #[serde(default)]
    pub warmup: f64,
    /// The optimiser.
    #[serde(default)]
    pub optimiser: optimiser::Kind,
    /// Of SGD.
    #[serde(default = "momentum")]
    pub momentum: f32,
    /// Of Adam.
    #[serde(default = "betas")]
    pub betas: (f32, f32),
    /// Of Adam.
    #[serde(default = "adam_epsilon")]
    pub adam_epsilon: f32,
    /// Apart from the gradient.
    #[serde(default)]
    pub weight_decay: f32,
    /// Whether the model's dropout is on.
    #[serde(default)]
    pub dropout: bool,
    /// Makes the run repeatable, and not private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

fn momentum() -> f32 {
    0.9
}
fn betas() -> (f32, f32) {
    (0.9, 0.999)
}
fn adam_epsilon() -> f32 {
    1e-8
}

/// What changes time and memory, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComputePlan {
    /// The most sequences that are computed together.
    pub micro_batch: usize,
    /// The most tokens that are computed together.
    pub micro_tokens: usize,
    /// A checkpoint after so many steps; by default every five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<u64>,
}

impl Default for ComputePlan {
    fn default() -> Self {
        Self { micro_batch: 64, micro_tokens: 4096, checkpoint_every: None }
    }
}

impl Plan {
    /// Reads a run file; each of `changes` is `key=value` with the key's path, such as `privacy.epsilon=2`.
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
        let sentence = |e: toml::de::Error| {
            let line = e.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            let place = if line > 0 && changes.is_empty() { format!("line {line}: ") } else { String::new() };
            Error::plan(format!("{place}{}", e.message().replace('\n', " ")))
        };
        let mut table: toml::Table = text.parse().map_err(sentence)?;
        for change in changes {
            let Some((path, value)) = change.split_once('=') else {
                return Err(Error::plan(format!(
                    "--set {change}: write it as key=value, such as privacy.epsilon=2"
                )));
            };
            set(&mut table, path.trim(), value.trim())?;
        }
        // What a finished run adds to its plan says nothing about a new one.
        table.remove("resolved");
        let plan: Self = if changes.is_empty() {
            // From the text again, for the line in an error.
            let mut plain: toml::Table = text.parse().map_err(sentence)?;
            if plain.remove("resolved").is_some() { table.try_into() } else { toml::from_str(text) }
        } else {
            table.try_into()
        }
        .map_err(sentence)?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<()> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                return Ok(());
            }
            Err(Error::plan(format!("{name} is {value}, but must be above 0")))
        };
        if self.model.path.is_some() == self.model.hub.is_some() {
            return Err(Error::plan("[model] needs either path (a folder) or hub (a name)"));
        }
        positive("training.learning_rate", self.training.learning_rate)?;
        positive("training.adam_epsilon", f64::from(self.training.adam_epsilon))?;
        let share = |name: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                return Ok(());
            }
            Err(Error::plan(format!("{name} is {value}, but must be at least 0 and below 1")))
        };
        share("training.momentum", f64::from(self.training.momentum))?;
        share("training.betas", f64::from(self.training.betas.0))?;
        share("training.betas", f64::from(self.training.betas.1))?;
        share("training.warmup", self.training.warmup)?;
        if !(self.training.weight_decay.is_finite() && self.training.weight_decay >= 0.0) {
            return Err(Error::plan("training.weight_decay must be at least 0"));
        }
        if self.training.epochs == 0 || self.training.batch == 0 {
            return Err(Error::plan("training.epochs and training.batch must be at least 1"));
        }
        if self.compute.micro_batch == 0
            || self.compute.micro_tokens == 0
            || self.compute.checkpoint_every == Some(0)
        {
            return Err(Error::plan("the numbers in [compute] must be at least 1"));
        }
        let text_columns = match self.data.task {
            TaskName::Classification => 1..=2,
            TaskName::LanguageModelling => 1..=1,
            TaskName::Completion => 0..=0,
        };
        if !text_columns.contains(&self.data.text.len()) {
            return Err(Error::plan(match self.data.task {
                TaskName::Classification => "data.text names the column of the text, or the two of a pair",
                TaskName::LanguageModelling => "data.text names the one column of the text",
                TaskName::Completion => {
                    "completion reads data.prompt and data.completion; leave data.text out"
                }
            }));
        }
        if let Clip::Flat(bound) | Clip::PerLayer(bound) = self.privacy.clip {
            positive("privacy.clip", bound)?;
        }
        match self.privacy.method {
            Method::None => {
                if self.privacy.epsilon.is_some() || self.privacy.noise_multiplier.is_some() {
                    return Err(Error::plan(
                        "privacy.method is \"none\", which has no epsilon and no noise_multiplier; remove them, or choose dp-sgd",
                    ));
                }
            }
            Method::DpSgd => {
                if self.privacy.epsilon.is_some() == self.privacy.noise_multiplier.is_some() {
                    return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier"));
                }
                if self.privacy.delta.is_none() {
                    return Err(Error::plan(
                        "[privacy] needs delta; well below 1/(number of examples) is usual, such as 1e-5",
                    ));
                }
            }
        }
        Ok(())
    }

    /// The columns that the task reads.
    pub fn task(&self) -> Task {
        let data = &self.data;
        match data.task {
            TaskName::Classification => {
                Task::Classification { text: data.text.clone(), label: Some(data.label.clone()) }
            }
            TaskName::LanguageModelling => Task::LanguageModelling { text: data.text[0].clone() },
            TaskName::Completion => {
                Task::Completion { prompt: data.prompt.clone(), completion: data.completion.clone() }
            }
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
            Some(column) => Unit::Author { column: column.clone(), at_most: self.data.most_per_author },
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

    /// Steps, sampling rate and the noise of each epoch, for so many units.
    pub fn resolve(&self, units: usize) -> Result<Resolved> {
        let training = &self.training;
        if !self.is_private() {
            let steps = (units as u64).div_ceil(training.batch).max(1);
            return Ok(Resolved {
                units,
                steps_per_epoch: steps,
                sampling_rate: None,
                noise_multipliers: Vec::new(),
            });
        }
        let passes = Passes::over(units as u64, training.batch, training.epochs)?;
        let privacy = &self.privacy;
        let delta = privacy.delta.unwrap_or_default();
        let noise_multipliers = match (privacy.epsilon, privacy.noise_multiplier) {
            (Some(target), _) => match privacy.schedule {
                NoiseSchedule::Uniform => {
                    shaped(Shape::Uniform, &passes, 1.0, target, delta)?.noise_multipliers
                }
                NoiseSchedule::Linear => {
                    shaped(Shape::Linear, &passes, privacy.step_distance, target, delta)?.noise_multipliers
                }
                NoiseSchedule::Cosine => {
                    shaped(Shape::Cosine, &passes, privacy.step_distance, target, delta)?.noise_multipliers
                }
                NoiseSchedule::Ewpba => {
                    let asked = Ewpba {
                        epsilon: target,
                        delta,
                        step_distance: privacy.step_distance,
                        reserve: privacy.reserve,
                    };
                    ewpba(&asked, &passes)?.0.noise_multipliers
                }
            },
            (None, Some(noise)) => {
                if privacy.schedule != NoiseSchedule::Uniform {
                    return Err(Error::plan(
                        "a schedule is calibrated to epsilon; with noise_multiplier it is uniform",
                    ));
                }
                // Refuses what the accountant cannot answer for, before anything is computed.
                epsilon(&passes.compose(&[noise]), delta, Accountant::Auto)?;
                vec![noise; training.epochs as usize]
            }
            (None, None) => return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier")),
        };
        Ok(Resolved {
            units,
            steps_per_epoch: passes.steps_per_epoch,
            sampling_rate: Some(passes.sampling_rate),
            noise_multipliers,
        })
    }
}

/// What a plan comes to on its data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// Privacy units in the training file.
    pub units: usize,
    /// Steps in an epoch.
    pub steps_per_epoch: u64,
    /// The probability with which each unit joins a step; none if the run is not private.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<f64>,
    /// For each epoch; empty if the run is not private.
    pub noise_multipliers: Vec<f64>,
}

/// Sets a value at a dotted path; the value is TOML, or else text.
fn set(table: &mut toml::Table, path: &str, value: &str) -> Result<()> {
    let parsed =
        format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().filter(|key| !key.is_empty());
    let Some(last) = last else {
        return Err(Error::plan(format!("--set {path}: write the key's path, such as privacy.epsilon")));
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
        assert_eq!(changed(&["privacy.clip={ per_layer = 2.0 }"]).unwrap().privacy.clip, Clip::PerLayer(2.0));
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
            ("training.epochs=0", "at least 1"),
            ("training.learning_rate=nan", "learning_rate"),
            ("privacy.method=none", "has no epsilon"),
            ("privacy.noise_multiplier=1.0", "either epsilon or noise_multiplier"),
            ("model.hub=name", "either path"),
            ("data.text=[]", "data.text"),
            ("data.task=guessing", "guessing"),
            ("model.tuning.full.x=1", ""),
        ] {
            let error = changed(&[change]).unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains('\n'), "{change}: {error}");
        }
        let error =
            Plan::parse(&FILE.replace("batch = 1024", "batch = \"many\""), &[]).unwrap_err().to_string();
        assert!(error.contains("line "), "{error}");
    }

    #[test]
    fn the_noise_spends_the_budget_and_no_more() {
        for schedule in ["uniform", "linear", "cosine", "ewpba"] {
            let plan = changed(&[&format!("privacy.schedule={schedule}")]).unwrap();
            let resolved = plan.resolve(67_349).unwrap();
            assert_eq!((resolved.steps_per_epoch, resolved.noise_multipliers.len()), (65, 3));
            let passes = Passes::over(67_349, 1024, 3).unwrap();
            let spent =
                epsilon(&passes.compose(&resolved.noise_multipliers), 1e-5, Accountant::Auto).unwrap();
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
