//! The sum of all clipped gradients.

use super::clip::Clipped;
use crate::model::{Factor, Gradients, ParameterId, Parameters, Receiver};
use crate::tensor::{Matrix, Result};
use std::ops::Range;

/// Grows with every micro-batch of a step; several workers could each have one and add them up
/// before noise is added.
#[derive(Debug)]
pub struct ClippedSum {
    gradients: Gradients,
    clipped: Clipped,
}

impl ClippedSum {
    /// Zero.
    pub fn new(parameters: &Parameters) -> Self {
        Self { gradients: Gradients::new(parameters), clipped: Clipped::default() }
    }

    /// What clipping did so far.
    pub fn clipped(&self) -> &Clipped {
        &self.clipped
    }

    /// The sum of one parameter's gradients; none if nothing was added to it.
    pub fn get(&self, parameter: ParameterId) -> Option<&Matrix> {
        self.gradients.get(parameter)
    }

    /// Takes the sums out.
    pub fn take(mut self) -> Vec<Option<Matrix>> {
        self.gradients.take()
    }

    pub(super) fn count(&mut self, clipped: &Clipped) {
        self.clipped.add(clipped);
    }

    /// Adds a factor, each unit's rows times the unit's number.
    pub(super) fn add(
        &mut self,
        factor: &Factor,
        ranges: &[Range<usize>],
        units: &[f32],
    ) -> Result<()> {
        let rows = match factor {
            Factor::Product { input, .. } => input.rows(),
            Factor::Rows { output_gradient, .. }
            | Factor::Sum { output_gradient, .. }
            | Factor::Scale { output_gradient, .. } => output_gradient.rows(),
        };
        self.gradients.add(factor, Some(&per_row(rows, ranges, units)))
    }

    /// Adds only those coordinates of a factor whose mask is 1.
    pub(super) fn add_masked(
        &mut self,
        factor: &Factor,
        ranges: &[Range<usize>],
        units: &[f32],
        mask: &[f32],
    ) -> Result<()> {
        let mut part = Self { gradients: self.gradients.empty(), clipped: Clipped::default() };
        part.add(factor, ranges, units)?;
        let Some(found) = part.gradients.take().swap_remove(factor.parameter().index()) else {
            return Ok(());
        };
        let (rows, columns, device) = (found.rows(), found.columns(), found.device());
        let mut values = found.to_vec()?;
        values.iter_mut().zip(mask).for_each(|(value, mask)| *value *= mask);
        self.gradients.add_matrix(
            factor.parameter(),
            Matrix::from_vec(rows, columns, values).to_device(&device)?,
        )
    }

    /// A vector's gradients, one row for each unit, as a factor.
    pub(super) fn vectors(parameter: ParameterId, rows: &Matrix) -> Factor {
        Factor::Sum { parameter, output_gradient: rows.clone(), tokens: None }
    }
}

/// Plain gradients, without clipping: for training that is not private.
impl Receiver for ClippedSum {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        self.gradients.receive(factor)
    }
}

/// The number of each row's unit.
fn per_row(rows: usize, ranges: &[Range<usize>], units: &[f32]) -> Vec<f32> {
    let mut numbers = vec![0.0; rows];
    for (range, &number) in ranges.iter().zip(units) {
        numbers[range.clone()].fill(number);
    }
    numbers
}
