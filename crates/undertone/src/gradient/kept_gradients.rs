//! Kept gradients: the gradient of each unit in a small parameter, formed once during the backward
//! pass and kept until the clipping factors are known.
//!
//! A factor pair of T tokens has T (p + d) values, and its gradient has p d. LoRA's matrices have p
//! = rank and many tokens, so their gradients are many times smaller than their factors. One
//! product per unit forms such a gradient, as in non-private training. Its norm is computed from
//! the stored values, and the clipped sum Σ_i c_i g_i reads them once more, instead of a second
//! product over all tokens. With recomputed activations, no second backward pass is needed.
//!
//! **Statement.** The contribution of unit i to a group of the sum has a norm of at most C_k.
//! *Proof:* The squared norm is the sum of the squares of the stored values, in f64, times 1 +
//! 10⁻⁶. The error of forming these values, in whatever precision, affects the norm and the
//! contribution alike, so no bound on it is needed. In f64 the square of an f32 is exact, even
//! where it would underflow in f32, and a sum of n ≤ 2²⁶ squares, each with up to two weights, has
//! a relative error of less than n 2⁻⁵², which is far below 10⁻⁶. The product of a value and its
//! clipping factor c < 1 is rounded to f32, which makes it larger by at most 2⁻²⁴ of it, or by
//! 2⁻¹⁵⁰ if it is subnormal. The former is far below 10⁻⁶, and so is the latter in relation to
//! C_k = c ‖g_k‖ ≥ 10⁻¹⁰. A factor of 1 changes nothing, and a unit with the factor 0 is left out,
//! whatever its values are. ∎
//!
//! Gradients of several uses of a parameter, and of several sequences of one unit, are added before
//! the norm is computed, so the norm is that of their sum.

use super::groups::{ClippingGroups, ParameterGroups, Part};
use super::weights::Weights;
use crate::model::{Factor, ParameterId, keeps_gradient, keeps_gradient_of_table};
use crate::tensor::unit_norms::{SquareWeights, UnitSums};
use crate::tensor::{self, Matrix, Result};
use std::collections::BTreeMap;

/// How the per-unit gradients of a parameter are stored until their norms are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// Formed, one row per unit.
    KeptGradients,
    /// Never formed: norms come from the factors (ghost norms), and the clipped sum is a product of
    /// the factors, which are kept or recomputed (book-keeping).
    Factors,
}

/// Selects which gradients are kept. Those of vectors (biases, norm weights) always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepGradients {
    /// Gradients smaller than the factors of a short text: see [`keeps_gradient`].
    #[default]
    Small,
    /// Only gradients of vectors.
    Vectors,
    /// All gradients.
    All,
}

impl Holding {
    /// The choice for a parameter of this shape, given its first factor.
    pub(super) fn of(factor: &Factor, shape: [usize; 2], keep: KeepGradients) -> Self {
        let is_kept = match (factor, keep) {
            (Factor::Sum { .. } | Factor::Scale { .. }, _) | (_, KeepGradients::All) => true,
            (_, KeepGradients::Vectors) => false,
            (Factor::Product { .. }, KeepGradients::Small) => keeps_gradient(shape),
            (Factor::Rows { .. }, KeepGradients::Small) => keeps_gradient_of_table(shape),
        };
        if is_kept { Self::KeptGradients } else { Self::Factors }
    }
}

/// Kept gradients of a batch.
#[derive(Debug, Default)]
pub(super) struct KeptGradients {
    /// Row i is the gradient of unit i, in row-major order: `[units, coordinates]`.
    of: BTreeMap<ParameterId, Matrix>,
    /// Whether the norms have been added.
    counted: bool,
}

impl KeptGradients {
    /// Keeps the gradients of a parameter, or adds them to those of its earlier uses.
    pub(super) fn add(&mut self, parameter: ParameterId, gradients: Matrix) -> Result<()> {
        if self.counted {
            let message = "a gradient came after the norms were computed";
            return Err(tensor::Error::Unsupported(message.into()));
        }
        let gradients = match self.of.get(&parameter) {
            Some(earlier) => tensor::add(earlier, &gradients)?,
            None => gradients,
        };
        self.of.insert(parameter, gradients);
        Ok(())
    }

    /// Adds the squared norms. Each is added once, after all uses of the parameter are known:
    /// subtracting the norm of earlier uses would cancel digits of all other norms.
    pub(super) fn add_norms(
        &mut self,
        groups: &ClippingGroups,
        squared: &mut [UnitSums],
    ) -> Result<()> {
        if std::mem::replace(&mut self.counted, true) {
            return Ok(());
        }
        for (&parameter, gradients) in &self.of {
            match groups.of(parameter) {
                None => {}
                Some(ParameterGroups::Weighted(group, Weights::Factored { rows, columns })) => {
                    let weights = SquareWeights::Factored { rows, columns };
                    squared[*group].add_squared_rows(1.0, gradients, weights)?;
                }
                Some(share) => {
                    for Part { group, weights, scale } in share.parts() {
                        let weights = weights.as_deref();
                        let weights =
                            weights.map_or(SquareWeights::Ones, SquareWeights::Coordinates);
                        squared[group].add_squared_rows(scale, gradients, weights)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn has(&self, parameter: ParameterId) -> bool {
        self.of.contains_key(&parameter)
    }

    /// The gradients of each parameter.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ParameterId, &Matrix)> {
        self.of.iter().map(|(&parameter, gradients)| (parameter, gradients))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_matrices_small_tables_and_vectors_are_kept() {
        let matrix = || Matrix::zeros(1, 1);
        let (parameter, tokens) = (ParameterId(0), None);
        let product = Factor::Product {
            parameter,
            input: matrix(),
            output_gradient: matrix(),
            inputs_first: false,
            tokens: None,
        };
        let (indices, output_gradient) = (vec![0], matrix());
        let table = Factor::Rows { parameter, indices, output_gradient, tokens: None };
        let bias = Factor::Sum { parameter, output_gradient: matrix(), tokens };
        for (factor, shape, kept) in [
            // LoRA of any common rank, in both orientations.
            (&product, [8, 768], true),
            (&product, [4096, 64], true),
            (&product, [128_256, 16], true),
            (&product, [4096, 128], false),
            // A head, and a layer of the base model.
            (&product, [3, 768], true),
            (&product, [384, 384], false),
            // Segment embeddings, and word embeddings, however narrow.
            (&table, [2, 768], true),
            (&table, [30_522, 8], false),
            (&bias, [1, 1 << 20], true),
        ] {
            let holding = Holding::of(factor, shape, KeepGradients::Small);
            assert_eq!(holding == Holding::KeptGradients, kept, "{shape:?}");
        }
        let holding = Holding::of(&product, [8, 768], KeepGradients::Vectors);
        assert_eq!(holding, Holding::Factors);
    }
}
