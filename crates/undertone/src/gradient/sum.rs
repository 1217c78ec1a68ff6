//! The sum of all clipped gradients.

use super::clip::Clipped;
use crate::model::{Factor, Gradients, ParameterId, Parameters, Receiver};
use crate::tensor::{self, Matrix, Result};
use std::ops::Range;

/// Grows with every micro-batch of a step; several workers could each have one and add them up before noise is added.
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
    pub(super) fn add(&mut self, factor: Factor, ranges: &[Range<usize>], units: &[f32]) -> Result<()> {
        let scaled = match factor {
            Factor::Product { parameter, input, output_gradient, inputs_first, tokens } => {
                let rows = per_row(input.rows(), ranges, units);
                // The narrower side is scaled. Where a unit counts with 0, both are: zero times infinity is not zero.
                let erase = units.contains(&0.0);
                let (mut input, mut output_gradient) = (input, output_gradient);
                if input.columns() <= output_gradient.columns() || erase {
                    input = tensor::scale_rows(&input, &rows)?;
                    if erase {
                        let kept: Vec<f32> = rows.iter().map(|&x| f32::from(x != 0.0)).collect();
                        output_gradient = tensor::scale_rows(&output_gradient, &kept)?;
                    }
                } else {
                    output_gradient = tensor::scale_rows(&output_gradient, &rows)?;
                }
                Factor::Product { parameter, input, output_gradient, inputs_first, tokens }
            }
            Factor::Rows { parameter, indices, output_gradient } => {
                let rows = per_row(output_gradient.rows(), ranges, units);
                let output_gradient = tensor::scale_rows(&output_gradient, &rows)?;
                Factor::Rows { parameter, indices, output_gradient }
            }
            Factor::Sum { .. } | Factor::Scale { .. } => {
                unreachable!("the gradients of vectors are formed for each unit")
            }
        };
        self.gradients.receive(scaled)
    }

    /// Adds a vector's gradients, one row for each unit.
    pub(super) fn add_vectors(&mut self, parameter: ParameterId, rows: &Matrix, units: &[f32]) -> Result<()> {
        let output_gradient = tensor::scale_rows(rows, units)?;
        self.gradients.receive(Factor::Sum { parameter, output_gradient, tokens: None })
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
