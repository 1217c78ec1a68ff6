//! CIDEr of generated texts with one or more references each, as the package pycocoevalcap computes
//! it: the similarity of a text's n-grams to those of its references, where n-grams in the
//! references of few texts have more weight (tf-idf).
//!
//! ```text
//! weight(g, text) = (occurrences of g in the text) · ln(texts / texts with g in a reference)
//! sim_n(c, r)     = Σ_g min(weight(g, c), weight(g, r)) · weight(g, r) / (‖c‖ ‖r‖)
//! CIDEr           = 10 · mean over texts, references r and n = 1 … 4 of
//!                   sim_n(c, r) · exp(−(pairs of c − pairs of r)² / (2 · 6²))
//! ```
//!
//! Like the package and the E2E NLG challenge, this has the minimum and the length penalty of
//! CIDEr-D (Vedantam et al. 2015). An n-gram that no reference has counts as if one text had it.
//!
//! The words are 13a tokens in lowercase without punctuation. The challenge's script takes those of
//! Stanford's tokenizer, a Java program, without punctuation: held-out references of E2E's test
//! file score 1.8147 with it and 1.8097 here, or 0.6560 and 0.6612 if cut after 12 words.

use super::ngrams;
use super::tokens::lowercase_tokens;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

const ORDERS: usize = 4;
/// Standard deviation of the Gaussian length penalty.
const SIGMA: f64 = 6.0;

/// Counts over texts that determine CIDEr.
#[derive(Clone, Debug, Default)]
pub struct Cider {
    /// Each generated text and its references.
    texts: Vec<(Counts, Vec<Counts>)>,
    /// Number of texts with an n-gram in one of their references.
    frequencies: BTreeMap<String, u64>,
}

/// The n-grams of a text by order; words are joined by spaces. Sorted, for the same sums each time.
type Counts = [BTreeMap<String, u64>; ORDERS];

/// The weights of the n-grams of a text.
struct Weights<'a> {
    by_order: [BTreeMap<&'a str, f64>; ORDERS],
    norms: [f64; ORDERS],
    /// Number of pairs of adjacent words, by which pycocoevalcap measures lengths.
    pairs: u64,
}

impl Cider {
    /// Adds a generated text and its references.
    pub fn add(&mut self, text: &str, references: &[impl AsRef<str>]) {
        let references: Vec<Counts> =
            references.iter().map(|text| counts(&words(text.as_ref()))).collect();
        let ngrams: BTreeSet<&String> =
            references.iter().flatten().flat_map(BTreeMap::keys).collect();
        for ngram in ngrams {
            *self.frequencies.entry(ngram.clone()).or_default() += 1;
        }
        self.texts.push((counts(&words(text)), references));
    }

    /// CIDEr, from 0 to 10. It is 0 for a single text, which has no rare n-grams.
    pub fn score(&self) -> f64 {
        let score = |(text, references): &(Counts, Vec<Counts>)| {
            let text = self.weights(text);
            let similarities = references.iter().map(|r| similarity(&text, &self.weights(r)));
            similarities.fold(0.0, f64::add) / references.len().max(1) as f64
        };
        10.0 * self.texts.iter().map(score).fold(0.0, f64::add) / self.texts.len().max(1) as f64
    }

    fn weights<'a>(&self, counts: &'a Counts) -> Weights<'a> {
        let texts = self.texts.len() as f64;
        let weight = |(ngram, &count): (&'a String, &u64)| {
            let frequency = self.frequencies.get(ngram).copied().unwrap_or(1);
            (ngram.as_str(), count as f64 * (texts.ln() - (frequency as f64).ln()))
        };
        let by_order = counts.each_ref().map(|of_order| of_order.iter().map(weight).collect());
        let norm = |weights: &BTreeMap<&str, f64>| {
            weights.values().map(|weight| weight.powi(2)).sum::<f64>().sqrt()
        };
        Weights { norms: by_order.each_ref().map(norm), by_order, pairs: counts[1].values().sum() }
    }
}

/// The mean over orders of the similarity of a text to a reference, from 0 to 1.
fn similarity(text: &Weights, reference: &Weights) -> f64 {
    let cosine = |order: usize| {
        let common = text.by_order[order].iter().filter_map(|(ngram, &weight)| {
            let other = *reference.by_order[order].get(ngram)?;
            Some(weight.min(other) * other)
        });
        let norms = text.norms[order] * reference.norms[order];
        if norms == 0.0 { 0.0 } else { common.sum::<f64>() / norms }
    };
    let difference = text.pairs.abs_diff(reference.pairs) as f64;
    let penalty = (-difference.powi(2) / (2.0 * SIGMA.powi(2))).exp();
    penalty * (0..ORDERS).map(cosine).sum::<f64>() / ORDERS as f64
}

fn words(text: &str) -> Vec<String> {
    let mut words = lowercase_tokens(text);
    words.retain(|word| word.contains(char::is_alphanumeric));
    words
}

fn counts(words: &[String]) -> Counts {
    std::array::from_fn(|order| {
        let counts = ngrams::counts(words, order + 1).into_iter();
        counts.map(|(ngram, count)| (ngram.join(" "), count)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(texts: &[(&str, &[&str])]) -> f64 {
        let mut cider = Cider::default();
        texts.iter().for_each(|(text, references)| cider.add(text, references));
        cider.score()
    }

    /// By hand: of two texts, the first equals its reference and the second has nothing of it.
    #[test]
    fn a_score_computed_by_hand() {
        let same: (&str, &[&str]) = ("The red cat, asleep!", &["the red cat asleep"]);
        assert!((score(&[same, ("x", &["a dog"])]) - 5.0).abs() < 1e-12);
        // Words that are in all references have no weight, and one pair less costs exp(−1/72).
        let shorter = score(&[("the red", &["the red cat"]), ("the", &["the dog"])]);
        let cosines = 0.5_f64.sqrt() + 0.5_f64.sqrt();
        let by_hand = 10.0 * cosines / 4.0 * (-1.0_f64 / 72.0).exp() / 2.0;
        assert!((shorter - by_hand).abs() < 1e-12, "{shorter}, not {by_hand}");
    }

    #[test]
    fn a_single_text_and_texts_without_words_score_nothing() {
        assert_eq!(score(&[("a b c", &["a b c"])]), 0.0);
        assert_eq!(score(&[("", &["a"]), ("b", &[""]), ("c", &[]), ("!", &["!"])]), 0.0);
        assert_eq!(Cider::default().score(), 0.0);
        let nothing = score(&[("a b", &["c d"]), ("e", &["f"])]);
        assert!(nothing == 0.0 && nothing.is_sign_positive(), "not −0");
    }
}
