//! Activation functions.

/// A function applied to each number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · Φ(x).
    Gelu,
    /// The approximation of GELU by tanh.
    GeluTanh,
    /// x / (1 + e⁻ˣ).
    Silu,
    /// max(x, 0).
    Relu,
    /// tanh x.
    Tanh,
}

impl Activation {
    /// The function's name in a Hugging Face configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "gelu" => Some(Self::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Some(Self::GeluTanh),
            "silu" | "swish" => Some(Self::Silu),
            "relu" => Some(Self::Relu),
            "tanh" => Some(Self::Tanh),
            _ => None,
        }
    }
}
