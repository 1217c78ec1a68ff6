//! The sum of the clipped gradients of all privacy units.

use super::clip::Clipped;
use crate::model::{Factor, Gradients, ParameterId, Parameters, Receiver};
use crate::tensor::{CoordinateWeights, Matrix, Result, RowWeights};

/// Clipped sum of one step, accumulated over its micro-batches. Sums from several workers can be
/// added before noise is added.
#[derive(Debug)]
pub struct ClippedSum {
    gradients: Gradients,
    clipped: Clipped,
    /// The unclipped sum, if a published method observes it.
    unclipped: Option<Gradients>,
}

impl ClippedSum {
    /// A sum of zeros.
    pub fn new(parameters: &Parameters) -> Self {
        Self { gradients: Gradients::new(parameters), clipped: Clipped::default(), unclipped: None }
    }

    /// A sum of zeros, with a second sum for unclipped gradients.
    pub(crate) fn with_unclipped(parameters: &Parameters) -> Self {
        Self { unclipped: Some(Gradients::new(parameters)), ..Self::new(parameters) }
    }

    /// The unclipped summed gradient of one parameter; `None` if nothing was added to it, or if no
    /// method observes it.
    pub(crate) fn unclipped(&self, parameter: ParameterId) -> Option<&Matrix> {
        self.unclipped.as_ref()?.get(parameter)
    }

    /// The receiver of unclipped gradients, if a method observes them.
    pub(crate) fn unclipped_mut(&mut self) -> Option<&mut Gradients> {
        self.unclipped.as_mut()
    }

    /// The clipping statistics so far: the number of units and their norms.
    pub fn clipped(&self) -> &Clipped {
        &self.clipped
    }

    /// The summed gradient of one parameter; `None` if nothing was added to it.
    pub fn get(&self, parameter: ParameterId) -> Option<&Matrix> {
        self.gradients.get(parameter)
    }

    /// The summed gradient of each parameter, by parameter index.
    pub fn take(mut self) -> Vec<Option<Matrix>> {
        self.gradients.take()
    }

    pub(super) fn gradients_mut(&mut self) -> &mut Gradients {
        &mut self.gradients
    }

    pub(super) fn set_clipped(&mut self, clipped: Clipped) {
        self.clipped = clipped;
    }

    pub(super) fn count(&mut self, clipped: &Clipped) {
        self.clipped.add(clipped);
    }

    /// Adds a factor, with each row multiplied by the clipping factor of its unit.
    pub(super) fn add(&mut self, factor: &Factor, factors: &RowWeights) -> Result<()> {
        self.gradients.add(factor, Some(factors))
    }

    /// Like [`Self::add`], but only for coordinates whose mask is 1.
    pub(super) fn add_masked(
        &mut self,
        factor: &Factor,
        factors: &RowWeights,
        mask: &CoordinateWeights,
    ) -> Result<()> {
        let (gradients, clipped) = (self.gradients.empty(), Clipped::default());
        let mut part = Self { gradients, clipped, unclipped: None };
        part.add(factor, factors)?;
        let Some(gradient) = part.gradients.take().swap_remove(factor.parameter().index()) else {
            return Ok(());
        };
        let masked = crate::tensor::weigh_rows(&gradient, None, mask)?;
        self.gradients.add_matrix(factor.parameter(), masked)
    }

    /// Adds kept gradients, `[units, coordinates]`, each multiplied by its unit's clipping factor.
    pub(super) fn add_kept(
        &mut self,
        kept: &[(ParameterId, &Matrix)],
        factors: &[f32],
    ) -> Result<()> {
        let gradients: Vec<&Matrix> = kept.iter().map(|(_, gradients)| *gradients).collect();
        for ((id, _), sum) in kept.iter().zip(crate::tensor::vector_sums(&gradients, factors)?) {
            self.gradients.add_coordinates(*id, &sum)?;
        }
        Ok(())
    }

    /// Like [`Self::add_kept`], but only for coordinates whose mask is 1.
    pub(super) fn add_kept_masked(
        &mut self,
        (id, gradients): (ParameterId, &Matrix),
        factors: &[f32],
        mask: &CoordinateWeights,
    ) -> Result<()> {
        for sum in crate::tensor::vector_sums(&[gradients], factors)? {
            let masked = crate::tensor::weigh_rows(&sum, None, mask)?;
            self.gradients.add_coordinates(id, &masked)?;
        }
        Ok(())
    }
}

/// Sums gradients without clipping, for non-private training.
impl Receiver for ClippedSum {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        self.gradients.receive(factor)
    }
}
