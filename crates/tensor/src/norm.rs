//! LayerNorm and RMSNorm.

use super::Matrix;

/// Kind of row normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// LayerNorm: (x − mean) / √(variance + ε), scaled and shifted.
    Layer,
    /// RMSNorm: x / √(mean of squares + ε), scaled.
    RootMeanSquare,
    /// RMSNorm whose parameter w is the offset of the scale from 1: γ = 1 + w (Gemma).
    OffsetRootMeanSquare,
}

impl NormKind {
    /// The constant that is added to the parameter to obtain the scale γ.
    pub(crate) fn offset(self) -> f32 {
        match self {
            Self::OffsetRootMeanSquare => 1.0,
            Self::Layer | Self::RootMeanSquare => 0.0,
        }
    }
}

/// Output of normalization, and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct Normalized<M = Matrix> {
    /// γ ⊙ x̂ + β, `[rows, columns]`.
    pub output: M,
    /// x̂, `[rows, columns]`.
    pub normalized: M,
    /// 1 / standard deviation of each row (for RMSNorm, 1 / root mean square), `[rows, 1]`.
    pub inverse_std: M,
}
