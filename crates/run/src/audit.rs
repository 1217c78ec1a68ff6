//! audit.json: results of attacks on a run, each with its confidence interval.

use crate::error::{Error, Result};
use crate::numbers::null_as_nan;
use crate::{FORMAT_VERSION, check_format, read_settings, write_json};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Results of attacks on a run; each is present if its attack was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Version of the folder's layout; 1 had no such key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    /// Membership inference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub membership: Vec<Membership>,
    /// Where the non-members of membership inference come from; files of before 0.3.0 do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_members: Option<NonMembers>,
    /// The lower bound on ε from one training run with canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_run: Option<OneRunAudit>,
    /// Exposure of planted secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposure: Vec<SecretExposure>,
    /// Exposure of secrets of the training texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_exposure: Vec<ExposureOfKind>,
    /// Private entities that the model generates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extraction: Vec<Extraction>,
    /// Masked private entities that the model fills in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconstruction: Vec<ReconstructionOfKind>,
    /// Trials of attacks that were made several times, each with a seed of its own; the fields
    /// above have the first.
    #[serde(default, skip_serializing_if = "Trials::is_empty")]
    pub trials: Trials,
    /// Each attack on the run, on a non-private run and on the pretrained model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Figure>,
    /// Results of attacks that this version does not know, kept unchanged.
    #[serde(flatten)]
    pub others: serde_json::Map<String, serde_json::Value>,
}

impl Audit {
    /// Whether no attack was made.
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

    /// Reads the file; empty if it is not there. A damaged file is an error: its results would be
    /// lost by writing over it.
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

    /// Reads the file, changes it and writes it again: results of other attacks are kept.
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
    /// Seed of everything that it draws at random.
    pub seed: u64,
    /// What it found.
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

/// Where the non-members of membership inference come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NonMembers {
    /// Units of the training file that the run held out.
    HeldOut,
    /// The run's validation file.
    Validation,
    /// A file that was named for the audit.
    File,
}

impl NonMembers {
    /// What to know of a comparison with them.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::HeldOut => {
                "The non-members are units of the training file that the run held out \
                 (data.hold_out)."
            }
            Self::Validation => {
                "The non-members are the validation file: a difference may show a shift between \
                 the two files rather than membership. data.hold_out keeps units of the training \
                 file aside for this."
            }
            Self::File => {
                "The non-members are another file: a difference may show a shift between the two \
                 files rather than membership."
            }
        }
    }
}

/// How well a membership inference attack tells members from non-members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    /// The attack's name.
    pub attack: String,
    /// Area under the ROC curve: ½ for guessing.
    pub auc: Interval,
    /// True positive rate at a false positive rate of 0.1 %.
    pub rate_at_0_1_percent: Interval,
    /// True positive rate at a false positive rate of 1 %.
    pub rate_at_1_percent: Interval,
    /// Number of examples that were trained on.
    pub members: usize,
    /// Number of examples that were not trained on.
    pub others: usize,
    /// (false positive rate, true positive rate), thinned out for plotting.
    #[serde(default)]
    pub roc: Vec<(f64, f64)>,
}

impl Membership {
    /// Name of the attack that has the pretrained model alone: what it finds is a difference
    /// between the two files, not membership.
    pub const OF_PRETRAINED: &str = "the pretrained model alone";

    /// Whether it is of the pretrained model.
    pub fn is_of_pretrained(&self) -> bool {
        self.attack == Self::OF_PRETRAINED
    }
}

/// The lower bound on ε from one training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneRun {
    /// Number of canaries, each included in the training data by a fair coin.
    pub canaries: u64,
    /// Number of guesses: canaries that the attack does not abstain on.
    pub guesses: u64,
    /// Number of correct guesses.
    pub right: u64,
    /// Lower bound on ε at the stated confidence, for any mechanism.
    pub epsilon_lower: f64,
    /// Lower bound on ε at the stated confidence, if the trade-off curve of training is that of a
    /// Gaussian mechanism.
    #[serde(default)]
    pub epsilon_lower_if_gaussian: f64,
    /// The δ that the bounds on ε are for.
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
    /// Whether the guesses contradict the privacy curve that the ledger proves; none without a
    /// guarantee.
    pub promised_curve_is_refuted: Option<bool>,
}

/// Exposure of a planted secret: its rank by likelihood among all candidates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exposure {
    /// log₂ of the number of candidates minus log₂ of the rank: the bits of the secret that the
    /// model reveals.
    pub bits: f64,
    /// The largest possible exposure, log₂ of the number of candidates.
    pub most: f64,
    /// 1 for the likeliest candidate; an estimate where the candidates are a sample.
    #[serde(default)]
    pub rank: f64,
    /// Whether every candidate was ranked, and not a sample.
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
    #[serde(rename = "pretrained", alias = "untouched")]
    pub pretrained: Exposure,
}

/// Exposure of secrets that were found in the training texts, in one model.
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

/// Exposure of the secrets of one kind that were found in the training texts.
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
    /// Distinct entities that the trained model generates, without those of the pretrained one.
    pub written: usize,
    /// Number of these that are in the training texts.
    pub right: usize,
    /// Entities of the training texts that the pretrained model generates.
    #[serde(default)]
    pub known_before: usize,
    /// Share of the generated entities that are in the training texts.
    pub precision: Interval,
    /// Share of the training texts' entities that were generated.
    pub recall: Interval,
}

/// How often a masked private entity is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reconstruction {
    /// Number of masked texts.
    pub targets: usize,
    /// Top-1 accuracy: share of texts whose likeliest candidate is right.
    pub top_1: Interval,
    /// Top-k accuracy: share of texts of which one of the k likeliest candidates is right.
    pub top_k: Interval,
    /// k of the top-k accuracy.
    pub k: usize,
    /// Share of texts whose truth is among the candidates.
    pub among_candidates: Interval,
    /// Mean of 1/rank, 0 where the truth is no candidate.
    pub mean_reciprocal_rank: f64,
    /// Mean number of candidates of a text.
    pub candidates: f64,
}

/// Reconstruction of one kind of entity, by both models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReconstructionOfKind {
    /// The kind of entity.
    pub kind: EntityKind,
    /// By the trained model.
    pub trained: Reconstruction,
    /// By the pretrained model.
    #[serde(rename = "pretrained", alias = "untouched")]
    pub pretrained: Reconstruction,
    /// Number of masked texts that the pretrained model fills in correctly.
    #[serde(default)]
    pub known_before: usize,
    /// By the trained model, on the other texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known_before: Option<Reconstruction>,
}

/// The quantity of a [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Area under a ROC curve.
    Area,
    /// A share of all cases, in [0, 1].
    Share,
    /// Exposure of a secret, in bits.
    Bits,
}

/// One figure of an attack, on the run, on a non-private run and on the pretrained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The attack's name.
    pub attack: String,
    /// The measured quantity.
    pub measure: Measure,
    /// On the run's model.
    pub run: Interval,
    /// On the model of a non-private run.
    #[serde(default, alias = "open")]
    pub non_private: Option<Interval>,
    /// On the pretrained model.
    #[serde(default, alias = "untouched")]
    pub pretrained: Option<Interval>,
    /// The expected figure of random guessing.
    pub guessing: Option<f64>,
}
