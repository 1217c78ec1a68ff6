//! audit.json: results of attacks on a run, each with its confidence interval.

use crate::numbers::null_as_nan;
use crate::{Error, Result};
use crate::{FORMAT_VERSION, check_format, read_settings, write_json};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Results of attacks on a run; each is present if that attack was run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Version of the folder's layout; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    /// Membership inference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub membership: Vec<Membership>,
    /// Source of the non-members for membership inference; absent in files written before 0.3.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_members: Option<NonMembers>,
    /// The lower bound on ε from one training run with canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_run: Option<OneRunAudit>,
    /// Exposure of planted secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposure: Vec<SecretExposure>,
    /// Exposure of secrets found in the training texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_exposure: Vec<ExposureOfKind>,
    /// Private entities that the model generates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extraction: Vec<Extraction>,
    /// Masked private entities that the model fills in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconstruction: Vec<ReconstructionOfKind>,
    /// Repeated trials of attacks, each with its own seed; the fields above hold the first trial.
    #[serde(default, skip_serializing_if = "Trials::is_empty")]
    pub trials: Trials,
    /// Each attack on the run, on a non-private run and on the pretrained model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Figure>,
    /// Results of attacks that this version does not know, preserved as is.
    #[serde(flatten)]
    pub others: serde_json::Map<String, serde_json::Value>,
}

impl Audit {
    /// Whether no attack has been run.
    pub fn is_empty(&self) -> bool {
        let Self {
            membership,
            one_run,
            exposure,
            found_exposure,
            extraction,
            reconstruction,
            all,
            ..
        } = self;
        membership.is_empty()
            && one_run.is_none()
            && exposure.is_empty()
            && found_exposure.is_empty()
            && extraction.is_empty()
            && reconstruction.is_empty()
            && all.is_empty()
    }

    /// Reads the file; returns an empty audit if it does not exist. A damaged file is an error,
    /// because overwriting it would lose its results.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match read_settings(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(Error::io(path)(e)),
        };
        let read: Self = serde_json::from_str(&text).map_err(|e| {
            Error::folder(path, format!("is damaged: {e}; move it away and audit again"))
        })?;
        check_format(path, read.format)?;
        Ok(read)
    }

    /// Reads the file, changes it and writes it back, keeping the results of other attacks.
    pub fn update(path: &Path, change: impl FnOnce(&mut Self)) -> Result<()> {
        let mut audit = Self::read(path)?;
        change(&mut audit);
        audit.format = Some(FORMAT_VERSION);
        write_json(path, &audit)
    }
}

/// Trials by attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// Membership inference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub membership: Vec<Trial<Membership>>,
    /// Private entities that the model generates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extraction: Vec<Trial<Extraction>>,
    /// Masked private entities that the model fills in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconstruction: Vec<Trial<ReconstructionOfKind>>,
}

impl Trials {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One trial of an attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial<T> {
    /// Seed of all randomness in the trial.
    pub seed: u64,
    /// Results of the trial.
    pub found: Vec<T>,
}

/// An estimate with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower confidence limit.
    #[serde(deserialize_with = "null_as_nan")]
    pub lower: f64,
    /// Point estimate.
    #[serde(deserialize_with = "null_as_nan")]
    pub estimate: f64,
    /// Upper confidence limit.
    #[serde(deserialize_with = "null_as_nan")]
    pub upper: f64,
}

impl Interval {
    /// Whether a number lies in the interval.
    pub fn contains(&self, number: f64) -> bool {
        (self.lower..=self.upper).contains(&number)
    }
}

/// Source of the non-members for membership inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NonMembers {
    /// Units of the training file that the run held out.
    HeldOut,
    /// The run's validation file.
    Validation,
    /// A file named for the audit.
    File,
}

impl NonMembers {
    /// A caveat about comparing with these non-members.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::HeldOut => {
                "The non-members are units of the training file that the run held out \
                 (data.hold_out)."
            }
            Self::Validation => {
                "The non-members are the validation file: a difference may show a shift between \
                 the two files rather than membership. To avoid this, hold out units of the \
                 training file with data.hold_out."
            }
            Self::File => {
                "The non-members are another file: a difference may show a shift between the two \
                 files rather than membership."
            }
        }
    }
}

/// How well a membership inference attack distinguishes members from non-members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    /// The attack's name.
    pub attack: String,
    /// Area under the ROC curve; ½ is random guessing.
    pub auc: Interval,
    /// True positive rate at a false positive rate of 0.1 %.
    pub rate_at_0_1_percent: Interval,
    /// True positive rate at a false positive rate of 1 %.
    pub rate_at_1_percent: Interval,
    /// Number of examples that were trained on.
    pub members: usize,
    /// Number of examples that were not trained on.
    pub others: usize,
    /// (false positive rate, true positive rate) pairs, thinned for plotting.
    #[serde(default)]
    pub roc: Vec<(f64, f64)>,
}

impl Membership {
    /// Name of the attack that uses only the pretrained model: any success reflects a difference
    /// between the two files, not membership.
    pub const OF_PRETRAINED: &str = "the pretrained model alone";

    /// Whether this is the attack on the pretrained model.
    pub fn is_of_pretrained(&self) -> bool {
        self.attack == Self::OF_PRETRAINED
    }
}

