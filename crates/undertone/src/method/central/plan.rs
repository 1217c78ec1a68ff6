//! The plan of a central DP method.

use super::evaluation::EvaluationPlan;
use super::importance::ImportanceSettings;
use super::mask::MaskRule;
use crate::error::{Error, Result};
use crate::explain::relevance::{AlphaBeta, LinearRule, Shares};
use crate::method::schedule::Schedule;
use crate::plan::check::delta;
use crate::synthesize::StatisticsPlan;
use std::path::{Path, PathBuf};
use undertone_accounting::limits;
use undertone_run::{
    ActivationRule, AdaclipSection, AnadpSection, Clip, ImportanceForm, ImportanceSource,
    InitialRelevance, MethodName, ModeName, RelevanceRule, RelevanceSource, RunFile, Tuning,
};

/// Clipping, noise allocation and privacy budget.
#[derive(Clone, Debug, PartialEq)]
pub struct CentralPlan {
    /// Noise allocation across coordinates.
    pub allocation: AllocationPlan,
    /// Gradient clipping.
    pub clip: Clip,
    /// The calibration target of the noise.
    pub budget: Budget,
    pub delta: f64,
    /// Maximum number of examples of a user, if steps sample examples one by one; `None` if they
    /// sample units.
    pub examples_per_user: Option<u64>,
    /// Number of bands of correlated noise; `None` if the steps' noise is independent.
    pub bands: Option<usize>,
    /// The release of statistics for synthetic rows, before the first step.
    pub statistics: Option<StatisticsPlan>,
    /// Metrics on private validation data that are released; `None` without.
    pub evaluation: Option<EvaluationPlan>,
}

/// The calibration target of the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// A target ε for the whole run.
    Epsilon {
        epsilon: f64,
        /// Shape of the noise multiplier over the epochs.
        schedule: Schedule,
    },
    /// A given noise multiplier for every step.
    NoiseMultiplier(f64),
}

/// Noise allocation across coordinates.
#[derive(Clone, Debug, PartialEq)]
pub enum AllocationPlan {
    /// The same noise on every coordinate.
    DpSgd,
    /// Noise determined by the mean square of released or public gradients.
    Adaclip(AdaclipSection),
    /// Noise determined by importance, computed from released or public gradients.
    Anadp(ImportanceSettings, ImportanceSource),
    /// Noise determined by importance, computed from raw gradients: paper mode.
    PublishedAnadp(ImportanceSettings),
    /// Two groups of coordinates by relevance, each with its own clipping bound and noise.
    RapFt(RapFtPlan),
}

/// Rap-FT's hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct RapFtPlan {
    /// Which coordinates are treated as weakly relevant.
    pub mask: MaskRule,
    /// How linear layers propagate relevance.
    pub rule: LinearRule,
    /// How relevance passes activation functions.
    pub activations: ActivationRule,
    /// The logits from which relevance propagation starts in generation tasks.
    pub initial: InitialRelevance,
    /// Random draws per example for weights that are initialized to zero.
    pub probes: usize,
    /// The examples from which the relevance map is computed.
    pub source: MapSource,
}

/// The examples from which the relevance map is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum MapSource {
    /// The first examples of a public file.
    Public {
        /// A file with the same columns as the training file.
        file: PathBuf,
        /// The number of examples.
        examples: usize,
    },
    /// A Poisson sample of the private examples, with noise added to the map.
    Noised {
        /// The ε spent on the map's release alone.
        epsilon: f64,
        /// The expected number of examples.
        examples: u64,
        /// ℓ2 norm to which each example's map is clipped.
        clip: f64,
    },
    /// A Poisson sample of the private examples, without noise: paper mode.
    Raw {
        /// The expected number of examples.
        examples: usize,
    },
}

