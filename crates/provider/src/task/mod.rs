//! The public task: everything that an owner must know before making a release, identified by its
//! hash.

mod folder;
mod make;

pub use folder::TaskFolder;
pub use make::{TaskPlan, init};

use crate::error::{Error, Result};
use crate::hex::unhex;
use serde::{Deserialize, Serialize};
use undertone::method::local::split;
use undertone::model::layer::sanitizer::Bounding;
use undertone::model::sanitized::SanitizerConfig;
use undertone_accounting::{Accountant, Adjacency, Composition, Event, epsilon};
use undertone_run::{LearnerKind, ReleaseKind, Releases};

/// The version of task files and frames.
pub const FORMAT: u32 = 1;
/// Number of slots in a frame.
pub const SLOTS: u32 = 64;
/// Maximum length of a frame in bytes.
const LONGEST_FRAME: usize = 16 << 20;
/// Maximum total size of pre(·) in bytes.
const MOST_OF_PRE: u64 = 64 << 30;

/// A task, as in `task.json`. Its hash is the hash of the file's bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Version of this file and of the frames.
    pub format: u32,
    /// Display name.
    pub name: String,
    /// The base model of pre(·).
    pub base: BaseModel,
    /// Number of columns of a text: 1, or 2 for pairs.
    pub texts: usize,
    /// Names of the labels, in the order of their numbers.
    pub labels: Vec<String>,
    /// Maximum number of tokens of a text; longer ones are cut.
    pub max_tokens: usize,
    /// Where noise is added, and how a text's embedding is bounded before that.
    pub sanitizer: SanitizerConfig,
    /// Releases of an embedding: their number and noise.
    pub releases: Releases,
    /// ε of the labels' randomized response; `None` if labels are sent unchanged.
    pub label_epsilon: Option<f64>,
    /// ε of all releases of one text and its label, at `delta`.
    pub epsilon: f64,
    /// The δ at which ε is stated.
    pub delta: f64,
    /// How the provider trains.
    pub learn: LearnerKind,
    /// Number of values in a release.
    pub width: usize,
    /// Number of slots in a frame.
    pub slots: u32,
    /// The public key (Ed25519) for the provider's receipts.
    pub key: String,
    /// The files of pre(·).
    pub files: Vec<PublicFile>,
}

/// The base model, by its name and the hashes of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseModel {
    pub name: String,
    /// The revision on the Hugging Face Hub, if it comes from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// SHA-256 of configuration, tokenizer and weights, by file.
    pub files: Vec<PublicFile>,
}

/// A file with its length and SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

