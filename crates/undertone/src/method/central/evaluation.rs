//! The share of the budget for metrics on private validation data, and their release.
//!
//! # Statement
//!
//! E metrics, each a Gaussian mechanism with noise multiplier σ, compose to one Gaussian mechanism
//! with noise multiplier σ/√E. It is one entry of the ledger, recorded before the first step, and
//! its ε alone is `evaluation.epsilon`. The noise of the steps is calibrated so that everything
//! together has the run's ε. A run that stops early has paid for all E metrics.

use super::plan::CentralPlan;
use crate::error::{Error, Result};
use crate::evaluate::UnitValues;
use crate::noise::{Secret, purpose};
use crate::statistics::NoiseSource;
use crate::step::Recorded;
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::{Accountant, Event};
use undertone_run::{ReleasedMetric, TrainingSection};

/// Metrics that are released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationPlan {
    /// ε of all of them together.
    pub epsilon: f64,
    /// Number of epochs from one release to the next.
    pub every: u32,
}

impl EvaluationPlan {
    /// Number of releases.
    fn releases(&self, training: &TrainingSection) -> Result<u32> {
        match training.epochs / self.every {
            0 => Err(Error::plan(format!(
                "evaluation.every is {}, but the run has {} epochs: no metric would be released",
                self.every, training.epochs
            ))),
            releases => Ok(releases),
        }
    }
}

impl CentralPlan {
    /// The entry for all metrics that a run releases.
    pub(super) fn evaluation_event(&self, training: &TrainingSection) -> Result<Option<Event>> {
        let Some(evaluation) = &self.evaluation else { return Ok(None) };
        evaluation.releases(training)?;
        let calibrated =
            noise_multiplier(evaluation.epsilon, self.delta, 1.0, 1, Accountant::Auto)?;
        Ok(Some(Event::Gaussian { noise_multiplier: calibrated.noise, sensitivity: 1.0 }))
    }
}

/// The recorded entry, from which the metrics are released.
#[derive(Debug)]
pub struct RecordedMetrics {
    recorded: Recorded,
    every: u64,
    releases: u64,
    key: [u8; 32],
}

impl RecordedMetrics {
    pub fn new(
        recorded: Recorded,
        plan: EvaluationPlan,
        training: &TrainingSection,
        secret: &Secret,
    ) -> Result<Self> {
        let releases = u64::from(plan.releases(training)?);
        let key = secret.key(purpose::EVALUATION);
        Ok(Self { recorded, every: u64::from(plan.every), releases, key })
    }

    /// Whether a metric is released after this epoch, starting at 1.
    pub fn are_due(&self, epoch: u64) -> bool {
        epoch.is_multiple_of(self.every) && epoch <= self.every * self.releases
    }

    /// Releases the metric of an epoch. A resumed run repeats a release with the same noise.
    pub fn release(&self, epoch: u64, values: &UnitValues) -> Result<Option<ReleasedMetric>> {
        let Event::Gaussian { noise_multiplier, .. } = self.recorded.event() else {
            return Ok(None);
        };
        if !self.are_due(epoch) {
            return Ok(None);
        }
        let sigma = noise_multiplier * (self.releases as f64).sqrt();
        self.recorded.covers(sigma / (self.releases as f64).sqrt())?;
        let mut noise = NoiseSource::with_key(self.key, epoch);
        Ok(Some(values.released(epoch, sigma, &mut noise)))
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use undertone_accounting::schedule::Passes;
    use undertone_accounting::{Accountant, Event, epsilon};

    const RUN: &str = "[model]\npath = \"m\"\ntuning = \"full\"\n[data]\ntask = \
                       \"classification\"\ntrain = \"t.tsv\"\nvalidation = \"v.tsv\"\ntext = \
                       \"text\"\nlabels = [\"a\", \"b\"]\n[privacy]\nmethod = \
                       \"dp-sgd\"\nepsilon = 4\ndelta = 1e-5\n[training]\nepochs = 6\nbatch = \
                       100\nlearning_rate = 1e-3\n[evaluation]\nepsilon = 0.5\n";

    fn plan(changes: &[&str]) -> Result<Plan, String> {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        Plan::parse(RUN, &changes).map_err(|e| e.to_string())
    }

    /// Metrics and steps together have the stated ε, and the metrics alone have
    /// `evaluation.epsilon`.
    #[test]
    fn the_total_is_the_stated_epsilon() {
        for schedule in ["privacy.schedule=uniform", "privacy.schedule=linear"] {
            let plan = plan(&[schedule, "evaluation.every=2"]).unwrap();
            let resolved = crate::method::calibrate(&plan, 10_000, 2).unwrap();
            let event = resolved.evaluation.unwrap();
            let Event::Gaussian { noise_multiplier, .. } = event else { panic!("{event:?}") };
            let passes = Passes::over(10_000, 100, 6).unwrap();
            let steps = passes.compose(&resolved.noise_multipliers);
            let of = |all| epsilon(&all, 1e-5, Accountant::Auto).unwrap().epsilon.upper;
            // Three releases with the noise of each.
            let each = Event::Gaussian {
                noise_multiplier: noise_multiplier * 3_f64.sqrt(),
                sensitivity: 1.0,
            };
            let total = of(steps.clone().with(each, 3));
            assert!(total <= 4.0 * (1.0 + 1e-9) && total > 3.98, "{total}");
            assert!(of(steps) < 3.999, "the metrics cost something");
            let alone = undertone_accounting::Composition::new(Default::default()).with(event, 1);
            assert!(of(alone) <= 0.5 + 1e-9);
        }
    }

    #[test]
    fn metrics_that_cannot_be_released_are_refused() {
        for (changes, sentence) in [
            (&["evaluation.epsilon=4"][..], "must be below privacy.epsilon"),
            (&["evaluation.epsilon=0"], "evaluation.epsilon is"),
            (&["evaluation.every=0"], "evaluation.every is"),
            (&["data.validation_is_public=true"], "evaluation is for"),
            (&["-data.validation"], "evaluation is for"),
            (&["privacy.correlation.bands=4"], "evaluation is for"),
            (&["privacy.method=anadp", "privacy.mode=paper"], "evaluation is for"),
            (&["-evaluation.epsilon", "evaluation.every=2"], "evaluation.every is for"),
            (
                &["training.stop_early.patience=1", "evaluation.every=2"],
                "training.stop_early needs a metric after each epoch",
            ),
        ] {
            let error = plan(changes).unwrap_err();
            assert!(error.contains(sentence), "{changes:?}: {error}");
        }
        assert!(plan(&["training.stop_early.patience=1"]).is_ok());
        let seldom = plan(&["evaluation.every=7"]).unwrap();
        let error = crate::method::calibrate(&seldom, 10_000, 2).unwrap_err().to_string();
        assert!(error.contains("no metric would be released"), "{error}");
    }
}
