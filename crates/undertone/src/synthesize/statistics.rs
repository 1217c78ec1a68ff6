//! The histograms that steer sampling, and their release: see the [statement](super).

use super::Classes;
use crate::data::{Dataset, Example, Target};
use crate::error::{Error, Result};
use crate::method::Prepared;
use crate::noise::{NOISE_BLOCK, Noise, Secret, purpose};
use crate::replay::{ReleaseId, Tape};
use crate::step::{Recorded, RunLedger, no_less};
use sha2::{Digest, Sha256};
use undertone_accounting::Event;
use undertone_run::{ClassWeight, Resolved, Statistics, Summary};

/// Number of bins of the histogram of lengths.
pub const BINS: usize = 32;

/// Maximum number of units: f32 represents all whole numbers up to this one.
const MOST_UNITS: usize = 1 << 24;

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
    /// Counts one row of each unit: the one with the smallest hash, under this key, of all of the
    /// unit's rows and the row itself. The choice depends on the unit's own rows alone, and units
    /// with a row in common choose independently.
    pub fn of(classes: &Classes, data: &Dataset, key: &[u8; 32]) -> Self {
        let mut of_unit = vec![*key; data.units];
        for example in &data.examples {
            let hash = &mut of_unit[example.unit as usize];
            *hash = keyed_hash(hash, example);
        }
        let mut counted: Vec<Option<([u8; 32], &Example)>> = vec![None; data.units];
        for example in &data.examples {
            let hash = keyed_hash(&of_unit[example.unit as usize], example);
            let known = &mut counted[example.unit as usize];
            if known.is_none_or(|(smallest, _)| hash < smallest) {
                *known = Some((hash, example));
            }
        }
        let width = bin_width(classes.max_tokens);
        let by_class = if classes.len() > 1 { classes.len() } else { 0 };
        let mut counts = Self { classes: vec![0.0; by_class], lengths: vec![0.0; BINS] };
        for (_, example) in counted.into_iter().flatten() {
            let Target::Next { from } = example.target else { continue };
            let bin = (example.tokens.len() - from).saturating_sub(1) / width;
            counts.lengths[bin.min(BINS - 1)] += 1.0;
            let class = classes.of(example).filter(|_| by_class > 0);
            if let Some(class) = class {
                counts.classes[class] += 1.0;
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

/// A hash of an example's tokens under a key.
fn keyed_hash(key: &[u8; 32], example: &Example) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(key);
    for token in &example.tokens {
        hash.update(token.to_le_bytes());
    }
    hash.finalize().into()
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
    if prepared.data.units > MOST_UNITS {
        return Err(Error::plan(format!(
            "[synthesis] counts at most {MOST_UNITS} units exactly; use fewer"
        )));
    }
    let key = secret.key(purpose::STATISTICS_ROWS);
    let counts = ClippedCounts::of(classes, &prepared.data, &key);
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
    let units = resolved.units;
    Err(Error::plan(match classes.len() {
        0 | 1 => format!(
            "the histogram of lengths would have noise of std {noise_multiplier:.1} for {units} \
             units: raise privacy.epsilon or synthesis.statistics_share, or use more data"
        ),
        _ => format!(
            "the histogram of classes would have noise of std {noise_multiplier:.1}, but classes \
             have {mean:.1} units on average: raise privacy.epsilon or synthesis.statistics_share, \
             declare fewer values, or use more data"
        ),
    }))
}

#[cfg(test)]
mod tests;
