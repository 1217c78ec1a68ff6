//! The released statistics: noisy sums, and figures computed from them alone.

use super::projected::{denoised, quantile, shares};
use super::{Request, Statistic, lengths, row_counts};
use serde::{Deserialize, Serialize};
use undertone_accounting::Unit;

/// The unit of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthUnit {
    /// Bytes of UTF-8.
    Bytes,
    /// Tokens of a model.
    Tokens,
}

/// Private statistics, in the format of statistics.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Version of the format.
    pub format: u32,
    /// The privacy unit.
    pub unit: Unit,
    /// Target ε of all statistics together.
    pub epsilon: f64,
    /// δ of the guarantee.
    pub delta: f64,
    /// Standard deviation of the noise on every sum over units.
    pub noise_std: f64,
    /// Number of units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_unit: Option<RowsPerUnit>,
    /// The declared labels, and one entry for all other labels together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<Share>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Lengths>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<Quality>,
    /// Words that occur in many units, the most common first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<Vec<Word>>,
}

/// Rows of a unit. Figures are computed from the cells that stand out from the noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsPerUnit {
    /// The median and the 90th percentile, rounded up to powers of two; `None` if too few units
    /// stand out from the noise.
    pub median: Option<u64>,
    pub p90: Option<u64>,
    /// Mean, with each cell's mean for its units.
    pub mean: Option<f64>,
    /// Noisy numbers of units with 1, 2, 3–4, 5–8, … rows.
    pub units: Vec<f64>,
}

/// A declared label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The label; `None` for all others.
    pub label: Option<String>,
    /// The label's share, where each unit counts once.
    pub share: f64,
    /// The noisy number of units, where a unit with several labels is divided among them.
    pub units: f64,
}

/// Lengths of texts, where each unit counts once. Quantiles are computed from the cells that stand
/// out from the noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    pub measured_in: LengthUnit,
    /// Quantiles, rounded up to the end of a cell (3, 5, 7, 11, 15, 23, …); `None` if too few units
    /// stand out from the noise.
    pub p10: Option<u64>,
    pub median: Option<u64>,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    /// The noisy histogram.
    pub units: Vec<f64>,
}

/// Shares of rows, where each unit counts once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    pub usable: f64,
    pub empty: f64,
    pub damaged: f64,
    /// The noisy number of units for each of the three.
    pub units: Vec<f64>,
}

/// A released word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Word {
    pub word: String,
    /// Its noisy sum of weights.
    pub weight: f64,
}

/// Version of the format.
const FORMAT: u32 = 1;

impl Statistics {
    pub(super) fn empty(request: &Request) -> Self {
        let length = request.statistics.contains(&Statistic::Lengths).then(|| Lengths {
            measured_in: request.lengths_in,
            p10: None,
            median: None,
            p90: None,
            p99: None,
            units: Vec::new(),
        });
        Self {
            format: FORMAT,
            unit: request.unit,
            epsilon: request.budget.epsilon,
            delta: request.budget.delta,
            noise_std: request.budget.noise_multiplier,
            units: None,
            rows_per_unit: None,
            labels: None,
            length,
            quality: None,
            vocabulary: None,
        }
    }

    /// Parses statistics.json.
    pub fn parse(text: &str) -> Result<Self, String> {
        let statistics: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let numbers = [statistics.epsilon, statistics.delta, statistics.noise_std];
        match statistics.format {
            FORMAT if numbers.iter().all(|number| *number > 0.0) => Ok(statistics),
            FORMAT => Err("ε, δ and noise must be above 0".to_owned()),
            other => Err(format!("its format is {other}, and this version reads {FORMAT}")),
        }
    }

    pub(super) fn set_units(&mut self, noisy: f64) {
        self.units = Some(noisy);
    }

    pub(super) fn set_row_counts(&mut self, noisy: Vec<f64>) {
        let counts = denoised(&noisy, self.noise_std);
        let at = |share| quantile(&counts, share).map(|cell| row_counts::range(cell).1);
        let middle = |cell: usize| {
            let (from, to) = row_counts::range(cell);
            0.5 * (from as f64 + to as f64)
        };
        let rows: f64 = counts.iter().enumerate().map(|(cell, of)| of * middle(cell)).sum();
        let units: f64 = counts.iter().sum();
        self.rows_per_unit = Some(RowsPerUnit {
            median: at(0.5),
            p90: at(0.9),
            mean: (units > 0.0).then(|| rows / units),
            units: noisy,
        });
    }

    pub(super) fn set_labels(&mut self, labels: &[String], noisy: Vec<f64>) {
        let names = labels.iter().cloned().map(Some).chain([None]);
        let all = names.zip(shares(&noisy)).zip(noisy);
        let share = |((label, share), units)| Share { label, share, units };
        self.labels = Some(all.map(share).collect());
    }

    pub(super) fn set_lengths(&mut self, noisy: Vec<f64>) {
        let counts = denoised(&noisy, self.noise_std);
        let at = |share| quantile(&counts, share).map(lengths::last);
        if let Some(length) = &mut self.length {
            (length.p10, length.median) = (at(0.1), at(0.5));
            (length.p90, length.p99) = (at(0.9), at(0.99));
            length.units = noisy;
        }
    }

    pub(super) fn set_quality(&mut self, noisy: Vec<f64>) {
        if let [usable, empty, damaged] = shares(&noisy)[..] {
            self.quality = Some(Quality { usable, empty, damaged, units: noisy });
        }
    }
}
