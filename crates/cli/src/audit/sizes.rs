//! How much `audit all` tries: enough to see a leak in minutes, or with `--thorough` enough for
//! narrow intervals.

use crate::arguments::up_to;
use clap::Args;

/// What may be given; what is not has the quick or the thorough size.
#[derive(Args)]
pub struct SizeArguments {
    /// Larger samples: narrow intervals, in ten times the time or more
    #[arg(long)]
    thorough: bool,
    /// Members and non-members that membership inference uses at most [default: 2000, thorough:
    /// 10000]
    #[arg(long, value_parser = up_to(u64::MAX))]
    examples: Option<usize>,
    /// Candidates that each planted secret is compared with at most [default: 200, thorough: 1000]
    #[arg(long, value_parser = up_to(10_000_000))]
    candidates: Option<usize>,
    /// Texts that each model generates [default: 100, thorough: 200]
    #[arg(long, value_parser = up_to(1_000_000))]
    texts: Option<usize>,
    /// Tokens of each generated text at most [default: 128, thorough: 256]
    #[arg(long, value_parser = up_to(1_000_000))]
    tokens: Option<usize>,
    /// Texts in which PII of each kind is masked [default: 12, thorough: 50]
    #[arg(long, value_parser = up_to(1_000_000))]
    targets: Option<usize>,
    /// Continuations of each masked text that candidates are taken from [default: 16, thorough: 64]
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

    /// Whether the sample sizes are the small ones.
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
