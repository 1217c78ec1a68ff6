//! Private statistics of a data file: noisy figures for choosing the settings of a run.
//!
//! # Statement
//!
//! Every statistic is a vector, a sum over privacy units. A unit adds a vector of ℓ2 norm at most 1
//! (`contribution.rs`), whatever its rows are and however many it has. So adding or removing a unit
//! moves the sum by at most 1, and the sum with noise of std σ is a Gaussian mechanism with noise
//! multiplier σ. The vocabulary also needs a [threshold](undertone_accounting::threshold). Each
//! release is recorded in a ledger before it is made ([`RunLedger::record`]), and σ is the smallest
//! value for which all releases together stay within the budget. All other reported figures
//! (shares, quantiles, means) are computed from the noisy sums alone.
//!
//! Sums are integers in units of 2⁻²⁰, and the noise is rounded to the same units. Unlike sums of
//! floating-point numbers, the low digits of a release therefore do not depend on the data.

mod budget;
mod collect;
mod contribution;
mod lengths;
mod noise;
mod projected;
mod quality;
mod released;
mod row_counts;
mod vocabulary;

pub use budget::{Budget, split};
pub use collect::{Collected, Columns, collect};
pub use contribution::ONE;
pub use noise::NoiseSource;
pub use released::{LengthUnit, Share, Statistics, Word};
pub use vocabulary::MOST_WORDS;

use crate::error::Result;
use crate::step::{Recorded, RunLedger};
use undertone_accounting::ledger::{Terms, USERS_BY_COLUMN};
use undertone_accounting::{Adjacency, Composition, Event, Mode, Part, Threat, Unit};

/// The available statistics, in the order of their release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Number of units.
    Units,
    /// Histogram of the numbers of rows of a unit.
    RowsPerUnit,
    /// Histogram of declared labels.
    Labels,
    /// Histogram of lengths.
    Lengths,
    /// Shares of usable, empty and damaged rows.
    Quality,
    /// Words that occur in many units.
    Vocabulary,
}

/// What is released, and how.
#[derive(Clone, Debug)]
pub struct Request {
    pub unit: Unit,
    /// The column that identifies users; `None` if each row is a unit.
    pub author: Option<String>,
    /// The unit of length.
    pub lengths_in: LengthUnit,
    /// Declared labels; `None` without a label column.
    pub labels: Vec<String>,
    pub statistics: Vec<Statistic>,
    /// Maximum number of words per unit that count toward the vocabulary.
    pub words_per_unit: usize,
    pub budget: Budget,
}

/// Additional assumptions of the guarantee.
const ASSUMPTIONS: [&str; 2] = [
    "the file's format and column names, and that it can be read to its end, are public",
    "how long the computation took, and how much memory, are not published",
];

impl Request {
    /// The terms of the ledger, with a random id.
    pub fn terms(&self, id: String) -> Terms {
        let mut announced = vec![Part { event: self.event(), count: 1 }];
        announced.extend(self.threshold().map(|event| Part { event, count: 1 }));
        let of_users = self.author.iter().map(|author| format!("{USERS_BY_COLUMN}{author}"));
        Terms {
            id,
            run: None,
            unit: self.unit,
            adjacency: Adjacency::AddRemove,
            threat: Threat::Central,
            mode: Mode::Proved,
            assumptions: ASSUMPTIONS.map(str::to_owned).into_iter().chain(of_users).collect(),
            announced,
        }
    }

    fn event(&self) -> Event {
        Event::Gaussian { noise_multiplier: self.budget.noise_multiplier, sensitivity: 1.0 }
    }

    fn threshold(&self) -> Option<Event> {
        self.budget.threshold_delta.map(|delta| Event::Threshold { delta })
    }

    /// All releases, which are known before any row is read.
    pub fn releases(&self) -> Composition {
        let each = self.statistics.len() as u64;
        let releases = Composition::new(Adjacency::AddRemove).with(self.event(), each);
        match self.threshold().filter(|_| self.statistics.contains(&Statistic::Vocabulary)) {
            Some(threshold) => releases.with(threshold, 1),
            None => releases,
        }
    }

    /// Records and releases each statistic in turn.
    pub fn release(
        &self,
        collected: &Collected,
        ledger: &mut RunLedger,
        noise: &mut NoiseSource,
    ) -> Result<Statistics> {
        let mut statistics = Statistics::empty(self);
        let mut index = 0;
        for statistic in &self.statistics {
            let recorded = ledger.record(index, self.event(), 1)?;
            index += 1;
            let threshold = match (statistic, self.threshold()) {
                (Statistic::Vocabulary, Some(event)) => {
                    index += 1;
                    Some(ledger.record(index - 1, event, 1)?)
                }
                _ => None,
            };
            self.add(&mut statistics, *statistic, collected, (recorded, threshold), noise)?;
        }
        Ok(statistics)
    }

    /// Releases one statistic, which must already be recorded.
    fn add(
        &self,
        statistics: &mut Statistics,
        statistic: Statistic,
        collected: &Collected,
        (recorded, threshold): (Recorded, Option<Recorded>),
        noise: &mut NoiseSource,
    ) -> Result<()> {
        let sigma = self.budget.noise_multiplier;
        recorded.covers(sigma)?;
        let mut noisy = |sums: &[i64]| noise.added(sums, sigma);
        match statistic {
            Statistic::Units => statistics.set_units(noisy(&[collected.units])[0]),
            Statistic::RowsPerUnit => statistics.set_row_counts(noisy(&collected.row_counts)),
            Statistic::Labels => statistics.set_labels(&self.labels, noisy(&collected.labels)),
            Statistic::Lengths => statistics.set_lengths(noisy(&collected.lengths)),
            Statistic::Quality => statistics.set_quality(noisy(&collected.quality)),
            Statistic::Vocabulary => {
                let delta = match threshold.map(|recorded| recorded.event()) {
                    Some(Event::Threshold { delta }) => delta,
                    _ => return Ok(()),
                };
                let words = vocabulary::above_threshold(
                    &collected.words,
                    vocabulary::threshold(sigma, delta, self.words_per_unit),
                    |sums| noise.added(sums, sigma),
                );
                statistics.vocabulary = Some(words);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
