//! Computes steps, sampling rate and noise multipliers from a budget and the number of privacy
//! units.

use super::adaptive_clip::count_std;
use super::plan::{AllocationPlan, Budget, CentralPlan, MapSource};
use crate::error::{Error, Result};
use crate::plan::Population;
use crate::synthesize::StatisticsPlan;
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::schedule::Passes;
use undertone_accounting::{Accountant, Adjacency, Composition, Event, epsilon};
use undertone_run::{Clip, Resolved, SampledExamples, TrainingSection};

impl CentralPlan {
    /// Calibrates the plan for a given number of privacy units and examples.
    pub fn calibrate(
        &self,
        training: &TrainingSection,
        population: Population,
    ) -> Result<Resolved> {
        let units = population.units;
        let examples = self
            .examples_per_user
            .map(|per_user| SampledExamples { number: population.examples, per_user });
        let sampled = examples.map_or(units, |examples| examples.number);
        let before = match self.statistics_event()? {
            Some(event) => Some(event),
            None => self.map_event(units)?,
        };
        let beside = self.evaluation_event(training)?;
        let passes = Passes {
            before,
            beside,
            examples_per_user: self.examples_per_user,
            ..Passes::over(sampled as u64, training.batch, training.epochs)?
        };
        if let Some(bands) = self.bands {
            return self.calibrate_blocks(&passes, training, units, bands as u64);
        }
        let noise_multipliers = match self.budget {
            Budget::Epsilon { epsilon, schedule } => {
                schedule.calibrate(&passes, epsilon, self.delta)?
            }
            Budget::NoiseMultiplier(noise) => {
                // Rejects what the accountant cannot bound, before anything is computed.
                epsilon(&passes.compose(&[noise]), self.delta, Accountant::Auto)?;
                vec![noise; training.epochs as usize]
            }
        };
        self.count_std(&noise_multipliers, passes.sampling_rate * sampled as f64)?;
        Ok(Resolved {
            units,
            steps_per_epoch: passes.steps_per_epoch,
            sampling_rate: Some(passes.sampling_rate),
            examples,
            noise_multipliers,
            adaptation: None,
            before,
            evaluation: beside,
            releases: None,
            registered: None,
        })
    }

    /// Calibrates correlated noise: blocks of steps, and a sampling rate within the groups of
    /// units.
    fn calibrate_blocks(
        &self,
        passes: &Passes,
        training: &TrainingSection,
        units: usize,
        bands: u64,
    ) -> Result<Resolved> {
        let rate = passes.sampling_rate * bands as f64;
        if rate > 1.0 + 1e-9 {
            return Err(Error::plan(format!(
                "privacy.correlation.bands times training.batch is {}, but there are {units} \
                 units: make one of them smaller",
                bands * training.batch
            )));
        }
        let sampling_rate = rate.min(1.0);
        let steps = passes.steps_per_epoch * u64::from(training.epochs);
        let blocks = self.entries(steps);
        let noise = match self.budget {
            Budget::Epsilon { epsilon, .. } => {
                noise_multiplier(epsilon, self.delta, sampling_rate, blocks, Accountant::Auto)?
                    .noise
            }
            Budget::NoiseMultiplier(noise) => {
                let event = Event::PoissonGaussian { noise_multiplier: noise, sampling_rate };
                let all = Composition::new(Adjacency::AddRemove).with(event, blocks);
                // Rejects what the accountant cannot bound, before anything is computed.
                epsilon(&all, self.delta, Accountant::Auto)?;
                noise
            }
        };
        Ok(Resolved {
            units,
            steps_per_epoch: passes.steps_per_epoch,
            sampling_rate: Some(sampling_rate),
            examples: None,
            noise_multipliers: vec![noise; training.epochs as usize],
            adaptation: None,
            before: None,
            evaluation: None,
            releases: None,
            registered: None,
        })
    }

    /// Standard deviation of the noise on the number of units within the clipping bound; `None`
    /// without adaptive clipping.
    pub(super) fn count_std(&self, noise: &[f64], units: f64) -> Result<Option<f64>> {
        let Clip::Adaptive(adaptive) = &self.clip else { return Ok(None) };
        match count_std(adaptive, noise, units) {
            Some(std) => Ok(Some(std)),
            None => Err(Error::plan(format!(
                "privacy.clip.adaptive.noise is {}, which alone would spend the budget: make it \
                 larger than the noise multiplier, or leave it out",
                adaptive.noise.unwrap_or_default()
            ))),
        }
    }

    /// The release of the statistics of synthetic rows, with noise that spends their share of ε.
    fn statistics_event(&self) -> Result<Option<Event>> {
        let (Some(statistics), Budget::Epsilon { epsilon, .. }) = (self.statistics, self.budget)
        else {
            return Ok(None);
        };
        let StatisticsPlan { share, sensitivity } = statistics;
        let calibrated = noise_multiplier(share * epsilon, self.delta, 1.0, 1, Accountant::Auto);
        let calibrated = calibrated.map_err(|_| {
            Error::plan(format!(
                "{share} of ε = {epsilon} is too little for the histograms of [synthesis]: raise \
                 synthesis.statistics_share or privacy.epsilon"
            ))
        })?;
        let noise_multiplier = calibrated.noise * sensitivity;
        Ok(Some(Event::Gaussian { noise_multiplier, sensitivity }))
    }

    /// The release of a noisy relevance map, with noise that spends the map's own ε.
    fn map_event(&self, units: usize) -> Result<Option<Event>> {
        let AllocationPlan::RapFt(rap_ft) = &self.allocation else { return Ok(None) };
        let MapSource::Noised { epsilon, examples, .. } = rap_ft.source else { return Ok(None) };
        let sampling_rate = (examples as f64 / units.max(1) as f64).min(1.0);
        let calibrated = noise_multiplier(epsilon, self.delta, sampling_rate, 1, Accountant::Auto)?;
        Ok(Some(Event::PoissonGaussian { noise_multiplier: calibrated.noise, sampling_rate }))
    }
}