impl Task {
    /// Parses a task, and rejects one whose releases would cost more than stated. Its author need
    /// not be trusted.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let task: Self = serde_json::from_slice(bytes)
            .map_err(|e| Error::mistake(format!("the task cannot be read: {e}")))?;
        match task.problem() {
            None => Ok(task),
            Some(problem) => Err(Error::mistake(format!("the task is refused: {problem}"))),
        }
    }

    fn problem(&self) -> Option<&'static str> {
        let sanitizer = &self.sanitizer;
        if self.format != FORMAT {
            return Some("it has another format; use the version of undertone that it is for");
        }
        let name_is_plain = |name: &str| {
            (1..=200).contains(&name.chars().count()) && !name.chars().any(char::is_control)
        };
        if !name_is_plain(&self.name) || !self.labels.iter().all(|label| name_is_plain(label)) {
            return Some("a name is empty, long or has control characters");
        }
        if !(2..=10_000).contains(&self.labels.len()) || !matches!(self.texts, 1 | 2) {
            return Some("it needs one or two columns of text, and 2 to 10000 labels");
        }
        if (1..self.labels.len()).any(|i| self.labels[..i].contains(&self.labels[i])) {
            return Some("it has a label twice");
        }
        if !(4..=1_000_000).contains(&self.max_tokens) {
            return Some("max_tokens is out of range");
        }
        if !sanitizer.is_in_range() {
            return Some("norm, squash and direction of its sanitizer must be from 1e-10 to 1e10");
        }
        if sanitizer.bounding == Bounding::Box {
            return Some("nothing bounds the norm of an embedding");
        }
        let Some(rows) = sanitizer.rows.in_every_release() else {
            return Some("the number of released rows would show the length of a text");
        };
        if self.width == 0 || !self.width.is_multiple_of(rows) || self.slots != SLOTS {
            return Some("its frames have another layout");
        }
        if self.width > LONGEST_FRAME / (4 * SLOTS as usize) {
            return Some("its frames are too long");
        }
        self.problem_of_noise().or_else(|| self.problem_of_files())
    }

    fn problem_of_noise(&self) -> Option<&'static str> {
        let releases = &self.releases;
        let noise = &releases.noise_multipliers;
        if !(1..=1_000).contains(&noise.len()) || releases.records_per_unit != 1 {
            return Some("it has no epoch, or more than 1000, or several texts a unit");
        }
        // With a norm in range, both the noise and a row in units of the noise are far from the
        // limits of f32.
        if !noise.iter().all(|noise| (1e-3..=1e6).contains(noise)) {
            return Some("its noise is out of range");
        }
        if Some(releases.sensitivity) != self.sanitizer.sensitivity() {
            return Some("its sensitivity is not that of its sanitizer");
        }
        let rises = noise.windows(2).any(|pair| pair[0] < pair[1]);
        if releases.release == ReleaseKind::Path && rises {
            return Some("the noise of a path of releases rises");
        }
        if !self.label_epsilon.is_none_or(|epsilon| (1e-4..=100.0).contains(&epsilon)) {
            return Some("label_epsilon is out of range");
        }
        if !(self.delta > 0.0 && self.delta < 0.5) {
            return Some("delta is out of range");
        }
        match self.epsilon_at(self.delta) {
            Ok(epsilon) if epsilon <= self.epsilon * (1.0 + 1e-9) => None,
            Ok(_) => Some("its releases cost more ε than it states"),
            Err(_) => Some("its releases cannot be accounted for"),
        }
    }

    fn problem_of_files(&self) -> Option<&'static str> {
        if unhex::<32>(&self.key).is_none() {
            return Some("its key is not one of Ed25519");
        }
        let all = self.files.iter().chain(&self.base.files);
        for file in all {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if file.name.is_empty()
                || file.name.len() > 100
                || file.name.starts_with('.')
                || !file.name.chars().all(plain)
            {
                return Some("a file name is not a plain name");
            }
            if unhex::<32>(&file.sha256).is_none() {
                return Some("a file has no SHA-256");
            }
        }
        let names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let needed = ["config.json", "model.safetensors", "sanitizer.json", "tokenizer.json"];
        if !needed.iter().all(|name| names.contains(name)) || names.len() > 32 {
            return Some("a file of pre(·) is missing, or there are too many");
        }
        let bytes = self.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes));
        if bytes.is_none_or(|bytes| bytes > MOST_OF_PRE) {
            return Some("pre(·) is larger than 64 GiB");
        }
        None
    }

    /// Number of releases per text: one, or one per epoch.
    pub fn epochs(&self) -> usize {
        match self.releases.release {
            ReleaseKind::Once => 1,
            ReleaseKind::Path | ReleaseKind::Fresh => self.releases.noise_multipliers.len(),
        }
    }

    /// The events of all releases of one text and its label.
    pub fn events(&self) -> Vec<Event> {
        let categories = self.labels.len() as u64;
        let label =
            self.label_epsilon.map(|epsilon| Event::RandomizedResponse { epsilon, categories });
        let rows = split::events(&self.releases).into_iter().map(|(_, event)| event);
        label.into_iter().chain(rows).collect()
    }

    /// The noise multiplier of a query: that of the last epoch.
    pub fn query_noise(&self) -> f64 {
        self.releases.noise_multipliers.last().copied().unwrap_or(f64::NAN)
    }

    /// The event of one query.
    pub fn query_event(&self) -> Event {
        Event::Gaussian {
            noise_multiplier: self.query_noise(),
            sensitivity: self.releases.sensitivity,
        }
    }

    /// A certified upper bound on ε of all releases of one text and its label.
    pub fn epsilon_at(&self, delta: f64) -> Result<f64> {
        let mut all = Composition::new(Adjacency::ReplaceOne);
        self.events().into_iter().for_each(|event| all.push(event, 1));
        Ok(epsilon(&all, delta, Accountant::Auto)?.epsilon.upper)
    }

    /// The promise to an owner, in one sentence.
    pub fn promise(&self) -> String {
        let how = match self.releases.release {
            ReleaseKind::Once => "one perturbed embedding",
            ReleaseKind::Path => "a perturbed embedding in each epoch, as one path of noise,",
            ReleaseKind::Fresh => "a newly perturbed embedding in each epoch",
        };
        let label = match self.label_epsilon {
            Some(_) => "one randomized label",
            None => "its label, as it is",
        };
        format!(
            "each row sends {how} and {label}: ({}, {:e})-differentially private for replacing \
             one row, against a provider who sees every release and knows whose it is",
            undertone_accounting::rounded_up(self.epsilon),
            self.delta
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use undertone::model::layer::sanitizer::{NoiseLayer, Rows};

    /// A small task.
    pub fn task() -> Task {
        let file = |name: &str| PublicFile {
            name: name.into(),
            bytes: 3,
            sha256: crate::hex::hex(&crate::hex::hash(b"abc")),
        };
        let names = ["config.json", "model.safetensors", "sanitizer.json", "tokenizer.json"];
        Task {
            format: FORMAT,
            name: "a task".into(),
            base: BaseModel { name: "bert".into(), revision: None, files: Vec::new() },
            texts: 1,
            labels: vec!["bad".into(), "good".into()],
            max_tokens: 16,
            sanitizer: SanitizerConfig {
                noise_layer: NoiseLayer::Output,
                rows: Rows::Mean,
                dims: vec![4],
                activation: None,
                centered: false,
                decoded: false,
                squash: None,
                bounding: Bounding::Normalize,
                norm: 1.0,
                direction: None,
                calibrated: false,
                noise_std: 1.5,
            },
            releases: Releases {
                release: ReleaseKind::Once,
                noise_multipliers: vec![1.6],
                sensitivity: 2.0,
                records_per_unit: 1,
            },
            label_epsilon: Some(2.0),
            epsilon: 9.0,
            delta: 1e-5,
            learn: LearnerKind::Discriminant,
            width: 4,
            slots: SLOTS,
            key: crate::hex::hex(&[1; 32]),
            files: names.map(file).to_vec(),
        }
    }

    fn parsed(change: impl FnOnce(&mut Task)) -> Result<Task> {
        let mut task = task();
        change(&mut task);
        Task::parse(&serde_json::to_vec(&task).unwrap())
    }

    #[test]
    fn a_sound_task_is_read() {
        assert_eq!(parsed(|_| ()).unwrap(), task());
    }

    /// An untrusted provider writes the task: anything that would make a release cost more than
    /// accounted for is refused.
    #[test]
    fn a_forged_task_is_refused() {
        type Change = fn(&mut Task);
        let cases: [(Change, &str); 24] = [
            (|t| t.format = 2, "format"),
            (|t| t.epsilon = 1.0, "more ε"),
            (|t| t.releases.noise_multipliers = vec![0.1], "more ε"),
            (|t| t.releases.noise_multipliers = vec![1e-9], "noise"),
            (|t| t.releases.noise_multipliers = vec![f64::MAX], "noise"),
            (|t| t.releases.noise_multipliers = vec![], "epoch"),
            (|t| t.releases.sensitivity = 1.0, "sensitivity"),
            (|t| t.releases.records_per_unit = 2, "unit"),
            (|t| t.sanitizer.bounding = Bounding::Box, "bounds"),
            (|t| t.sanitizer.rows = Rows::Tokens(None), "length"),
            (|t| t.sanitizer.rows = Rows::Padded(16), "length"),
            (|t| t.sanitizer.norm = 0.0, "1e-10 to 1e10"),
            (|t| t.sanitizer.norm = 1e29, "1e-10 to 1e10"),
            (|t| t.sanitizer.norm = 1e-38, "1e-10 to 1e10"),
            (|t| t.sanitizer.squash = Some(1e-30), "1e-10 to 1e10"),
            (|t| t.sanitizer.direction = Some(vec![-1.0; 4]), "1e-10 to 1e10"),
            (|t| t.sanitizer.direction = Some(vec![1.0, 1.0, 3e38, 1.0]), "1e-10 to 1e10"),
            (|t| t.label_epsilon = Some(1e9), "label_epsilon"),
            (|t| t.delta = 0.9, "delta"),
            (|t| t.labels = vec!["a".into(), "a".into()], "twice"),
            (|t| t.name = "\u{1b}[2J".into(), "control"),
            (|t| t.files[0].name = "../config.json".into(), "plain"),
            (|t| t.files[0].bytes = u64::MAX, "64 GiB"),
            (|t| t.slots = 32, "layout"),
        ];
        for (change, about) in cases {
            let said = parsed(change).unwrap_err().to_string();
            assert!(said.contains(about), "{said}, not {about}");
        }
        let mut rising = task();
        rising.releases.release = ReleaseKind::Path;
        rising.releases.noise_multipliers = vec![1.6, 2.0];
        let said = Task::parse(&serde_json::to_vec(&rising).unwrap()).unwrap_err().to_string();
        assert!(said.contains("rises"), "{said}");
        let unknown = String::from_utf8(serde_json::to_vec(&task()).unwrap()).unwrap();
        let unknown = unknown.replacen('{', "{\"more\":1,", 1);
        assert!(Task::parse(unknown.as_bytes()).is_err());
    }

    /// ε covers all epochs together.
    #[test]
    fn more_epochs_of_fresh_noise_cost_more() {
        let of = |kind, epochs: usize| {
            let mut task = task();
            task.releases.release = kind;
            task.releases.noise_multipliers = vec![1.6; epochs];
            task.epsilon_at(1e-5).unwrap()
        };
        let once = of(ReleaseKind::Once, 1);
        assert!((of(ReleaseKind::Once, 5) - once).abs() < 1e-9);
        assert!((of(ReleaseKind::Path, 5) - once).abs() < 1e-6);
        assert!(of(ReleaseKind::Fresh, 2) > once + 1.0);
    }
}
