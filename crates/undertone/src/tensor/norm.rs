//! LayerNorm and RMSNorm.

use super::Matrix;

/// Which normalisation of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// LayerNorm: (x − mean) / √(variance + ε), scaled and shifted.
    Layer,
    /// RMSNorm: x / √(mean of squares + ε), scaled.
    RootMeanSquare,
}

/// What normalisation computed, and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct Normalised<M = Matrix> {
    /// γ ⊙ x̂ + β, [rows, columns].
    pub output: M,
    /// x̂, [rows, columns].
    pub normalised: M,
    /// 1 / standard deviation of each row (for RMSNorm, 1 / root of its mean square), [rows, 1].
    pub inverse_std: M,
}
