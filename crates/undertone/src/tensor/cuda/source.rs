//! The kernels: which file each is in, and what is compiled for it.

use super::format::NumberFormat;
use undertone_run::Precision;

/// One compiled piece: a file of kernels with what all files share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Activation functions.
    Activation(NumberFormat),
    /// Attention with heads of at most so many features: 32, 64, 128 or 256.
    Attention(Precision, usize),
    /// Attention to keys and values of earlier tokens.
    Cache(NumberFormat),
    /// Copies from one format to another.
    Convert,
    /// Means of released gradients over rows and columns.
    GradientMeans,
    /// Cross-entropy and softmax.
    Loss(NumberFormat),
    /// LayerNorm and RMSNorm.
    Norm(NumberFormat),
    /// Rotary position embedding.
    Rotary(NumberFormat),
    /// Operations on whole rows, and dropout.
    Rows(NumberFormat),
    /// Norms of the gradients of units, in f32 and f64.
    UnitNorms,
    /// Norms of the gradients of units, by tensor cores.
    UnitNormsMma(NumberFormat),
    /// Sums over the rows of units.
    UnitRows(NumberFormat),
    /// Noise and optimiser.
    Update,
}

impl Source {
    /// All of them.
    #[cfg(test)]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Convert, Self::GradientMeans, Self::UnitNorms, Self::Update];
        for precision in Precision::ALL {
            all.extend([32, 64, 128, 256].map(|width| Self::Attention(precision, width)));
        }
        for format in [NumberFormat::F32, NumberFormat::Bf16] {
            let each = [
                Self::Activation,
                Self::Cache,
                Self::Loss,
                Self::Norm,
                Self::Rotary,
                Self::Rows,
                Self::UnitNormsMma,
                Self::UnitRows,
            ];
            all.extend(each.map(|source| source(format)));
        }
        all
    }

    /// A name for files.
    pub fn name(self) -> String {
        let (name, format) = match self {
            Self::Activation(format) => ("activation", format),
            Self::Attention(precision, width) => return format!("attention-{precision}-{width}"),
            Self::Cache(format) => ("cache", format),
            Self::Convert => return "convert".into(),
            Self::GradientMeans => return "gradient-means".into(),
            Self::Loss(format) => ("loss", format),
            Self::Norm(format) => ("norm", format),
            Self::Rotary(format) => ("rotary", format),
            Self::Rows(format) => ("rows", format),
            Self::UnitNorms => return "unit-norms".into(),
            Self::UnitNormsMma(format) => ("unit-norms-mma", format),
            Self::UnitRows(format) => ("unit-rows", format),
            Self::Update => return "update".into(),
        };
        format!("{name}-{}", format.type_name())
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
        const PACKS: &str = include_str!("kernels/packs.cu");
        const UNITS: &str = include_str!("kernels/units.cu");
        let (format, body) = match self {
            Self::Convert => return format!("{COMMON}\n{}", include_str!("kernels/convert.cu")),
            Self::Update => return format!("{COMMON}\n{}", include_str!("kernels/update.cu")),
            Self::GradientMeans => {
                return format!("{COMMON}\n{}", include_str!("kernels/gradient_means.cu"));
            }
            Self::Attention(precision, width) => {
                let tile = super::attention::tile_of(precision, width);
                let head = format!("#define HEAD_WIDTH {width}\n#define HEAD_TILE {tile}\n");
                let body = match precision {
                    Precision::F32 => include_str!("kernels/attention.cu"),
                    Precision::Tf32 => include_str!("kernels/attention_tf32.cu"),
                    Precision::Bf16 => include_str!("kernels/attention_bf16.cu"),
                };
                return format!("{head}{COMMON}\n{body}");
            }
            Self::Activation(format) => (format, include_str!("kernels/activation.cu")),
            Self::Cache(format) => (format, include_str!("kernels/cache.cu")),
            Self::Loss(format) => (format, include_str!("kernels/loss.cu")),
            Self::Norm(format) => (format, include_str!("kernels/norm.cu")),
            Self::Rotary(format) => (format, include_str!("kernels/rotary.cu")),
            Self::Rows(format) => (format, include_str!("kernels/rows.cu")),
            Self::UnitNorms => (NumberFormat::F32, include_str!("kernels/unit_norms.cu")),
            Self::UnitNormsMma(format) => (format, include_str!("kernels/unit_norms_mma.cu")),
            Self::UnitRows(format) => (format, include_str!("kernels/unit_rows.cu")),
        };
        let units = match self {
            Self::UnitNorms | Self::UnitNormsMma(_) | Self::UnitRows(_) => UNITS,
            _ => "",
        };
        format!("{COMMON}\ntypedef {} real;\n{PACKS}\n{units}\n{body}", format.type_name())
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
