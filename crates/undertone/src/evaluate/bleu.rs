//! Corpus BLEU-4 of generated texts with one or more references each, as computed by sacreBLEU with
//! its default settings: case-sensitive, mteval-v13a tokens, exponential smoothing.
//!
//! ```text
//! p_n  = Σ_texts (n-grams of the text that are in one of its references, each at most as often as
//!        in the reference that has it most often) / Σ_texts (n-grams of the text)    n = 1 … 4
//! BP   = min(1, exp(1 − reference tokens / generated tokens))
//! BLEU = 100 · BP · (p_1 p_2 p_3 p_4)^(1/4)
//! ```
//!
//! The reference tokens of a text are those of the reference whose number of tokens is closest to
//! the text's; of two equally close ones, the shorter. The k-th of the orders without a common
//! n-gram counts as 2⁻ᵏ of an n-gram. BLEU is 0 if no word is in common, or if no text has four
//! words.

use super::ngrams;
use super::tokens::{lowercase_tokens, tokens};

const ORDERS: usize = 4;

/// Counts over texts that determine corpus BLEU.
#[derive(Clone, Debug, Default)]
pub struct Bleu {
    /// Whether texts and references are compared in lowercase.
    lowercase: bool,
    /// Number of common n-grams and of all n-grams of the texts, by order.
    common: [u64; ORDERS],
    all: [u64; ORDERS],
    /// Number of tokens.
    generated: u64,
    reference: u64,
}

impl Bleu {
    /// BLEU of texts in lowercase, as the E2E NLG challenge computes it.
    pub fn lowercase() -> Self {
        Self { lowercase: true, ..Self::default() }
    }

    /// Adds a generated text and its references.
    pub fn add(&mut self, text: &str, references: &[impl AsRef<str>]) {
        let tokens = if self.lowercase { lowercase_tokens } else { tokens };
        let text = tokens(text);
        let references: Vec<_> = references.iter().map(|text| tokens(text.as_ref())).collect();
        let closest = |length: &usize| (length.abs_diff(text.len()), *length);
        self.generated += text.len() as u64;
        self.reference += references.iter().map(Vec::len).min_by_key(closest).unwrap_or(0) as u64;
        for order in 1..=ORDERS {
            let allowed = ngrams::most(&references, order);
            for (ngram, count) in ngrams::counts(&text, order) {
                self.all[order - 1] += count;
                self.common[order - 1] += count.min(allowed.get(ngram).copied().unwrap_or(0));
            }
        }
    }

    /// min(1, exp(1 − reference tokens / generated tokens)); 0 if nothing was generated.
    pub fn brevity_penalty(&self) -> f64 {
        if self.generated == 0 {
            return 0.0;
        }
        (1.0 - self.reference as f64 / self.generated as f64).exp().min(1.0)
    }

    /// BLEU from 0 to 100.
    pub fn score(&self) -> f64 {
        if self.common[0] == 0 || self.all.contains(&0) {
            return 0.0;
        }
        let (mut logarithms, mut half) = (0.0, 1.0);
        for (&common, &all) in self.common.iter().zip(&self.all) {
            let mut common = common as f64;
            if common == 0.0 {
                half /= 2.0;
                common = half;
            }
            logarithms += (common / all as f64).ln();
        }
        100.0 * self.brevity_penalty() * (logarithms / ORDERS as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(text: &str, reference: &str) -> f64 {
        let mut bleu = Bleu::default();
        bleu.add(text, &[reference]);
        bleu.score()
    }

    /// By hand: 6 of 6 words, 3 of 5 bigrams, 1 of 4 trigrams, 0 of 3 four-grams (counted as half
    /// of one).
    #[test]
    fn a_score_computed_by_hand() {
        let actual = score("the cat sat on a mat", "the cat sat a mat on");
        let by_hand = 100.0 * (1.0_f64 * (3.0 / 5.0) * (1.0 / 4.0) * (0.5 / 3.0)).powf(0.25);
        assert!((actual - by_hand).abs() < 1e-9, "{actual}, not {by_hand}");
        // Four of eight tokens: the brevity penalty is exp(1 − 8/4).
        let short = score("a b c d", "a b c d e f g h");
        assert!((short - 100.0 * (-1.0_f64).exp()).abs() < 1e-9, "{short}");
        assert!((score("a b c d", "a b c d") - 100.0).abs() < 1e-9);
        // Three and five tokens are equally close to four: the shorter reference counts.
        let mut bleu = Bleu::default();
        bleu.add("a b c d", &["a b c d e", "b c d"]);
        assert_eq!((bleu.brevity_penalty(), bleu.reference), (1.0, 3));
        assert!((bleu.score() - 100.0).abs() < 1e-9, "{}", bleu.score());
        assert_eq!((score("", "a"), score("x", "a"), score("a", "a")), (0.0, 0.0, 0.0));
    }

    #[test]
    fn lowercase_scores_are_those_of_texts_in_lowercase() {
        let (text, reference) = ("The Cat sat on a MAT", "the cat sat a mat on");
        let mut bleu = Bleu::lowercase();
        bleu.add(text, &[reference]);
        assert_eq!(bleu.score(), score(&text.to_lowercase(), reference));
        assert!(score(text, reference) < bleu.score());
    }
}
