//! The precision of matrix products and activations.

/// Precision of matrix products and activations. Weights, sums of gradients, per-example norms and
/// noise are f32 or better in every precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Everything in f32.
    #[default]
    F32,
    /// Activations in f32; matrix products round their factors to 10 mantissa bits.
    Tf32,
    /// Activations in bf16, with 7 mantissa bits.
    Bf16,
}

impl Precision {
    /// All precisions, most accurate first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];

    /// The name in run files.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
