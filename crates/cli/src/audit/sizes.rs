//! Sample sizes of `audit all`: small ones that show a leak in minutes, or with `--thorough` larger
//! ones for narrow intervals.

use crate::arguments::up_to;
use clap::Args;

/// Sample sizes given by the user; the others default to the quick or thorough sizes.
#[derive(Args)]
pub struct SizeArguments {
    /// Use larger samples, for narrower intervals; takes at least ten times as long
    #[arg(long)]
    thorough: bool,
    /// Maximum number of members and of non-members for membership inference [default: 2000, or
    /// 10000 with `--thorough`]
    #[arg(long, value_parser = up_to(u64::MAX))]
    examples: Option<usize>,
    /// Maximum number of candidates per planted secret, at least 100 [default: 200, or 1000 with
    /// `--thorough`]
    #[arg(long, value_parser = up_to(10_000_000))]
    candidates: Option<usize>,
    /// Number of texts to generate with each model [default: 100, or 200 with `--thorough`]
    #[arg(long, value_parser = up_to(1_000_000))]
    texts: Option<usize>,
    /// Maximum number of tokens per generated text [default: 128, or 256 with `--thorough`]
    #[arg(long = "max-new-tokens", alias = "tokens", value_parser = up_to(1_000_000))]
    tokens: Option<usize>,
    /// Number of texts to mask for each kind of PII [default: 12, or 50 with `--thorough`]
    #[arg(long, value_parser = up_to(1_000_000))]
    targets: Option<usize>,
    /// Number of continuations per masked text to take candidates from [default: 16, or 64 with
    /// `--thorough`]
    #[arg(long, value_parser = up_to(100_000))]
    samples: Option<usize>,
}

/// The sizes of all attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub examples: usize,
    pub candidates: usize,
    pub texts: usize,
    pub tokens: usize,
    pub targets: usize,
    pub samples: usize,
}

const QUICK: Sizes =
    Sizes { examples: 2000, candidates: 200, texts: 100, tokens: 128, targets: 12, samples: 16 };
const THOROUGH: Sizes =
    Sizes { examples: 10_000, candidates: 1000, texts: 200, tokens: 256, targets: 50, samples: 64 };

impl SizeArguments {
    pub fn sizes(&self) -> Sizes {
        let usual = if self.thorough { THOROUGH } else { QUICK };
        Sizes {
            examples: self.examples.unwrap_or(usual.examples),
            candidates: self.candidates.unwrap_or(usual.candidates),
            texts: self.texts.unwrap_or(usual.texts),
            tokens: self.tokens.unwrap_or(usual.tokens),
            targets: self.targets.unwrap_or(usual.targets),
            samples: self.samples.unwrap_or(usual.samples),
        }
    }

    /// Whether all sizes are the quick defaults.
    pub fn is_quick(&self) -> bool {
        self.sizes() == QUICK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        sizes: SizeArguments,
    }

    fn asked(line: &str) -> SizeArguments {
        let words = std::iter::once("all").chain(line.split_whitespace());
        Asked::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).sizes
    }

    #[test]
    fn what_is_given_counts_and_the_rest_is_quick_or_thorough() {
        assert!(asked("").is_quick());
        assert_eq!(asked("--thorough").sizes(), THOROUGH);
        assert_eq!(asked("--texts 7").sizes(), Sizes { texts: 7, ..QUICK });
        assert_eq!(asked("--thorough --targets 3").sizes(), Sizes { targets: 3, ..THOROUGH });
    }
}
