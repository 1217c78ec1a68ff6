//! The kernels: their source files and compiler options.

use super::format::NumberFormat;
use crate::Precision;

/// A compilation unit: one file of kernels together with the code that all files share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Activation functions.
    Activation(NumberFormat),
    /// Attention with heads of at most this many features: 32, 64, 128 or 256.
    Attention(Precision, usize),
    /// Attention to cached keys and values of earlier tokens.
    Cache(NumberFormat),
    /// Conversions between formats.
    Convert,
    /// Row and column means of released gradients.
    GradientMeans,
    /// The likely tokens of each row of logits.
    Likely(NumberFormat),
    /// Cross-entropy and softmax.
    Loss(NumberFormat),
    /// LayerNorm and RMSNorm.
    Norm(NumberFormat),
    /// Rotary position embedding.
    Rotary(NumberFormat),
    /// Operations on whole rows, and dropout.
    Rows(NumberFormat),
    /// Per-unit gradient norms, in f32 and f64.
    UnitNorms,
    /// Per-unit gradient norms, by tensor cores.
    UnitNormsMma(NumberFormat),
    /// Sums over the rows of each unit.
    UnitRows(NumberFormat),
    /// Noise and optimizer.
    Update,
}

impl Source {
    /// All sources.
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
                Self::Likely,
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

    /// Name for cache files.
    pub fn name(self) -> String {
        let (name, format) = match self {
            Self::Activation(format) => ("activation", format),
            Self::Attention(precision, width) => return format!("attention-{precision}-{width}"),
            Self::Cache(format) => ("cache", format),
            Self::Convert => return "convert".into(),
            Self::GradientMeans => return "gradient-means".into(),
            Self::Likely(format) => ("likely", format),
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

    /// Compiler options in addition to the architecture. Multiplications and additions may be
    /// fused, except where the results must match those of the CPU bit for bit.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Update => &["--std=c++17", "--fmad=false"],
            _ => &["--std=c++17"],
        }
    }

    /// The complete source text to compile.
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
                const MMA: &str = include_str!("kernels/attention_mma.cu");
                let tile = super::attention::tile_of(precision, width);
                let head =
                    format!("#define HEAD_WIDTH {width}\n#define HEAD_TILE {tile}\n{COMMON}");
                return match precision {
                    Precision::F32 => format!("{head}\n{}", include_str!("kernels/attention.cu")),
                    Precision::Tf32 => format!(
                        "#define ATTENTION_NUMBER float\n{head}\n{MMA}\n{}",
                        include_str!("kernels/attention_tf32.cu")
                    ),
                    Precision::Bf16 => format!(
                        "#define ATTENTION_NUMBER bf16\n{head}\n{MMA}\n{}",
                        include_str!("kernels/attention_bf16.cu")
                    ),
                };
            }
            Self::Activation(format) => (format, include_str!("kernels/activation.cu")),
            Self::Cache(format) => (format, include_str!("kernels/cache.cu")),
            Self::Likely(format) => (format, include_str!("kernels/likely.cu")),
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

/// A function of a compilation unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    pub source: Source,
    pub name: &'static str,
}

impl Source {
    /// The kernel with this name.
    pub const fn kernel(self, name: &'static str) -> Kernel {
        Kernel { source: self, name }
    }
}
