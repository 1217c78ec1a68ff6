//! Steps, sampling rate and the noise of each epoch, from a budget and the number of units.

use super::plan::{AllocationPlan, Budget, CentralPlan, MapSource};
use crate::error::Result;
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::schedule::Passes;
use undertone_accounting::{Accountant, Event, epsilon};
use undertone_run::{Resolved, TrainingSection};

impl CentralPlan {
    /// What the plan resolves to for so many units.
    pub fn calibrate(&self, training: &TrainingSection, units: usize) -> Result<Resolved> {
        let before = self.map_event(units)?;
        let passes =
            Passes { before, ..Passes::over(units as u64, training.batch, training.epochs)? };
        let noise_multipliers = match self.budget {
            Budget::Epsilon { epsilon, schedule } => {
                schedule.calibrate(&passes, epsilon, self.delta)?
            }
            Budget::NoiseMultiplier(noise) => {
                // Refuses what the accountant cannot answer for, before anything is computed.
                epsilon(&passes.compose(&[noise]), self.delta, Accountant::Auto)?;
                vec![noise; training.epochs as usize]
            }
        };
        Ok(Resolved {
            units,
            steps_per_epoch: passes.steps_per_epoch,
            sampling_rate: Some(passes.sampling_rate),
            noise_multipliers,
            adaptation: None,
            before,
            releases: None,
        })
    }

    /// The release of a noised relevance map, with noise that by itself would cost its share of ε.
    fn map_event(&self, units: usize) -> Result<Option<Event>> {
        let AllocationPlan::RapFt(rap_ft) = &self.allocation else { return Ok(None) };
        let MapSource::Noised { epsilon, examples } = rap_ft.source else { return Ok(None) };
        let sampling_rate = (examples as f64 / units.max(1) as f64).min(1.0);
        let found = noise_multiplier(epsilon, self.delta, sampling_rate, 1, Accountant::Auto)?;
        Ok(Some(Event::PoissonGaussian { noise_multiplier: found.noise, sampling_rate }))
    }
}
