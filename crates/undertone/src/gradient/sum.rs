//! The sum of the clipped gradients of all privacy units.

use super::clip::Clipped;
use crate::model::{Factor, Gradients, ParameterId, Parameters, Receiver};
use crate::tensor::{CoordinateWeights, Matrix, Result, RowWeights};

/// Clipped sum of one step, accumulated over its micro-batches. Sums of several workers can be
/// added up before noise is added.
#[derive(Debug)]
pub struct ClippedSum {
    gradients: Gradients,
    clipped: Clipped,
    /// The sum without clipping, where a published method looks at it.
    unclipped: Option<Gradients>,
}

impl ClippedSum {
    /// A sum of zeros.
    pub fn new(parameters: &Parameters) -> Self {
        Self { gradients: Gradients::new(parameters), clipped: Clipped::default(), unclipped: None }
    }

    /// A sum of zeros, with a sum of gradients that are not clipped beside it.
    pub(crate) fn with_unclipped(parameters: &Parameters) -> Self {
        Self { unclipped: Some(Gradients::new(parameters)), ..Self::new(parameters) }
    }

    /// The summed gradient of one parameter without clipping; `None` if nothing was added to it,
    /// or nobody looks at it.
    pub(crate) fn unclipped(&self, parameter: ParameterId) -> Option<&Matrix> {
        self.unclipped.as_ref()?.get(parameter)
    }

    /// What receives gradients that are not clipped, if anybody looks at them.
    pub(crate) fn unclipped_mut(&mut self) -> Option<&mut Gradients> {
        self.unclipped.as_mut()
    }

    /// How many units were clipped so far, and their norms.
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

    /// Adds a factor with each row multiplied by the clipping factor of its unit.
    pub(super) fn add(&mut self, factor: &Factor, factors: &RowWeights) -> Result<()> {
        self.gradients.add(factor, Some(factors))
    }

    /// As [`Self::add`], for the coordinates whose mask is 1 only.
    pub(super) fn add_masked(
        &mut self,
        factor: &Factor,
        factors: &RowWeights,
        mask: &CoordinateWeights,
    ) -> Result<()> {
        let (gradients, clipped) = (self.gradients.empty(), Clipped::default());
        let mut part = Self { gradients, clipped, unclipped: None };
        part.add(factor, factors)?;
        let Some(found) = part.gradients.take().swap_remove(factor.parameter().index()) else {
            return Ok(());
        };
        let masked = crate::tensor::weigh_rows(&found, None, mask)?;
        self.gradients.add_matrix(factor.parameter(), masked)
    }

    /// Adds per-unit gradients of vector parameters, `[units, coordinates]`, each unit's multiplied
    /// by its clipping factor.
    pub(super) fn add_vectors(
        &mut self,
        vectors: &[(ParameterId, &Matrix)],
        units: &[f32],
    ) -> Result<()> {
        let rows: Vec<&Matrix> = vectors.iter().map(|(_, rows)| *rows).collect();
        for ((id, _), sum) in vectors.iter().zip(crate::tensor::vector_sums(&rows, units)?) {
            self.gradients.add_matrix(*id, sum)?;
        }
        Ok(())
    }

    /// Per-unit gradients of a vector parameter, `[units, coordinates]`, as a factor.
    pub(super) fn vectors(parameter: ParameterId, rows: &Matrix) -> Factor {
        Factor::Sum { parameter, output_gradient: rows.clone(), tokens: None }
    }
}

/// Sums gradients without clipping, for non-private training.
impl Receiver for ClippedSum {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        self.gradients.receive(factor)
    }
}
