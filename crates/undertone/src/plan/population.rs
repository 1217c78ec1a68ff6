//! The numbers from which sampling rates are computed.

use super::Plan;
use crate::data::{Dataset, UnitCount};

/// Number of privacy units and of their examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// Number of privacy units, declared or counted.
    pub units: usize,
    /// Number of examples, without those beyond the maximum of a unit.
    pub examples: usize,
}

impl Population {
    /// The numbers in a training file that was read.
    pub(crate) fn of(plan: &Plan, data: &Dataset) -> Self {
        Self { units: plan.units(data.units), examples: data.examples.len() }
    }

    /// The numbers in a training file that was only counted.
    pub fn counted(plan: &Plan, count: &UnitCount) -> Self {
        Self { units: plan.units(count.units), examples: count.examples }
    }
}

/// Units of one example each.
impl From<usize> for Population {
    fn from(units: usize) -> Self {
        Self { units, examples: units }
    }
}