impl CentralPlan {
    /// Checks a run file whose method is a central DP method.
    pub fn check(file: &RunFile) -> Result<Self> {
        let privacy = &file.privacy;
        if privacy.mode == ModeName::Paper
            && matches!(privacy.method, MethodName::DpSgd | MethodName::Adaclip)
        {
            return Err(Error::plan(
                "privacy.mode = \"paper\" is for methods that differ as published, such as anadp; \
                 leave it out",
            ));
        }
        let budget = match (privacy.epsilon, privacy.noise_multiplier) {
            (Some(epsilon), None) => Budget::Epsilon { epsilon, schedule: Schedule::of(privacy) },
            (None, Some(_)) if !Schedule::of(privacy).is_uniform() => {
                return Err(Error::plan(
                    "a schedule is calibrated to epsilon; with noise_multiplier it is uniform",
                ));
            }
            (None, Some(noise)) => Budget::NoiseMultiplier(noise),
            _ => return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier")),
        };
        let allocation = match privacy.method {
            MethodName::Adaclip => {
                check_range("adaclip", privacy.adaclip.range)?;
                let mut section = privacy.adaclip.clone();
                if section.importance.is_public() {
                    section.form.get_or_insert(usual_form(&file.model.tuning));
                }
                AllocationPlan::Adaclip(section)
            }
            MethodName::Anadp => {
                let published = privacy.mode == ModeName::Paper;
                let settings = importance(&privacy.anadp, &file.model.tuning, published)?;
                match privacy.mode {
                    ModeName::Proved => {
                        AllocationPlan::Anadp(settings, privacy.anadp.importance.clone())
                    }
                    ModeName::Paper => AllocationPlan::PublishedAnadp(settings),
                }
            }
            MethodName::RapFt => AllocationPlan::RapFt(rap_ft(file)?),
            _ => AllocationPlan::DpSgd,
        };
        if matches!(privacy.clip, Clip::Adaptive(_)) && privacy.method != MethodName::DpSgd {
            return Err(Error::plan(
                "privacy.clip = { adaptive = … } is for the method dp-sgd; give a number or \
                 \"automatic\"",
            ));
        }
        let samples_examples = !privacy.sampling.is_users();
        if samples_examples && matches!(privacy.clip, Clip::Adaptive(_)) {
            return Err(Error::plan(
                "privacy.sampling = \"examples\" needs one clipping norm for all steps; give a \
                 number or \"automatic\" in place of { adaptive = … }",
            ));
        }
        let examples_per_user = samples_examples.then_some(file.data.most_per_author as u64);
        if let Some(most) = examples_per_user
            && !limits::EXAMPLES_PER_USER.contains(&most)
        {
            return Err(Error::plan(format!(
                "data.most_per_author is {most}, but must be at most {} with privacy.sampling = \
                 \"examples\"",
                limits::EXAMPLES_PER_USER.end()
            )));
        }
        let bands = privacy.correlation.map(|correlation| correlation.bands);
        if bands.is_some() && !Schedule::of(privacy).is_uniform() {
            return Err(Error::plan(
                "privacy.correlation is for the uniform schedule; leave privacy.schedule out",
            ));
        }
        if bands.is_some() && matches!(privacy.clip, Clip::Adaptive(_)) {
            return Err(Error::plan(
                "privacy.correlation needs one clipping norm for all steps; give a number or \
                 \"automatic\" in place of { adaptive = … }",
            ));
        }
        let statistics = (file.synthesis.as_ref())
            .map(|section| StatisticsPlan::of(section, &file.data))
            .transpose()?;
        let every = file.evaluation.every;
        let evaluation = file.evaluation.epsilon.map(|epsilon| EvaluationPlan { epsilon, every });
        let (clip, delta) = (privacy.clip, delta(file)?);
        let plan = Self {
            allocation,
            clip,
            budget,
            delta,
            examples_per_user,
            bands,
            statistics,
            evaluation,
        };
        plan.check_statistics()?;
        Ok(plan)
    }

    /// Refuses statistics of synthetic rows beside what the calibration has no place for.
    fn check_statistics(&self) -> Result<()> {
        let problem = match (&self.statistics, &self.budget, &self.allocation) {
            (None, ..) => return Ok(()),
            (_, Budget::NoiseMultiplier(_), _) => {
                "[synthesis] releases histograms with a share of privacy.epsilon; give epsilon in \
                 place of noise_multiplier"
            }
            (_, _, AllocationPlan::RapFt(RapFtPlan { source: MapSource::Noised { .. }, .. })) => {
                "[synthesis] with rap-ft needs a relevance map of public examples: \
                 privacy.rap_ft.relevance = { public = \"file\" }"
            }
            _ if self.bands.is_some() => {
                "[synthesis] is for steps with independent noise; leave privacy.correlation out"
            }
            _ => return Ok(()),
        };
        Err(Error::plan(problem))
    }

