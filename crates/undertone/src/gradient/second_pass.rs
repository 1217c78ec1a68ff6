//! The clipped sum of factors, by the clipping factors of their units.

use super::clip::Clipped;
use super::groups::{ClippingGroups, ParameterGroups};
use super::sum::ClippedSum;
use super::unit::UnitRows;
use super::weights::Weights;
use crate::model::{Factor, ParameterId, Receiver};
use crate::tensor::{Matrix, Result, RowWeights};
use std::collections::{BTreeMap, HashMap};

/// The units of a batch with their clipping factors, and what was kept for the clipped sum.
pub struct ClippedUnits<'g> {
    pub(super) units: UnitRows,
    pub(super) groups: &'g ClippingGroups,
    pub(super) kept: Vec<Factor>,
    /// Per-unit gradients of vector parameters, `[units, coordinates]`.
    pub(super) vectors: BTreeMap<ParameterId, Matrix>,
    /// Clipping factors, `[groups][units]`.
    pub(super) factors: Vec<Vec<f32>>,
    pub(super) clipped: Clipped,
}

impl<'g> ClippedUnits<'g> {
    /// Adds the clipped gradients to `sum`.
    pub fn sum(mut self, sum: &mut ClippedSum) -> Result<Clipped> {
        let (kept, vectors) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.vectors));
        let clipped = self.clipped.clone();
        let mut pass = self.second_pass(sum)?;
        // A GPU waits for the first of them, so the largest products come first; each is dropped
        // when it was added, since sums take its place.
        kept.into_iter().try_for_each(|factor| pass.add(&factor))?;
        pass.add_vectors(&vectors)?;
        Ok(clipped)
    }

    /// Adds the clipped gradients of vector parameters, and returns what adds the factors of a
    /// second backward pass.
    pub fn second_pass(self, sum: &mut ClippedSum) -> Result<SecondPass<'g, '_>> {
        let Self { units, groups, kept: _, vectors, factors, clipped } = self;
        sum.count(&clipped);
        let mut pass = SecondPass { units, groups, factors, sum, of_tokens: HashMap::new() };
        pass.add_vectors(&vectors)?;
        Ok(pass)
    }
}

/// Adds every factor to the clipped sum as it arrives, so that none is kept: those that a first
/// pass kept, or those of a second backward pass.
///
/// A second pass computes the factors of the first bit by bit: it is the same operations on the
/// same numbers, with the same dropout masks. So the clipping factors are those of what is added.
pub struct SecondPass<'g, 's> {
    units: UnitRows,
    groups: &'g ClippingGroups,
    /// Clipping factors, `[groups][units]`.
    factors: Vec<Vec<f32>>,
    sum: &'s mut ClippedSum,
    /// The clipping factor of each token, by group: most factors have a row for each token.
    of_tokens: HashMap<usize, RowWeights>,
}

impl SecondPass<'_, '_> {
    /// Adds a factor that was [prepared](prepare).
    fn add(&mut self, factor: &Factor) -> Result<()> {
        let groups = self.groups;
        match groups.of(factor.parameter()) {
            None => Ok(()),
            Some(ParameterGroups::Plain(group) | ParameterGroups::Weighted(group, _)) => {
                self.with_weights(factor, *group, |sum, weights| sum.add(factor, weights))
            }
            Some(ParameterGroups::Split(sides)) => sides.iter().try_for_each(|(group, mask)| {
                self.with_weights(factor, *group, |sum, weights| {
                    sum.add_masked(factor, weights, mask)
                })
            }),
        }
    }

    /// Adds the per-unit gradients of vector parameters.
    fn add_vectors(&mut self, vectors: &BTreeMap<ParameterId, Matrix>) -> Result<()> {
        let Self { groups, factors, sum, .. } = self;
        let mut together = vec![Vec::new(); factors.len()];
        for (&parameter, rows) in vectors {
            match groups.of(parameter) {
                None => {}
                Some(ParameterGroups::Plain(group) | ParameterGroups::Weighted(group, _)) => {
                    together[*group].push((parameter, rows));
                }
                Some(ParameterGroups::Split(sides)) => {
                    let factor = ClippedSum::vectors(parameter, rows);
                    for (group, mask) in sides {
                        let weights = RowWeights::from(factors[*group].clone());
                        sum.add_masked(&factor, &weights, mask)?;
                    }
                }
            }
        }
        for (vectors, factors) in together.iter().zip(&*factors) {
            sum.add_vectors(vectors, factors)?;
        }
        Ok(())
    }

    /// Calls `add` with the clipping factor of each row of a factor.
    fn with_weights(
        &mut self,
        factor: &Factor,
        group: usize,
        add: impl FnOnce(&mut ClippedSum, &RowWeights) -> Result<()>,
    ) -> Result<()> {
        let Self { units, factors, sum, of_tokens, .. } = self;
        let weights =
            |tokens| RowWeights::of_units(factor.rows(), &units.ranges(tokens), &factors[group]);
        match factor.tokens() {
            None => add(sum, of_tokens.entry(group).or_insert_with(|| weights(None))),
            tokens => add(sum, &weights(tokens)),
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
