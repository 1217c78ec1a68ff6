//! Activation functions.

/// An elementwise activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · Φ(x).
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// x / (1 + e⁻ˣ).
    Silu,
    /// max(x, 0).
    Relu,
    /// tanh x.
    Tanh,
}

impl Activation {
    /// Parses the function's name in a Hugging Face configuration.
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
