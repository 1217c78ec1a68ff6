//! Factors of parameter gradients, as returned by the backward pass.
//!
//! A backward pass never computes the gradient of a weight. It returns the *factors* (layer inputs
//! `a` and output gradients `e`, `[tokens, features]`) from which per-example norms (ghost
//! clipping), per-example gradients or the clipped sum over the batch (book-keeping) are computed.
//! Row `i` of each factor belongs to token `i` of the batch.

use super::parameters::{ParameterId, Parameters};
use undertone_tensor::{self as tensor, Matrix, Output, RowWeights};

/// The factors of one parameter's gradient.
#[derive(Clone, Debug)]
pub enum Factor {
    /// Linear layer, y = x Wᵀ: the gradient is eᵀ a, or aᵀ e if the weight is `[inputs, outputs]`.
    Product {
        parameter: ParameterId,
        /// a: inputs of the layer, `[tokens, inputs]`.
        input: Matrix,
        /// e: gradient of the loss with respect to the layer's outputs, `[tokens, outputs]`.
        output_gradient: Matrix,
        /// Whether the weight is stored as `[inputs, outputs]` rather than `[outputs, inputs]`.
        inputs_first: bool,
        /// Token of each row, if rows do not correspond one-to-one to tokens.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
    /// Bias, y = x + b: the gradient is the sum of the rows of e.
    Sum {
        parameter: ParameterId,
        /// e, `[tokens, outputs]`.
        output_gradient: Matrix,
        /// Token of each row, if rows do not correspond one-to-one to tokens.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
    /// Normalization weight, y = γ ⊙ x̂: the gradient is the sum of the rows of x̂ ⊙ e.
    Scale {
        parameter: ParameterId,
        /// x̂, `[tokens, hidden]`.
        input: Matrix,
        /// e, `[tokens, hidden]`.
        output_gradient: Matrix,
        /// Token of each row, if rows do not correspond one-to-one to tokens.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
    /// Embedding, y = `table[i]`: row `i` of the gradient is the sum of the rows of e with index
    /// `i`.
    Rows {
        parameter: ParameterId,
        /// Row of the embedding table for each token.
        indices: Vec<u32>,
        /// e, `[tokens, hidden]`.
        output_gradient: Matrix,
        /// Token of each row, if rows do not correspond one-to-one to tokens.
        tokens: Option<std::sync::Arc<Vec<u32>>>,
    },
}

impl Factor {
    /// The same factor with values and products in f32, whatever the model's precision.
    pub fn exact(mut self) -> tensor::Result<Self> {
        match &mut self {
            Self::Product { input, output_gradient, .. }
            | Self::Scale { input, output_gradient, .. } => {
                *input = input.exact()?;
                *output_gradient = output_gradient.exact()?;
            }
            Self::Sum { output_gradient, .. } | Self::Rows { output_gradient, .. } => {
                *output_gradient = output_gradient.exact()?;
            }
        }
        Ok(self)
    }

    /// The same factor, rounded as matrix products of its precision round it, so that norms are
    /// computed from exactly the values that are summed.
    pub fn rounded(mut self) -> tensor::Result<Self> {
        if let Self::Product { input, output_gradient, .. } = &mut self {
            *input = input.as_factor()?;
            *output_gradient = output_gradient.as_factor()?;
        }
        Ok(self)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Product { output_gradient, .. }
            | Self::Sum { output_gradient, .. }
            | Self::Scale { output_gradient, .. }
            | Self::Rows { output_gradient, .. } => output_gradient.rows(),
        }
    }

    /// Token of each row, if rows do not correspond one-to-one to tokens.
    pub fn tokens(&self) -> Option<&[u32]> {
        match self {
            Self::Product { tokens, .. }
            | Self::Sum { tokens, .. }
            | Self::Scale { tokens, .. }
            | Self::Rows { tokens, .. } => tokens.as_ref().map(|tokens| tokens.as_slice()),
        }
    }

    /// The parameter to which the gradient belongs.
    pub fn parameter(&self) -> ParameterId {
        match self {
            Self::Product { parameter, .. }
            | Self::Sum { parameter, .. }
            | Self::Scale { parameter, .. }
            | Self::Rows { parameter, .. } => *parameter,
        }
    }
}

/// Receives factors during the backward pass, starting with the last layer. A parameter may occur
/// several times, for example a tied weight.
pub trait Receiver {
    fn receive(&mut self, factor: Factor) -> tensor::Result<()>;
}

/// Non-private gradients, summed over the batch as factors arrive so that no factor is stored.
#[derive(Debug, Default)]
pub struct Gradients {
    sums: Vec<Option<Matrix>>,
    shapes: Vec<(usize, usize)>,
}

impl Gradients {
    /// Creates an accumulator without any gradient.
    pub fn new(parameters: &Parameters) -> Self {
        let shapes = parameters.iter().map(|(_, p)| (p.value.rows(), p.value.columns())).collect();
        Self { sums: vec![None; parameters.len()], shapes }
    }

    /// The gradient of a parameter, if any of its factors arrived.
    pub fn get(&self, id: ParameterId) -> Option<&Matrix> {
        self.sums[id.0].as_ref()
    }

    /// Takes all gradients, indexed by parameter, and resets the accumulator.
    pub fn take(&mut self) -> Vec<Option<Matrix>> {
        std::mem::replace(&mut self.sums, vec![None; self.shapes.len()])
    }
}

impl Gradients {
    /// Adds the gradient of a factor, with each row scaled by its weight (such as a clipping
    /// factor) if weights are given.
    pub fn add(&mut self, factor: &Factor, weights: Option<&RowWeights>) -> tensor::Result<()> {
        let id = factor.parameter();
        let (rows, columns) = self.shapes[id.0];
        let earlier = self.sums[id.0].take();
        let scaled = |rows: &Matrix| match weights {
            Some(weights) => tensor::scale_rows(rows, weights.values()),
            None => Ok(rows.clone()),
        };
        let gradient = match factor {
            Factor::Product { input, output_gradient, inputs_first, .. } => {
                let (left, right) =
                    if *inputs_first { (input, output_gradient) } else { (output_gradient, input) };
                let mut sum = match earlier {
                    Some(earlier) => Output::onto(earlier),
                    None => Output::sum(&left.device(), rows, columns),
                };
                match weights {
                    Some(weights) => sum.add_weighted_product(left, weights, right)?,
                    None => sum.add_product(0..columns, 1.0, left.transposed(), right.plain())?,
                }
                self.sums[id.0] = Some(sum.finish()?);
                return Ok(());
            }
            Factor::Sum { output_gradient, .. } => match weights {
                Some(weights) => tensor::weighted_column_sums(output_gradient, weights.values())?,
                None => tensor::column_sums(output_gradient)?,
            },
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

    /// Adds a precomputed gradient.
    pub fn add_matrix(&mut self, id: ParameterId, gradient: Matrix) -> tensor::Result<()> {
        self.sums[id.0] = Some(match self.sums[id.0].take() {
            Some(earlier) => tensor::add(&earlier, &gradient)?,
            None => gradient,
        });
        Ok(())
    }

    /// Adds a precomputed gradient whose coordinates are in row-major order.
    pub fn add_coordinates(&mut self, id: ParameterId, gradient: &Matrix) -> tensor::Result<()> {
        let (_, columns) = self.shapes[id.0];
        self.add_matrix(id, gradient.reshape_to_columns(columns)?)
    }

    /// An empty accumulator for the same parameters.
    pub fn empty(&self) -> Self {
        Self { sums: vec![None; self.shapes.len()], shapes: self.shapes.clone() }
    }
}

impl Receiver for Gradients {
    fn receive(&mut self, factor: Factor) -> tensor::Result<()> {
        self.add(&factor, None)
    }
}
