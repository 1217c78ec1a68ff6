//! How the numbers of a matrix are stored on a GPU.

use undertone_run::Precision;

/// The format of a stored number. Kernels compute in f32 whatever the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// Four bytes: weights, sums of gradients, and activations unless they are bf16.
    F32,
    /// The upper two bytes of an f32, rounded to nearest.
    Bf16,
    /// Four bits for each number, with the scales of blocks: frozen weights. They are expanded to
    /// one of the others before a kernel reads them.
    Nf4,
}

impl NumberFormat {
    /// Bytes of a number; of NF4, whose numbers have no address of their own, those of none.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Nf4 => 0,
        }
    }

    /// What the kernels call it.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::Bf16 => "bf16",
            Self::Nf4 => "nf4",
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
            // There are no such kernels, so that a launch of one is an error.
            (_, Self::Nf4, _) | (_, _, Self::Nf4) => "of_nf4",
            (_, Self::F32, Self::F32) => "gather_ff",
            (_, Self::F32, Self::Bf16) => "gather_fb",
            (_, Self::Bf16, Self::F32) => "gather_bf",
            (_, Self::Bf16, Self::Bf16) => "gather_bb",
        }
    }
}
