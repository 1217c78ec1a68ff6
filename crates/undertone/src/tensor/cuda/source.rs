//! The kernels: which file each is in, and what is compiled for it.

/// One compiled piece: a file of kernels with what all files share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Activation functions.
    Activation,
    /// Attention with heads of at most so many features: 32, 64, 128 or 256.
    Attention(usize),
    /// Attention to keys and values of earlier tokens.
    Cache,
    /// Cross-entropy and softmax.
    Loss,
    /// LayerNorm and RMSNorm.
    Norm,
    /// Rotary position embedding.
    Rotary,
    /// Operations on whole rows, and dropout.
    Rows,
    /// Norms of the gradients of units.
    UnitNorms,
    /// Noise and optimiser.
    Update,
}

impl Source {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Self; 12] = [
        Self::Activation,
        Self::Attention(32),
        Self::Attention(64),
        Self::Attention(128),
        Self::Attention(256),
        Self::Cache,
        Self::Loss,
        Self::Norm,
        Self::Rotary,
        Self::Rows,
        Self::UnitNorms,
        Self::Update,
    ];

    /// A name for files.
    pub fn name(self) -> String {
        match self {
            Self::Activation => "activation".into(),
            Self::Attention(width) => format!("attention-{width}"),
            Self::Cache => "cache".into(),
            Self::Loss => "loss".into(),
            Self::Norm => "norm".into(),
            Self::Rotary => "rotary".into(),
            Self::Rows => "rows".into(),
            Self::UnitNorms => "unit-norms".into(),
            Self::Update => "update".into(),
        }
    }

    /// How the compiler is called for it, beside the architecture. Multiplications and additions
    /// may be fused, except where the numbers must be those of the CPU bit by bit.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Update => &["--std=c++17", "--fmad=false"],
            _ => &["--std=c++17"],
        }
    }

    /// The whole text that is compiled.
    pub fn text(self) -> String {
        const COMMON: &str = include_str!("kernels/common.cu");
        let (head, body) = match self {
            Self::Activation => (String::new(), include_str!("kernels/activation.cu")),
            Self::Attention(width) => {
                let tile = super::attention::tile_of(width);
                let head = format!("#define HEAD_WIDTH {width}\n#define HEAD_TILE {tile}\n");
                (head, include_str!("kernels/attention.cu"))
            }
            Self::Cache => (String::new(), include_str!("kernels/cache.cu")),
            Self::Loss => (String::new(), include_str!("kernels/loss.cu")),
            Self::Norm => (String::new(), include_str!("kernels/norm.cu")),
            Self::Rotary => (String::new(), include_str!("kernels/rotary.cu")),
            Self::Rows => (String::new(), include_str!("kernels/rows.cu")),
            Self::UnitNorms => (String::new(), include_str!("kernels/unit_norms.cu")),
            Self::Update => (String::new(), include_str!("kernels/update.cu")),
        };
        format!("{head}{COMMON}\n{body}")
    }
}

/// A function of a compiled piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    pub source: Source,
    pub name: &'static str,
}

impl Source {
    /// The kernel of this name.
    pub const fn kernel(self, name: &'static str) -> Kernel {
        Kernel { source: self, name }
    }
}
