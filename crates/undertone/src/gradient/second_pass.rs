//! The clipped sum of factors, by the clipping factors of their units.

use super::groups::{ClippingGroups, ParameterGroups};
use super::sum::ClippedSum;
use super::unit::UnitRows;
use super::weights::Weights;
use crate::model::{Factor, Receiver};
use crate::tensor::Result;

/// Adds every factor to the clipped sum as it arrives, so that none is kept: those that a first
/// pass kept, or those of a second backward pass.
///
/// A second pass computes the factors of the first bit by bit: it is the same operations on the same
/// numbers, with the same dropout masks. So the clipping factors are those of what is added.
pub struct SecondPass<'g, 's> {
    pub(super) units: UnitRows,
    pub(super) groups: &'g ClippingGroups,
    /// Clipping factors, `[groups][units]`.
    pub(super) factors: Vec<Vec<f32>>,
    pub(super) sum: &'s mut ClippedSum,
}

impl SecondPass<'_, '_> {
    /// Adds a factor that was [prepared](prepare).
    pub(super) fn add(&mut self, factor: &Factor) -> Result<()> {
        let Self { units, groups, factors, sum } = self;
        let ranges = units.ranges(factor.tokens());
        match groups.of(factor.parameter()) {
            None => Ok(()),
            Some(ParameterGroups::Plain(group) | ParameterGroups::Weighted(group, _)) => {
                sum.add(factor, &ranges, &factors[*group])
            }
            Some(ParameterGroups::Split(sides)) => sides.iter().try_for_each(|(group, mask)| {
                sum.add_masked(factor, &ranges, &factors[*group], mask)
            }),
        }
    }
}

impl Receiver for SecondPass<'_, '_> {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        let groups = self.groups;
        let Some(share) = groups.of(factor.parameter()) else { return Ok(()) };
        match factor {
            // The first pass formed and added them.
            Factor::Sum { .. } | Factor::Scale { .. } => Ok(()),
            factor => self.add(&prepare(share, factor)?),
        }
    }
}

/// A factor as norms and sums take it.
pub(super) fn prepare(share: &ParameterGroups, factor: Factor) -> Result<Factor> {
    let factor = factor.rounded()?;
    match share {
        // The bounds of formed norms do not count what rounding of the factors adds.
        ParameterGroups::Weighted(_, Weights::Elements { .. }) | ParameterGroups::Split(_) => {
            match factor {
                vector @ (Factor::Sum { .. } | Factor::Scale { .. }) => Ok(vector),
                factor => factor.exact(),
            }
        }
        ParameterGroups::Plain(_) | ParameterGroups::Weighted(_, Weights::Factored { .. }) => {
            Ok(factor)
        }
    }
}
