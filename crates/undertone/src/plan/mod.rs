//! The checked run file. `RunFile` is what serde reads; in a `Plan`, defaults that depend on the
//! method are filled in, and contradictory settings have been rejected.

pub(crate) mod check;
mod population;
mod recipe;
mod resolve;

pub use population::Population;
pub use recipe::{PublicFacts, recipe};
pub use resolve::{ResolvedPlan, units_of};

use crate::data::{HoldOut, Part, PrivacyUnit, Task};
use crate::error::{Error, Result};
use crate::method::central::CentralPlan;
use crate::method::local::LocalPlan;
use crate::model::TaskHead;
use crate::step::optimizer;
use crate::tensor::Precision;
use std::path::Path;
use undertone_run::{
    ComputeSection, DataSection, EvaluationSection, ModelSection, PrecisionName, PrivacySection,
    Registered, RunFile, SynthesisSection, TaskName, TrainingSection, Tuning,
};

/// A checked run file.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The base model and its trainable parameters.
    pub model: ModelSection,
    /// The data files, their columns and the privacy unit.
    pub data: DataSection,
    /// The hyperparameters of training.
    pub training: TrainingSection,
    /// Metrics on private validation data that are released.
    pub evaluation: EvaluationSection,
    /// Settings that only affect time and memory.
    pub compute: ComputeSection,
    /// The method and its plan.
    pub method: Method,
    /// Synthetic rows to sample from the trained model.
    pub synthesis: Option<SynthesisSection>,
    /// The reservation of the run's budget, made before anything is read. Not part of a run file.
    pub registered: Option<Registered>,
    /// The privacy section as written, for plan.toml.
    privacy: PrivacySection,
}

/// Non-private fine-tuning, central DP or local DP.
// A run has one plan, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    NonPrivate,
    /// Central DP: a trusted curator adds noise to sums of clipped gradients.
    Central(CentralPlan),
    /// Local DP: owners perturb their own embeddings.
    Local(Box<LocalPlan>),
}

impl Plan {
    /// Reads and checks a run file. Each of `changes` is `key=value` with the key's path, such as
    /// `privacy.epsilon=2`.
    pub fn read(path: &Path, changes: &[String]) -> Result<Self> {
        Self::check(RunFile::read(path, changes)?).map_err(|e| match e {
            Error::Run(undertone_run::Error::RunFile(sentence)) => Error::folder(path, sentence),
            other => other,
        })
    }

    /// Like [`Plan::read`], but takes the text of the file.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self> {
        Self::check(RunFile::parse(text, changes)?)
    }

    /// The run file, as stored in plan.toml and summary.json.
    pub fn file(&self) -> RunFile {
        RunFile {
            format: None,
            model: self.model.clone(),
            data: self.data.clone(),
            privacy: self.privacy.clone(),
            training: self.training.clone(),
            evaluation: self.evaluation.clone(),
            compute: self.compute.clone(),
            synthesis: self.synthesis.clone(),
        }
    }

    /// The task, with the columns that it reads.
    pub fn task(&self) -> Task {
        task_of(&self.data)
    }

    /// The task head that the model must have.
    pub fn task_head(&self) -> TaskHead {
        TaskHead::of(self.data.task)
    }

    /// Whether the method adds noise.
    pub fn is_private(&self) -> bool {
        self.method != Method::NonPrivate
    }

    /// δ of a private run.
    pub fn delta(&self) -> Option<f64> {
        match &self.method {
            Method::NonPrivate => None,
            Method::Central(central) => Some(central.delta),
            Method::Local(local) => Some(local.delta),
        }
    }

    /// In paper mode, the release that the method makes but the ledger does not contain.
    pub fn unaccounted(&self) -> Option<&'static str> {
        match &self.method {
            Method::NonPrivate => None,
            Method::Central(central) => central.unaccounted(),
            Method::Local(local) => local.unaccounted(),
        }
    }

    /// The declared number of privacy units; `None` if the training file's own number is treated as
    /// public.
    pub fn declared_units(&self) -> Option<u64> {
        self.privacy.units
    }

    /// The number of privacy units from which sampling rate, steps and noise are computed: the
    /// declared number, or else `counted`, that of the training file.
    pub fn units(&self, counted: usize) -> usize {
        self.privacy.units.map_or(counted, |declared| declared as usize)
    }

    /// The privacy unit: a row, or all rows of an author.
    pub fn unit(&self) -> PrivacyUnit {
        match &self.data.author {
            Some(column) => {
                PrivacyUnit::Author { column: column.clone(), at_most: self.data.most_per_author }
            }
            None => PrivacyUnit::Row,
        }
    }

    /// The units of the training file that are used for training: all, or all except those held
    /// out.
    pub fn trained_part(&self) -> Part {
        self.data.hold_out.map_or(Part::All, |share| Part::Without(HoldOut(share)))
    }

    /// The precision requested by the run file.
    pub fn precision(&self) -> Option<Precision> {
        self.compute.precision.map(precision_of)
    }

    /// The optimizer's hyperparameters.
    pub fn optimizer(&self) -> optimizer::Settings {
        let training = &self.training;
        optimizer::Settings {
            kind: training.optimizer,
            momentum: training.momentum,
            betas: training.betas,
            epsilon: training.adam_epsilon,
            weight_decay: training.weight_decay,
            b_rate: match &self.model.tuning {
                Tuning::Lora(lora) => lora.b_rate as f32,
                _ => 1.0,
            },
        }
    }
}

