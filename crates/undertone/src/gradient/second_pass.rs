//! Adds factors to the clipped sum, weighted by the clipping factors of their units.

use super::clip::Clipped;
use super::groups::{ClippingGroups, ParameterGroups};
use super::kept_gradients::KeptGradients;
use super::sum::ClippedSum;
use super::unit::UnitRows;
use super::weights::Weights;
use crate::model::{Factor, Receiver};
use crate::tensor::{Result, RowWeights};
use std::collections::HashMap;

/// The units of a batch with their clipping factors, and the gradients and factors kept for the
/// clipped sum.
pub struct ClippedUnits<'g> {
    pub(super) units: UnitRows,
    pub(super) groups: &'g ClippingGroups,
    pub(super) kept: Vec<Factor>,
    pub(super) kept_gradients: KeptGradients,
    /// Whether factors were dropped.
    pub(super) needs_second_pass: bool,
    /// Clipping factors, `[groups][units]`.
    pub(super) factors: Vec<Vec<f32>>,
    pub(super) clipped: Clipped,
}

impl<'g> ClippedUnits<'g> {
    /// Whether factors were dropped, so that a [second pass](Self::second_pass) must recompute
    /// them. Otherwise, the [sum](Self::sum) uses what was kept.
    pub fn needs_second_pass(&self) -> bool {
        self.needs_second_pass
    }

    /// Adds the clipped gradients to `sum`.
    pub fn sum(mut self, sum: &mut ClippedSum) -> Result<Clipped> {
        let factors = std::mem::take(&mut self.kept);
        let kept_gradients = std::mem::take(&mut self.kept_gradients);
        let clipped = self.clipped.clone();
        let mut pass = self.second_pass(sum)?;
        // A GPU waits for the first factor, so the largest products come first. Each factor is
        // dropped once it is added, since the sums need its memory.
        factors.into_iter().try_for_each(|factor| pass.add(&factor))?;
        pass.add_kept_gradients(&kept_gradients)?;
        Ok(clipped)
    }

    /// Adds the kept gradients, clipped, and returns a receiver that adds the remaining factors
    /// from a second backward pass.
    pub fn second_pass(self, sum: &mut ClippedSum) -> Result<SecondPass<'g, '_>> {
        let Self { units, groups, kept_gradients, factors, clipped, .. } = self;
        sum.count(&clipped);
        let (added, of_tokens) = (KeptGradients::default(), HashMap::new());
        let mut pass = SecondPass { units, groups, factors, sum, added, of_tokens };
        pass.add_kept_gradients(&kept_gradients)?;
        pass.added = kept_gradients;
        Ok(pass)
    }
}

/// Adds every factor to the clipped sum as it arrives, without keeping it: the factors kept by the
/// first pass, or those of a second backward pass.
///
/// A second pass computes the same factors as the first, bit for bit: it runs the same operations
/// on the same values with the same dropout masks. The clipping factors therefore match the
/// gradients that are added.
pub struct SecondPass<'g, 's> {
    units: UnitRows,
    groups: &'g ClippingGroups,
    /// Clipping factors, `[groups][units]`.
    factors: Vec<Vec<f32>>,
    sum: &'s mut ClippedSum,
    /// The gradients kept by the first pass, which have already been added.
    added: KeptGradients,
    /// The clipping factor of each token, by group; most factors have one row per token.
    of_tokens: HashMap<usize, RowWeights>,
}

impl SecondPass<'_, '_> {
    /// Adds a [prepared](prepare) factor.
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

    /// Adds kept gradients.
    fn add_kept_gradients(&mut self, kept: &KeptGradients) -> Result<()> {
        let Self { groups, factors, sum, .. } = self;
        let mut together = vec![Vec::new(); factors.len()];
        for (parameter, gradients) in kept.iter() {
            match groups.of(parameter) {
                None => {}
                Some(ParameterGroups::Plain(group) | ParameterGroups::Weighted(group, _)) => {
                    together[*group].push((parameter, gradients));
                }
                Some(ParameterGroups::Split(sides)) => {
                    for (group, mask) in sides {
                        sum.add_kept_masked((parameter, gradients), &factors[*group], mask)?;
                    }
                }
            }
        }
        for (kept, factors) in together.iter().zip(&*factors) {
            sum.add_kept(kept, factors)?;
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
        if self.added.has(factor.parameter()) {
            return Ok(());
        }
        self.add(&prepare(share, factor)?)
    }
}

/// Converts a factor to the form that ghost norms and sums expect.
pub(super) fn prepare(share: &ParameterGroups, factor: Factor) -> Result<Factor> {
    let factor = factor.rounded()?;
    match share {
        // The bounds on formed norms do not account for rounding of the factors.
        ParameterGroups::Weighted(_, Weights::Elements { .. }) | ParameterGroups::Split(_) => {
            factor.exact()
        }
        ParameterGroups::Plain(_) | ParameterGroups::Weighted(_, Weights::Factored { .. }) => {
            Ok(factor)
        }
    }
}
