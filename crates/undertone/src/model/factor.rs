//! What a layer hands out about the gradient of its parameters.
//!
//! A backward pass never computes the gradient of a weight. It hands out the *factors* from which
//! it can be computed, for the whole batch or for each example, with whatever clipping and
//! weighting: row `i` of each factor belongs to token `i` of the batch.

use super::parameters::{ParameterId, Parameters};
use crate::tensor::{self, Matrix, Output};

/// The factors of one parameter's gradient.
#[derive(Clone, Debug)]
pub enum Factor {
    /// y = x Wᵀ: the gradient is eᵀ a, or aᵀ e where the weight is stored with inputs as rows.
    Product {
        /// The weight.
        parameter: ParameterId,
        /// a: one row of inputs for each token.
        input: Matrix,
        /// e: one row of output gradients for each token.
        output_gradient: Matrix,
        /// Whether the weight is stored as [inputs, outputs] and not as [outputs, inputs].
        inputs_first: bool,
        /// For each row, the token that it belongs to, if rows are not tokens.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
    /// y = x + b: the gradient is the sum of the rows of e.
    Sum {
        /// The bias.
        parameter: ParameterId,
        /// e.
        output_gradient: Matrix,
        /// As above.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
    /// y = γ ⊙ x̂: the gradient is the sum of the rows of x̂ ⊙ e.
    Scale {
        /// γ.
        parameter: ParameterId,
        /// x̂.
        input: Matrix,
        /// e.
        output_gradient: Matrix,
        /// As above.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
    /// y = `table[i]`: row `i` of the gradient is the sum of those rows of e whose index is `i`.
    Rows {
        /// The table.
        parameter: ParameterId,
        /// Which row of the table each token took.
        indices: Vec<u32>,
        /// e.
        output_gradient: Matrix,
    },
}

impl Factor {
    /// Whose gradient it is.
    pub fn parameter(&self) -> ParameterId {
        match self {
            Self::Product { parameter, .. }
            | Self::Sum { parameter, .. }
            | Self::Scale { parameter, .. }
            | Self::Rows { parameter, .. } => *parameter,
        }
    }
}

/// Takes factors as the backward pass finds them, the last layer's first. One parameter may come
/// several times.
pub trait Receiver {
    /// Takes one.
    fn receive(&mut self, factor: Factor) -> tensor::Result<()>;
}

/// Plain gradients of the whole batch, computed at once so that nothing has to be kept.
#[derive(Debug, Default)]
pub struct Gradients {
    sums: Vec<Option<Matrix>>,
    shapes: Vec<(usize, usize)>,
}

impl Gradients {
    /// No gradient yet for any of the parameters.
    pub fn new(parameters: &Parameters) -> Self {
        let shapes = parameters.iter().map(|(_, p)| (p.value.rows(), p.value.columns())).collect();
        Self { sums: vec![None; parameters.len()], shapes }
    }

    /// The gradient of one parameter, if it took part.
    pub fn get(&self, id: ParameterId) -> Option<&Matrix> {
        self.sums[id.0].as_ref()
    }

    /// Takes all gradients out.
    pub fn take(&mut self) -> Vec<Option<Matrix>> {
        std::mem::replace(&mut self.sums, vec![None; self.shapes.len()])
    }
}

impl Gradients {
    /// Adds a factor, each of its rows times a weight, or as it is.
    pub(crate) fn add(&mut self, factor: &Factor, weights: Option<&[f32]>) -> tensor::Result<()> {
        let id = factor.parameter();
        let (rows, columns) = self.shapes[id.0];
        let earlier = self.sums[id.0].take();
        let scaled = |rows: &Matrix| match weights {
            Some(weights) => tensor::scale_rows(rows, weights),
            None => Ok(rows.clone()),
        };
        let gradient = match factor {
            Factor::Product { input, output_gradient, inputs_first, .. } => {
                let (left, right) =
                    if *inputs_first { (input, output_gradient) } else { (output_gradient, input) };
                let mut sum = match earlier {
                    Some(earlier) => Output::onto(earlier),
                    None => Output::new(&left.device(), rows, columns),
                };
                match weights {
                    Some(weights) => sum.add_weighted_product(left, weights, right)?,
                    None => sum.add_product(0..columns, 1.0, left.transposed(), right.plain())?,
                }
                self.sums[id.0] = Some(sum.finish()?);
                return Ok(());
            }
            Factor::Sum { output_gradient, .. } => tensor::column_sums(&scaled(output_gradient)?)?,
            Factor::Scale { input, output_gradient, .. } => {
                tensor::column_sums_of_product(input, &scaled(output_gradient)?)?
            }
            Factor::Rows { indices, output_gradient, .. } => {
                let output_gradient = scaled(output_gradient)?;
                self.sums[id.0] = Some(match earlier {
                    Some(earlier) => tensor::scatter_onto(earlier, &output_gradient, indices)?,
                    None => tensor::scatter(&output_gradient, indices, rows)?,
                });
                return Ok(());
            }
        };
        self.sums[id.0] = earlier;
        self.add_matrix(id, gradient)
    }

    /// Adds a gradient that was formed.
    pub(crate) fn add_matrix(&mut self, id: ParameterId, gradient: Matrix) -> tensor::Result<()> {
        self.sums[id.0] = Some(match self.sums[id.0].take() {
            Some(earlier) => tensor::add(&earlier, &gradient)?,
            None => gradient,
        });
        Ok(())
    }

    /// Nothing, for the same parameters.
    pub(crate) fn empty(&self) -> Self {
        Self { sums: vec![None; self.shapes.len()], shapes: self.shapes.clone() }
    }
}

impl Receiver for Gradients {
    fn receive(&mut self, factor: Factor) -> tensor::Result<()> {
        self.add(&factor, None)
    }
}