/// The lower bound on ε from a single training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneRun {
    /// Number of canaries, each included in the training data by a fair coin.
    pub canaries: u64,
    /// Number of guesses: canaries on which the attack does not abstain.
    pub guesses: u64,
    /// Number of correct guesses.
    pub right: u64,
    /// Lower bound on ε at the stated confidence, for any mechanism.
    pub epsilon_lower: f64,
    /// Lower bound on ε at the stated confidence, assuming that the trade-off curve of training is
    /// that of a Gaussian mechanism.
    #[serde(default)]
    pub epsilon_lower_if_gaussian: f64,
    /// The δ at which the bounds on ε hold.
    pub delta: f64,
    /// Confidence level of the bounds, in (0, 1).
    pub confidence: f64,
}

/// The lower bound, compared with the ledger's guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneRunAudit {
    /// The lower bound.
    #[serde(flatten)]
    pub found: OneRun,
    /// Whether the guesses contradict the privacy curve that the ledger proves; `None` if there is
    /// no guarantee.
    pub promised_curve_is_refuted: Option<bool>,
}

/// Exposure of a planted secret: its likelihood rank among all candidates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exposure {
    /// log₂ of the number of candidates minus log₂ of the rank: the bits of the secret that the
    /// model reveals.
    pub bits: f64,
    /// The largest possible exposure, log₂ of the number of candidates.
    pub most: f64,
    /// 1 for the most likely candidate; an estimate if the candidates are a sample.
    #[serde(default)]
    pub rank: f64,
    /// Whether every candidate was ranked rather than a sample.
    pub exact: bool,
}

/// Exposure of one planted secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretExposure {
    /// The text around the secret.
    pub text: String,
    /// In the trained model.
    pub trained: Exposure,
    /// In the pretrained model.
    #[serde(rename = "pretrained")]
    pub pretrained: Exposure,
}

/// Exposure in one model of secrets found in the training texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundSecrets {
    /// Mean exposure, in bits.
    pub exposure: Interval,
    /// Mean over the secrets of the mean of 1/rank of their tokens in the vocabulary.
    pub mean_reciprocal_rank: Interval,
    /// Exposure of each secret.
    pub exposures: Vec<Exposure>,
    /// Mean of 1/rank of each secret's tokens.
    pub reciprocal_ranks: Vec<f64>,
}

/// Exposure of secrets of one kind found in the training texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExposureOfKind {
    /// The kind of secret.
    pub kind: EntityKind,
    /// In the trained model.
    pub trained: FoundSecrets,
    /// In the pretrained model.
    pub pretrained: FoundSecrets,
}

/// A kind of private entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum EntityKind {
    /// Names of people
    Person,
    /// E-mail addresses
    Email,
    /// Phone numbers
    Phone,
    /// Postal addresses
    Address,
}

impl EntityKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Person, Self::Email, Self::Phone, Self::Address];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Address => "address",
        }
    }

    /// The plural, for sentences.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Person => "names",
            Self::Email => "e-mail addresses",
            Self::Phone => "phone numbers",
            Self::Address => "postal addresses",
        }
    }
}

/// Private entities of one kind that the trained model generates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The kind of entity.
    pub kind: EntityKind,
    /// Entities in the training texts that the pretrained model does not generate.
    pub in_training: usize,
    /// Distinct entities that the trained model generates, excluding those of the pretrained model.
    pub written: usize,
    /// Number of those that are in the training texts.
    pub right: usize,
    /// Entities in the training texts that the pretrained model generates.
    #[serde(default)]
    pub known_before: usize,
    /// Fraction of the generated entities that are in the training texts.
    pub precision: Interval,
    /// Fraction of the entities in the training texts that were generated.
    pub recall: Interval,
}

/// How often a masked private entity is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reconstruction {
    /// Number of masked texts.
    pub targets: usize,
    /// Top-1 accuracy: fraction of texts whose most likely candidate is correct.
    pub top_1: Interval,
    /// Top-k accuracy: fraction of texts for which one of the k most likely candidates is correct.
    pub top_k: Interval,
    /// k of the top-k accuracy.
    pub k: usize,
    /// Fraction of texts whose true entity is among the candidates.
    pub among_candidates: Interval,
    /// Mean of 1/rank, counting 0 where the true entity is not a candidate.
    pub mean_reciprocal_rank: f64,
    /// Mean number of candidates per text.
    pub candidates: f64,
}

/// Reconstruction of one kind of entity, for both models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReconstructionOfKind {
    /// The kind of entity.
    pub kind: EntityKind,
    /// By the trained model.
    pub trained: Reconstruction,
    /// By the pretrained model.
    #[serde(rename = "pretrained")]
    pub pretrained: Reconstruction,
    /// Number of masked texts that the pretrained model fills in correctly.
    #[serde(default)]
    pub known_before: usize,
    /// By the trained model, on the remaining texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known_before: Option<Reconstruction>,
}

/// The quantity of a [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Area under a ROC curve.
    Area,
    /// A fraction of all cases, in [0, 1].
    Share,
    /// Exposure of a secret, in bits.
    Bits,
}

/// One result of an attack on the run, on a non-private run and on the pretrained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The attack's name.
    pub attack: String,
    /// The measured quantity.
    pub measure: Measure,
    /// On the run's model.
    pub run: Interval,
    /// On the model of a non-private run.
    #[serde(default)]
    pub non_private: Option<Interval>,
    /// On the pretrained model.
    #[serde(default)]
    pub pretrained: Option<Interval>,
    /// The expected value under random guessing.
    pub guessing: Option<f64>,
}
