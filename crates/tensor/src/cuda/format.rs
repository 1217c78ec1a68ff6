//! Storage formats of matrices on a GPU.

use crate::Precision;

/// The format of stored values. Kernels compute in f32 in every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// Four bytes: weights, sums of gradients, and activations unless they are bf16.
    F32,
    /// The upper two bytes of an f32, rounded to nearest.
    Bf16,
    /// Four bits per value plus block scales: frozen weights. Expanded to one of the other formats
    /// before a kernel reads them.
    Nf4,
}

impl NumberFormat {
    /// Bytes per value; 0 for NF4, whose values are not addressable.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Nf4 => 0,
        }
    }

    /// The type's name in the kernels.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::Bf16 => "bf16",
            Self::Nf4 => "nf4",
        }
    }

    /// The format of activations for a given precision of products.
    pub fn of_activations(precision: Precision) -> Self {
        match precision {
            Precision::F32 | Precision::Tf32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
        }
    }

    /// The kernel `copy` or `gather` that converts from one format to another.
    pub fn pair(name: &str, from: Self, to: Self) -> &'static str {
        match (name, from, to) {
            ("copy", Self::F32, Self::F32) => "copy_ff",
            ("copy", Self::F32, Self::Bf16) => "copy_fb",
            ("copy", Self::Bf16, Self::F32) => "copy_bf",
            ("copy", Self::Bf16, Self::Bf16) => "copy_bb",
            // No such kernel exists, so launching it is an error.
            (_, Self::Nf4, _) | (_, _, Self::Nf4) => "of_nf4",
            (_, Self::F32, Self::F32) => "gather_ff",
            (_, Self::F32, Self::Bf16) => "gather_fb",
            (_, Self::Bf16, Self::F32) => "gather_bf",
            (_, Self::Bf16, Self::Bf16) => "gather_bb",
        }
    }
}