    /// Whether the method runs as published.
    pub fn is_published(&self) -> bool {
        match &self.allocation {
            AllocationPlan::PublishedAnadp(_) => true,
            AllocationPlan::RapFt(plan) => matches!(plan.source, MapSource::Raw { .. }),
            _ => false,
        }
    }

    /// Number of ledger entries for `steps` steps: one per step, or one per block of steps with
    /// correlated noise.
    pub fn entries(&self, steps: u64) -> u64 {
        steps.div_ceil(self.bands.unwrap_or(1) as u64)
    }

    /// The public file from which weights are computed, if any.
    pub fn public_importance(&self) -> Option<&Path> {
        match &self.allocation {
            AllocationPlan::Adaclip(AdaclipSection {
                importance: ImportanceSource::Public(file),
                ..
            })
            | AllocationPlan::Anadp(_, ImportanceSource::Public(file)) => Some(file),
            _ => None,
        }
    }

    /// All files that the method treats as public.
    pub fn public_files(&self) -> Vec<&Path> {
        let map = match &self.allocation {
            AllocationPlan::RapFt(RapFtPlan { source: MapSource::Public { file, .. }, .. }) => {
                Some(file.as_path())
            }
            _ => None,
        };
        self.public_importance().into_iter().chain(map).collect()
    }

    /// In paper mode, the release that the method makes but the ledger does not contain.
    pub fn unaccounted(&self) -> Option<&'static str> {
        match &self.allocation {
            AllocationPlan::PublishedAnadp(_) => Some(
                "the noise was allocated from gradients without noise, which is a release that the \
                 ledger does not record",
            ),
            AllocationPlan::RapFt(RapFtPlan { source: MapSource::Raw { .. }, .. }) => Some(
                "the mask was computed from private examples without noise, which is a release \
                 that the ledger does not record",
            ),
            _ => None,
        }
    }

    /// Lower bound on the effective noise multiplier of a step with this nominal noise multiplier.
    pub fn least_noise_multiplier(&self, nominal: f64) -> f64 {
        match &self.allocation {
            // A weight is at most largest/mean, and the mean is at least the smallest weight.
            AllocationPlan::PublishedAnadp(settings) => {
                let (least, largest) = settings.range;
                nominal * f64::from(least / largest).sqrt() * 0.99
            }
            _ => nominal,
        }
    }
}

fn importance(
    anadp: &AnadpSection,
    tuning: &Tuning,
    published: bool,
) -> Result<ImportanceSettings> {
    let (high, low) = anadp.quantiles;
    if !(0.0 <= low && low < high && high <= 1.0) {
        return Err(Error::plan(
            "privacy.anadp.quantiles must be two numbers between 0 and 1, the larger one first, \
             such as [0.75, 0.25]",
        ));
    }
    check_range("anadp", anadp.range)?;
    let AnadpSection { beta1, beta2, alpha, quantiles, range, form, importance: _ } = *anadp;
    // As published, the weights apply to the noise alone, and every coordinate has one.
    let usual = if published { ImportanceForm::Element } else { usual_form(tuning) };
    let form = form.unwrap_or(usual);
    Ok(ImportanceSettings { beta1, beta2, alpha, quantiles, range, form })
}

/// The default form. Clipping in a norm with a weight for each coordinate forms per-example
/// gradients, which is cheap if few parameters are trainable and expensive in full fine-tuning.
fn usual_form(tuning: &Tuning) -> ImportanceForm {
    match *tuning == Tuning::Full {
        true => ImportanceForm::Factored,
        false => ImportanceForm::Element,
    }
}

fn check_range(name: &str, (least, largest): (f32, f32)) -> Result<()> {
    if (1e-4..=1.0).contains(&least) && (1.0..=1e4).contains(&largest) {
        return Ok(());
    }
    Err(Error::plan(format!(
        "privacy.{name}.range must be a weight from 0.0001 to 1 and one from 1 to 10000, such as \
         [0.25, 4.0]"
    )))
}