/// The precision with the name given in a run file or on the command line.
pub fn precision_of(name: PrecisionName) -> Precision {
    match name {
        PrecisionName::F32 => Precision::F32,
        PrecisionName::Tf32 => Precision::Tf32,
        PrecisionName::Bf16 => Precision::Bf16,
    }
}

/// The task of a run file's data, and the columns that it reads.
pub fn task_of(data: &DataSection) -> Task {
    match data.task {
        TaskName::Classification => {
            Task::Classification { text: data.text.clone(), label: Some(data.label.clone()) }
        }
        TaskName::LanguageModeling => {
            Task::LanguageModeling { text: data.text.first().cloned().unwrap_or_default() }
        }
        TaskName::MaskedLanguageModeling => {
            Task::MaskedLanguageModeling { text: data.text.first().cloned().unwrap_or_default() }
        }
        TaskName::Completion => {
            Task::Completion { prompt: data.prompt.clone(), completion: data.completion.clone() }
        }
        TaskName::Chat => Task::Chat { messages: data.messages.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
optimizer = "adamw"
"#;

    fn changed(changes: &[&str]) -> Result<Plan> {
        Plan::parse(FILE, &changes.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn mistakes_are_named() {
        for (changes, sentence) in [
            (&["privacy.noise_multiplier=1.0"][..], "either epsilon or noise_multiplier"),
            (&["model.hub=name"], "either path"),
            (&["data.text=[]"], "data.text"),
            (&["privacy.mode=paper"], "as published"),
            (&["privacy.method=anadp", "privacy.anadp.range=[2.0, 4.0]"], "anadp.range"),
            (&["privacy.method=anadp", "privacy.anadp.quantiles=[0.5, 1.5]"], "anadp.quantiles"),
            (&["privacy.method=rap-ft", "privacy.rap_ft.irrelevance=0.2"], "irrelevance"),
            (&["privacy.method=rap-ft", "model.tuning=full"], "model.tuning"),
            (&["privacy.method=mvg", "privacy.local.bound=box"], "a box does not bound"),
            (&["privacy.method=dp-forward", "data.task=language-modeling"], "classification"),
        ] {
            let error = changed(changes).unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains('\n'), "{changes:?}: {error}");
        }
        let none = FILE
            .replace("\"dp-sgd\"", "\"none\"")
            .replace("delta = 1e-5\nclip = \"automatic\"\nschedule = \"uniform\"\n", "");
        let error = Plan::parse(&none, &[]).unwrap_err().to_string();
        assert!(error.contains("privacy.epsilon is for private methods"), "{error}");
    }

    /// Every accepted key has an effect: two values of it give two different plans. Tested over all
    /// keys of [privacy], all methods and both modes.
    #[test]
    fn no_key_is_accepted_and_ignored() {
        let lora = "model.tuning={ lora = { rank = 8 } }";
        // A key, two values, and the other settings that it needs to have an effect.
        let keys: [(&str, &str, &str, &[&str]); 56] = [
            ("epsilon", "2", "4", &[]),
            ("delta", "1e-5", "1e-6", &[]),
            ("noise_multiplier", "1", "2", &["-privacy.epsilon"]),
            ("noise_multipliers", "[1.0, 1.0, 1.0]", "[1.0, 1.0, 2.0]", &["-privacy.epsilon"]),
            ("clip", "1", "2", &[]),
            ("sampling", "users", "examples", &["data.author=who"]),
            ("schedule", "linear", "cosine", &[]),
            ("schedule", "linear", "cosine", &["privacy.local.release=fresh"]),
            ("step_distance", "2", "3", &["privacy.schedule=linear"]),
            ("reserve", "0.5", "0.7", &["privacy.schedule=ewpba"]),
            ("anadp.beta1", "0.5", "0.6", &[]),
            ("anadp.beta2", "0.5", "0.6", &[]),
            ("anadp.alpha", "0.4", "0.6", &[]),
            ("anadp.quantiles", "[0.75, 0.25]", "[0.8, 0.25]", &[]),
            ("anadp.range", "[0.25, 4.0]", "[0.25, 5.0]", &[]),
            ("anadp.form", "element", "factored", &[]),
            ("rap_ft.irrelevance", "0.6", "0.7", &[]),
            ("rap_ft.relevance", "{ public = \"a\" }", "{ public = \"b\" }", &[]),
            ("rap_ft.examples", "10", "20", &[]),
            ("rap_ft.examples", "10", "20", &["privacy.rap_ft.relevance={ public = \"a\" }"]),
            ("rap_ft.initial", "naive", "{ top_k = 3 }", &[]),
            ("rap_ft.initial", "naive", "{ top_k = 3 }", &["data.task=language-modeling"]),
            ("rap_ft.alpha", "1", "2", &[]),
            ("rap_ft.alpha", "1", "2", &["privacy.rap_ft.rule=lrp-0"]),
            ("rap_ft.rule", "alpha-beta", "lrp-0", &[]),
            ("paper.bias_in_z", "true", "false", &[]),
            ("rap_ft.probes", "1", "2", &[]),
            (
                "rap_ft.relevance",
                "{ noised = { share = 0.1, examples = 9, clip = 1.0 } }",
                "{ noised = { share = 0.1, examples = 9, clip = 2.0 } }",
                &[],
            ),
            ("adaclip.beta", "0.5", "0.6", &[]),
            ("adaclip.exponent", "0.5", "0.6", &[]),
            ("adaclip.range", "[0.25, 4.0]", "[0.25, 5.0]", &[]),
            ("local.after", "1", "output", &[]),
            ("local.rows", "first", "last", &[]),
            ("local.bound", "clip", "normalize", &[]),
            ("local.release", "path", "fresh", &[]),
            ("local.encoder", "orthogonal", "trained", &[]),
            ("local.encoder", "orthogonal", "pca", &["privacy.local.public=a"]),
            ("local.dims", "[4]", "[5]", &[]),
            ("local.dims", "[4]", "[5]", &["privacy.local.encoder=orthogonal"]),
            ("local.activation", "tanh", "gelu", &[]),
            (
                "local.activation",
                "tanh",
                "gelu",
                &["privacy.local.encoder=autoencoder", "privacy.local.public=a"],
            ),
            ("local.lengths", "hidden", "public", &[]),
            ("local.lengths", "hidden", "public", &["privacy.local.rows=tokens"]),
            ("paper.noise_is", "norm", "sensitivity", &[]),
            ("local.label_epsilon", "0.5", "0.6", &[]),
            ("local.learn", "plain", "gradient", &[]),
            ("local.adapt", "{ share = 0.3 }", "{ share = 0.4 }", &["model.tuning=head"]),
            ("local.adapt", "{ public = \"a\" }", "{ public = \"b\" }", &["model.tuning=head"]),
            ("mvg.width", "20", "30", &[]),
            ("mvg.shift", "0", "0.5", &[]),
            ("mvg.spread", "0.2", "0.3", &[]),
            ("mvg.epsilon_min", "1", "2", &[]),
            ("mvg.epsilon_max", "10", "20", &[]),
            ("mvg.attention", "position", "atten-dp", &[]),
            ("mvg.attention_epsilon", "1", "2", &["privacy.mvg.attention=atten-dp"]),
            ("mvg.attention_examples", "10", "20", &["privacy.mvg.attention=atten-dp"]),
        ];
        let methods =
            ["none", "dp-sgd", "anadp", "rap-ft", "adaclip", "dp-forward", "ew-ft", "mvg"];
        let (mut accepted, mut refused) = (0, 0);
        for method in methods {
            for mode in ["proved", "paper"] {
                let method_key = format!("privacy.method={method}");
                let mode_key = format!("privacy.mode={mode}");
                let mut base = vec!["-privacy.clip", "-privacy.schedule", &method_key];
                match (method, mode) {
                    ("none", "paper") | ("dp-sgd" | "adaclip", "paper") => continue,
                    ("none", _) => base.extend(["-privacy.epsilon", "-privacy.delta"]),
                    ("mvg", "paper") => base.extend(["-privacy.epsilon", &mode_key]),
                    _ => base.push(&mode_key),
                }
                base.push(lora);
                changed(&base).unwrap_or_else(|e| panic!("{method}, {mode}: {e}"));
                for (key, first, second, more) in &keys {
                    let without = |key: &str| match method {
                        "none" => key == "-privacy.epsilon",
                        "mvg" => mode == "paper" && key == "-privacy.epsilon",
                        _ => false,
                    };
                    let more: Vec<&str> =
                        more.iter().copied().filter(|change| !without(change)).collect();
                    let plan = |value: &str| {
                        let change = format!("privacy.{key}={value}");
                        changed(&[&base[..], &more, &[&change]].concat())
                    };
                    match (plan(first), plan(second)) {
                        (Ok(first), Ok(second)) => {
                            accepted += 1;
                            assert_ne!(first.method, second.method, "{method}, {mode}, {key}");
                        }
                        (Err(error), _) | (_, Err(error)) => {
                            refused += 1;
                            let error = error.to_string();
                            assert!(!error.contains('\n'), "{method}, {mode}, {key}: {error}");
                        }
                    }
                }
            }
        }
        assert!(accepted > 120 && refused > 200, "{accepted} accepted, {refused} refused");
    }

    #[test]
    fn keys_without_effect_are_refused() {
        let mvg = ["privacy.method=mvg", "privacy.mode=paper"];
        let none = ["-privacy.epsilon", "-privacy.schedule"];
        let published = |more: &[&'static str]| [&mvg[..], &none, more].concat();
        let with = |key: &str| -> Vec<&str> {
            let kept = none.into_iter().filter(|removed| *removed != key);
            mvg.into_iter().chain(kept).collect()
        };
        for (changes, sentence) in [
            (with("-privacy.epsilon"), "privacy.epsilon is for methods other than mvg"),
            (with("-privacy.schedule"), "privacy.schedule is for methods other than mvg"),
            (published(&["privacy.local.bound=clip"]), "a bounded ReLU keeps in a box"),
            (published(&["privacy.local.dims=[4]"]), "encoders of dp-forward and ew-ft"),
            (published(&["privacy.paper.noise_is=norm"]), "dp-forward and ew-ft"),
            (published(&["privacy.local.after=3"]), "after must be \"output\""),
            (vec!["privacy.method=mvg", "privacy.local.after=3"], "after must be \"output\""),
            (
                vec!["privacy.method=dp-forward", "privacy.local.dims=[4]"],
                "encoders of dp-forward and ew-ft",
            ),
            (
                vec!["privacy.method=dp-forward", "privacy.local.public=a"],
                "privacy.local.public is for",
            ),
            (
                vec![
                    "privacy.method=rap-ft",
                    "privacy.mode=paper",
                    "privacy.rap_ft.relevance={ public = \"a\" }",
                ],
                "raw maps",
            ),
            (
                vec!["privacy.method=rap-ft", "privacy.rap_ft.probes=4", "model.tuning=bitfit"],
                "whose weights begin at zero",
            ),
            (
                vec!["privacy.method=rap-ft", "privacy.rap_ft.initial=naive"],
                "language-modeling, completion and chat",
            ),
            (
                vec![
                    "privacy.method=dp-forward",
                    "privacy.mode=paper",
                    "privacy.local.release=once",
                    "privacy.schedule=linear",
                ],
                "one noise multiplier",
            ),
        ] {
            let error = changed(&changes).unwrap_err().to_string();
            assert!(error.contains(sentence), "{changes:?}: {error}");
        }
        // In paper mode, too, a path's noise must not increase.
        let rising = [
            "privacy.method=dp-forward",
            "privacy.mode=paper",
            "privacy.local.release=path",
            "privacy.schedule=linear",
            "privacy.step_distance=0.5",
        ];
        let plan = changed(&rising).unwrap();
        let error = crate::method::calibrate(&plan, 67_349, 2).unwrap_err().to_string();
        assert!(error.contains("must not rise"), "{error}");
    }

    #[test]
    fn the_noise_spends_the_budget_and_no_more() {
        for schedule in ["uniform", "linear", "exponential", "cosine", "step", "ewpba"] {
            let plan = changed(&[&format!("privacy.schedule={schedule}")]).unwrap();
            let resolved = crate::method::calibrate(&plan, 67_349, 2).unwrap();
            assert_eq!((resolved.steps_per_epoch, resolved.noise_multipliers.len()), (65, 3));
            let passes = Passes::over(67_349, 1024, 3).unwrap();
            let all = passes.compose(&resolved.noise_multipliers);
            let spent = epsilon(&all, 1e-5, Accountant::Auto).unwrap().epsilon;
            assert!(spent.upper <= 8.0 && spent.upper > 7.9, "{schedule}: {spent:?}");
        }
        let plan = changed(&[]).unwrap();
        assert!(crate::method::calibrate(&plan, 1000, 2).is_err(), "a batch larger than the data");
    }
}
