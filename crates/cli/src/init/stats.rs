//! Settings from private statistics in place of exact counts.

use super::columns::Columns;
use crate::failure::{Failure, Outcome};
use std::path::Path;
use undertone::statistics::{LengthUnit, Statistics};
use undertone_accounting::Unit;
use undertone_run::{MAX_TOKENS, TaskName, read_settings};

/// Bytes of a token, at the least: of English texts it is about four.
const BYTES_OF_TOKEN: u64 = 3;

/// The statistics of a file written by `undertone stats`.
pub struct FromStatistics {
    statistics: Statistics,
    file: String,
}

impl FromStatistics {
    pub fn read(path: &Path) -> Outcome<Self> {
        let file = path.display().to_string();
        let wrong = |why: String| {
            Failure::arguments(format!("{file} is no statistics.json of undertone stats: {why}"))
        };
        let text = read_settings(path)
            .map_err(|e| Failure::arguments(format!("{file} cannot be read: {e}")))?;
        let statistics = Statistics::parse(&text).map_err(wrong)?;
        Ok(Self { statistics, file })
    }

    /// The number of units to declare.
    pub fn units(&self) -> Outcome<u64> {
        let units = self.statistics.units.map(f64::round);
        match units.filter(|units| (1.0..=f64::from(u32::MAX)).contains(units)) {
            Some(units) => Ok(units as u64),
            None => Err(Failure::arguments(format!(
                "{} has no usable number of units: give it as --units",
                self.file
            ))),
        }
    }

    /// Fails unless the run protects what the statistics protect.
    pub fn check(&self, columns: &Columns) -> Outcome {
        let of_run = if columns.author.is_some() { Unit::User } else { Unit::Example };
        if of_run == self.statistics.unit {
            return Ok(());
        }
        Err(Failure::arguments(match of_run {
            Unit::User => format!(
                "the statistics in {} count rows and the run protects authors: measure with \
                 undertone stats --author, or pass --no-author",
                self.file
            ),
            Unit::Example => format!(
                "the statistics in {} count authors and the run protects rows: pass --author",
                self.file
            ),
        }))
    }

    /// The declared labels.
    pub fn labels(&self, task: TaskName) -> Option<Vec<String>> {
        let labels = self.statistics.labels.as_ref()?;
        let names: Vec<String> = labels.iter().filter_map(|share| share.label.clone()).collect();
        (task == TaskName::Classification && !names.is_empty()).then_some(names)
    }

    /// A maximum length that cuts about one text of a hundred, or the usual one if that is less.
    pub fn max_tokens(&self) -> Option<usize> {
        let length = self.statistics.length.as_ref()?;
        let tokens = match length.measured_in {
            LengthUnit::Tokens => length.p99?,
            LengthUnit::Bytes => length.p99?.div_ceil(BYTES_OF_TOKEN),
        };
        let rounded = tokens.max(1).next_multiple_of(8);
        usize::try_from(rounded).ok().map(|tokens| tokens.min(MAX_TOKENS))
    }
}
