//! The histograms that steer sampling, and their release: see the [statement](super).

use super::Classes;
use crate::data::{Dataset, Target};
use crate::error::{Error, Result};
use crate::method::Prepared;
use crate::noise::{NOISE_BLOCK, Noise, Secret, purpose};
use crate::replay::{ReleaseId, Tape};
use crate::step::{Recorded, RunLedger, no_less};
use undertone_accounting::Event;
use undertone_run::{ClassWeight, Resolved, Statistics, Summary};

/// Number of bins of the histogram of lengths.
pub const BINS: usize = 32;

/// Step index of the histograms' noise, which neither training steps nor relevance maps use.
const STATISTICS_STEP: u64 = u64::MAX - 1;

/// The histograms of the training data, without noise: they are private.
#[derive(Clone, Debug, PartialEq)]
pub struct ClippedCounts {
    /// Units by class; empty with a single class, whose count is not released.
    classes: Vec<f64>,
    /// Units by length.
    lengths: Vec<f64>,
}

/// Histograms that may be released.
#[derive(Clone, Debug, PartialEq)]
pub struct ReleasedCounts {
    /// Units by class.
    pub classes: Vec<f64>,
    /// Units by length.
    pub lengths: Vec<f64>,
    /// Standard deviation of the noise on each number; `None` if there is none.
    pub noise_std: Option<f64>,
}

impl ClippedCounts {
    /// Counts the rows of each unit, with a total weight of 1: its contribution to each histogram
    /// has ℓ2 norm at most 1.
    pub fn of(classes: &Classes, data: &Dataset) -> Self {
        let mut rows = vec![0_u64; data.units];
        for example in &data.examples {
            rows[example.unit as usize] += 1;
        }
        let width = bin_width(classes.max_tokens);
        let by_class = if classes.len() > 1 { classes.len() } else { 0 };
        let mut counts = Self { classes: vec![0.0; by_class], lengths: vec![0.0; BINS] };
        for example in &data.examples {
            let weight = 1.0 / rows[example.unit as usize] as f64;
            let Target::Next { from } = example.target else { continue };
            let bin = (example.tokens.len() - from).saturating_sub(1) / width;
            counts.lengths[bin.min(BINS - 1)] += weight;
            let class = classes.of(example).filter(|_| by_class > 0);
            if let Some(class) = class {
                counts.classes[class] += weight;
            }
        }
        counts
    }

    /// Releases the counts without noise, for a run without a guarantee.
    pub fn exact(self) -> ReleasedCounts {
        ReleasedCounts { classes: self.classes, lengths: self.lengths, noise_std: None }
    }

    /// Adds Gaussian noise of std `noise_multiplier` to every count. `recorded` proves that the
    /// release is recorded in the ledger.
    pub fn noised(
        self,
        noise: &Noise,
        noise_multiplier: f64,
        recorded: Recorded,
        tape: Option<&Tape>,
    ) -> Result<ReleasedCounts> {
        recorded.covers(noise_multiplier)?;
        let std = no_less(noise_multiplier);
        let mut first = 0;
        let mut add = |part: usize, counts: Vec<f64>| -> Vec<f64> {
            let mut values: Vec<f32> = counts.iter().map(|&count| count as f32).collect();
            if let Some(tape) = tape {
                tape.pass_slice(ReleaseId::Statistics, part, &mut values, std);
            }
            noise.add(STATISTICS_STEP, first, std, 1.0, &mut values);
            first += (values.len() as u64).next_multiple_of(NOISE_BLOCK as u64);
            values.into_iter().map(f64::from).collect()
        };
        let (classes, lengths) = (add(0, self.classes), add(1, self.lengths));
        Ok(ReleasedCounts { classes, lengths, noise_std: Some(f64::from(std)) })
    }
}

/// Width of a bin of lengths.
fn bin_width(max_tokens: usize) -> usize {
    max_tokens.div_ceil(BINS).max(1)
}

/// Releases the statistics of a run with `[synthesis]`; recorded in the ledger first, if there is
/// one. On resuming, the same noise gives the same statistics.
pub fn release(
    prepared: &Prepared,
    before: Option<Event>,
    secret: &Secret,
    ledger: Option<&mut RunLedger>,
    tape: Option<&Tape>,
) -> Result<Option<Statistics>> {
    let Some(classes) = &prepared.classes else { return Ok(None) };
    let counts = ClippedCounts::of(classes, &prepared.data);
    let released = match (ledger, before) {
        (None, None) => counts.exact(),
        (Some(ledger), Some(event @ Event::Gaussian { noise_multiplier, .. })) => {
            let recorded = ledger.record(0, event, 1)?;
            counts.noised(&Noise::new(secret), noise_multiplier, recorded, tape)?
        }
        _ => return Err(Error::plan("the statistics of [synthesis] need privacy.epsilon")),
    };
    Ok(Some(statistics(classes, released, secret)))
}

fn statistics(classes: &Classes, released: ReleasedCounts, secret: &Secret) -> Statistics {
    let weight = |at: usize| released.classes.get(at).copied().unwrap_or(1.0);
    let with_weight = |(at, class): (usize, &super::Class)| ClassWeight {
        values: class.values.clone(),
        weight: weight(at),
    };
    Statistics {
        format: Summary::FORMAT,
        noise_std: released.noise_std,
        codes: classes.columns.clone(),
        classes: classes.classes.iter().enumerate().map(with_weight).collect(),
        lengths: released.lengths,
        tokens_per_bin: bin_width(classes.max_tokens) as u64,
        sampling_seed: secret.number(purpose::SYNTHESIS),
    }
}

/// Rejects noise that hides the histogram of classes: two standard deviations above the mean number
/// of units per class. This is a function of public numbers.
pub fn check_noise(prepared: &Prepared, resolved: &Resolved) -> Result<()> {
    let (Some(classes), Some(Event::Gaussian { noise_multiplier, .. })) =
        (&prepared.classes, resolved.before)
    else {
        return Ok(());
    };
    let mean = resolved.units as f64 / classes.len() as f64;
    if 2.0 * noise_multiplier <= mean {
        return Ok(());
    }
    Err(Error::plan(format!(
        "the histograms of [synthesis] would have noise of std {noise_multiplier:.1} on {} of \
         {mean:.1} units on average: raise privacy.epsilon or synthesis.statistics_share, declare \
         fewer values, or use more data",
        if classes.len() > 1 { "classes" } else { "a total" }
    )))
}

#[cfg(test)]
mod tests;