fn rap_ft(file: &RunFile) -> Result<RapFtPlan> {
    let section = &file.privacy.rap_ft;
    if !(section.irrelevance > 0.5 && section.irrelevance <= 1.0) {
        return Err(Error::plan("privacy.rap_ft.irrelevance must be above 0.5 and at most 1"));
    }
    if file.model.tuning == Tuning::Full {
        return Err(Error::plan(
            "rap-ft masks single coordinates and needs lora, adapter, bitfit or head; change \
             model.tuning",
        ));
    }
    if matches!(file.privacy.clip, Clip::PerLayer(_)) {
        return Err(Error::plan(
            "rap-ft has two clipping groups of its own; privacy.clip must be a number or \
             \"automatic\"",
        ));
    }
    let source = match (file.privacy.mode, &section.relevance) {
        (ModeName::Paper, _) => MapSource::Raw { examples: section.examples },
        (ModeName::Proved, RelevanceSource::Public(path)) => {
            MapSource::Public { file: path.clone(), examples: section.examples }
        }
        (ModeName::Proved, RelevanceSource::Noised { share, examples, clip }) => {
            if !(*share > 0.0 && *share < 1.0) {
                return Err(Error::plan(
                    "privacy.rap_ft.relevance is { public = \"file\" } or { noised = { share = \
                     0.05, examples = 512 } } with a share between 0 and 1",
                ));
            }
            let Some(target) = file.privacy.epsilon else {
                return Err(Error::plan(
                    "a noised relevance map takes a share of epsilon; give epsilon, or relevance \
                     = { public = \"file\" }",
                ));
            };
            MapSource::Noised { epsilon: share * target, examples: *examples, clip: *clip }
        }
    };
    let (paper, readings) = (file.privacy.mode == ModeName::Paper, &file.privacy.paper);
    let rule = LinearRule {
        shares: match section.rule {
            RelevanceRule::Lrp0 => Shares::Lrp0,
            RelevanceRule::AlphaBeta => {
                Shares::AlphaBeta(AlphaBeta { alpha: section.alpha, beta: 1.0 - section.alpha })
            }
        },
        bias_in_z: readings.bias_in_z.unwrap_or(paper),
    };
    let mask = MaskRule {
        irrelevance: section.irrelevance,
        ranking: readings.ranking.unwrap_or_default(),
    };
    let activations = readings.activations.unwrap_or(match paper {
        true => ActivationRule::Positive,
        false => ActivationRule::Unchanged,
    });
    let (initial, probes) = (section.initial, section.probes);
    Ok(RapFtPlan { mask, rule, activations, initial, probes, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Method, Plan};

    /// As published, there is one weight for each coordinate, whatever the trainable parameters.
    #[test]
    fn published_anadp_weighs_every_coordinate() {
        let form = |changes: &[&str]| {
            let run = r#"
                [model]
                path = "bert"
                [data]
                task = "classification"
                train = "train.tsv"
                text = "sentence"
                [privacy]
                method = "anadp"
                epsilon = 8.0
                delta = 1e-5
                [training]
                epochs = 3
                batch = 32
                learning_rate = 2e-5
            "#;
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            match Plan::parse(run, &changes).unwrap().method {
                Method::Central(CentralPlan {
                    allocation:
                        AllocationPlan::Anadp(settings, _) | AllocationPlan::PublishedAnadp(settings),
                    ..
                }) => settings.form,
                other => panic!("{other:?}"),
            }
        };
        let (paper, bitfit) = ("privacy.mode=paper", "model.tuning=bitfit");
        assert_eq!(form(&[paper]), ImportanceForm::Element);
        assert_eq!(form(&[paper, bitfit]), ImportanceForm::Element);
        assert_eq!(form(&[paper, "privacy.anadp.form=factored"]), ImportanceForm::Factored);
        assert_eq!(form(&[]), ImportanceForm::Factored);
        assert_eq!(form(&[bitfit]), ImportanceForm::Element);
    }
}
