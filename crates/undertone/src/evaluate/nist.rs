//! NIST of generated texts with one or more references each, as mteval-v13a computes it by default:
//! 13a tokens in lowercase, n-grams of up to five words. Rare n-grams count more than common ones.
//!
//! ```text
//! info(w_1 … w_n) = log2(count of w_1 … w_(n−1) / count of w_1 … w_n), counted in all references
//! info(w_1)       = log2(tokens / count of w_1)
//! NIST    = penalty · Σ_n Σ_(matching n-grams) info / (n-grams of the generated texts)   n = 1 … 5
//! penalty = exp(−β · ln²(min(1, generated tokens / reference tokens))), which is 1/2 at 2/3
//! ```
//!
//! An n-gram matches at most as often as in the reference that has it most often. The reference
//! tokens of a text are the mean over its references (Doddington 2002). NLTK's `corpus_nist` gives
//! the same for one reference per text. For more, it matches each order with the best one alone,
//! and the score is lower. An order without generated n-grams adds nothing.

use super::ngrams;
use super::tokens::lowercase_tokens;
use std::collections::BTreeMap;
use std::ops::Add;

const ORDERS: usize = 5;

/// Counts over texts that determine NIST.
#[derive(Clone, Debug, Default)]
pub struct Nist {
    /// N-grams of all references; words are joined by spaces. Sorted, for the same sums each time.
    references: BTreeMap<String, u64>,
    /// N-grams of the generated texts that match a reference.
    matching: BTreeMap<String, u64>,
    /// Number of n-grams of the generated texts, by order.
    all: [u64; ORDERS],
    /// Number of tokens of all references.
    tokens: u64,
    /// Number of tokens of a text's references on average, summed over texts.
    mean_tokens: f64,
}

impl Nist {
    /// Adds a generated text and its references.
    pub fn add(&mut self, text: &str, references: &[impl AsRef<str>]) {
        let text = lowercase_tokens(text);
        let references: Vec<_> =
            references.iter().map(|text| lowercase_tokens(text.as_ref())).collect();
        let tokens: usize = references.iter().map(Vec::len).sum();
        self.tokens += tokens as u64;
        self.mean_tokens += tokens as f64 / references.len().max(1) as f64;
        for order in 1..=ORDERS {
            for (ngram, count) in references.iter().flat_map(|text| ngrams::counts(text, order)) {
                *self.references.entry(ngram.join(" ")).or_default() += count;
            }
            let allowed = ngrams::most(&references, order);
            for (ngram, count) in ngrams::counts(&text, order) {
                self.all[order - 1] += count;
                if let Some(&most) = allowed.get(ngram) {
                    *self.matching.entry(ngram.join(" ")).or_default() += count.min(most);
                }
            }
        }
    }

    /// NIST, from 0; good texts have 5 to 12.
    pub fn score(&self) -> f64 {
        let information = |(ngram, &count): (&String, &u64)| {
            let order = ngram.split(' ').count();
            count as f64 * self.information(ngram) / self.all[order - 1] as f64
        };
        self.length_penalty() * self.matching.iter().map(information).fold(0.0, f64::add)
    }

    /// Bits that the last word of a reference's n-gram adds to the words before it.
    fn information(&self, ngram: &str) -> f64 {
        let before = match ngram.rsplit_once(' ') {
            Some((before, _)) => self.references[before],
            None => self.tokens,
        };
        (before as f64 / self.references[ngram] as f64).log2()
    }

    /// The penalty for texts shorter than their references; 0 if nothing was generated.
    fn length_penalty(&self) -> f64 {
        if self.all[0] == 0 {
            return 0.0;
        }
        let logarithm = (self.all[0] as f64 / self.mean_tokens).min(1.0).ln();
        let beta = 2_f64.ln() / 1.5_f64.ln().powi(2);
        (-beta * logarithm.powi(2)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(text: &str, references: &[&str]) -> f64 {
        let mut nist = Nist::default();
        nist.add(text, references);
        nist.score()
    }

    /// By hand: each of the four words has log2(4) bits, and no longer n-gram adds any.
    #[test]
    fn a_score_computed_by_hand() {
        assert!((score("a b c d", &["A b c d"]) - 2.0).abs() < 1e-12);
        assert!((score("d c b a", &["a b c d"]) - 2.0).abs() < 1e-12);
        // Two words of three: the penalty is 1/2. Each word has log2(3) bits.
        assert!((score("a b", &["a b c"]) - 3_f64.log2() / 2.0).abs() < 1e-12);
        // Of five tokens of both references, "a" is three, and twice in the first; the mean length
        // is 2.5.
        let several = score("a a a", &["a a b", "a c"]);
        let words = 2.0 * (5.0_f64 / 3.0).log2() / 3.0;
        let pairs = 3_f64.log2() / 2.0;
        assert!((several - words - pairs).abs() < 1e-12, "{several}");
    }

    #[test]
    fn texts_without_words_score_nothing() {
        assert_eq!((score("", &["a"]), score("a", &[""]), score("a", &[])), (0.0, 0.0, 0.0));
        assert_eq!((score("", &[""]), Nist::default().score()), (0.0, 0.0));
        assert!(score("a", &["b"]).is_sign_positive(), "not −0");
    }
}
