//! Non-private fine-tuning: shuffled batches, no clipping, no noise.

use super::{Begin, Facts, Procedure, Sample};
use crate::data::ShuffledEpochs;
use crate::error::Result;
use crate::gradient::ClippedSum;
use crate::noise::purpose;
use crate::step::{Cost, Learner, Step};
use crate::synthesize;
use undertone_accounting::Guarantee;
use undertone_run::{Claim, Resolved, TrainingSection};

/// The steps of an epoch, without noise.
pub(super) fn calibrate(training: &TrainingSection, units: usize) -> Resolved {
    Resolved {
        units,
        steps_per_epoch: (units as u64).div_ceil(training.batch).max(1),
        sampling_rate: None,
        examples: None,
        noise_multipliers: Vec::new(),
        adaptation: None,
        before: None,
        evaluation: None,
        releases: None,
        registered: None,
    }
}

/// Non-private fine-tuning on shuffled batches.
pub(super) struct NonPrivate {
    sampler: ShuffledEpochs,
}

impl NonPrivate {
    pub(super) fn begin(begin: &Begin) -> Result<Self> {
        let statistics = synthesize::release(&*begin.prepared, None, begin.secret, None, None)?;
        if let (Some(folder), Some(statistics)) = (begin.folder, statistics) {
            statistics.write(&folder.statistics())?;
        }
        let batch = begin.plan.training.batch as usize;
        let key = begin.secret.key(purpose::SAMPLING);
        Ok(Self { sampler: ShuffledEpochs::new(begin.prepared.data.units, batch, key)? })
    }
}

impl Procedure for NonPrivate {
    fn sample(&mut self, step: u64) -> Result<Sample> {
        let units = self.sampler.step(step);
        Ok(Sample { divisor: units.len() as f64, units })
    }

    fn release(&mut self, sum: ClippedSum, step: Step, learner: &mut Learner) -> Result<()> {
        learner.release(sum, step, Cost::NonPrivate)
    }

    fn without_gradient(
        &self,
        learner: &Learner,
        sum: &ClippedSum,
        first: bool,
    ) -> Result<Vec<String>> {
        Ok(learner.without_gradient(sum, first)?.into_iter().map(str::to_owned).collect())
    }

    fn counted_examples(&self, _divisor: f64, examples: usize) -> f64 {
        examples as f64
    }

    fn guarantee(&self) -> Result<Option<Guarantee>> {
        Ok(None)
    }

    fn spent(&mut self) -> Result<Option<f64>> {
        Ok(None)
    }

    fn ledger_hash(&self) -> Option<String> {
        None
    }

    fn claim(&self) -> Result<Option<Claim>> {
        Ok(None)
    }

    fn not_private_because(&self) -> Option<String> {
        Some("the method is \"none\": no noise was added".to_owned())
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }
}
