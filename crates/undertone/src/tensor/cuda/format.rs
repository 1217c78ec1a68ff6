//! How the numbers of a matrix are stored on a GPU.

use undertone_run::Precision;

/// The format of a stored number. Kernels compute in f32 whatever the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// Four bytes: weights, sums of gradients, and activations unless they are bf16.
    F32,
    /// The upper two bytes of an f32, rounded to nearest.
    Bf16,
}

impl NumberFormat {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// What the kernels call it.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::Bf16 => "bf16",
        }
    }

    /// The format of activations where products are in a precision.
    pub fn of_activations(precision: Precision) -> Self {
        match precision {
            Precision::F32 | Precision::Tf32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
        }
    }

    /// The kernel `copy` or `gather` from one format to another.
    pub fn pair(name: &str, from: Self, to: Self) -> &'static str {
        match (name, from, to) {
            ("copy", Self::F32, Self::F32) => "copy_ff",
            ("copy", Self::F32, Self::Bf16) => "copy_fb",
            ("copy", Self::Bf16, Self::F32) => "copy_bf",
            ("copy", Self::Bf16, Self::Bf16) => "copy_bb",
            (_, Self::F32, Self::F32) => "gather_ff",
            (_, Self::F32, Self::Bf16) => "gather_fb",
            (_, Self::Bf16, Self::F32) => "gather_bf",
            (_, Self::Bf16, Self::Bf16) => "gather_bb",
        }
    }
}
