//! The words that occur in many units, by differentially private set union (Gopi et al. 2020).
//!
//! # Statement
//!
//! A unit adds 1/√t to each of t of its words, at most W of them. A word is released if its sum
//! with noise of std σ exceeds
//!
//! ```text
//! T = max over t = 1 … W of  1/√t + σ z(1 − (1 − δ)^{1/t}),    P(N > z(p)) = p.
//! ```
//!
//! Consider t words that no other unit has. Their sums are at most 1/√t, so each exceeds T with
//! probability at most 1 − (1 − δ)^{1/t}, and any of them does with probability at most δ: this is
//! the event of the [threshold](undertone_accounting::threshold). Which words a unit adds depends
//! only on the unit itself and a random key.

use super::contribution::weight_of_word;
use super::released::Word;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use undertone_accounting::normal_quantile;

/// Maximum number of words per unit.
pub const MOST_WORDS: usize = 10_000;

/// Maximum length of a word in bytes; longer words are ignored.
const LONGEST: usize = 48;

/// Sums of the words.
pub type Words = HashMap<String, i64>;

/// The words of one unit that count toward the vocabulary, in the order of a keyed hash.
#[derive(Default)]
pub struct OwnWords(BTreeSet<(u64, String)>);

impl OwnWords {
    /// Adds the words of a text: letters and digits, in lowercase.
    pub fn read(&mut self, text: &str, key: u64, most: usize) {
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            if !(1..=LONGEST).contains(&word.len()) {
                continue;
            }
            let word = word.to_lowercase();
            let mut hasher = DefaultHasher::new();
            (key, &word).hash(&mut hasher);
            self.0.insert((hasher.finish(), word));
            if self.0.len() > most {
                self.0.pop_last();
            }
        }
    }

    /// Adds the unit's contribution to the sums.
    pub fn add_to(self, sums: &mut Words) {
        let weight = weight_of_word(self.0.len());
        for (_, word) in self.0 {
            *sums.entry(word).or_default() += weight;
        }
    }
}

/// The threshold T.
pub fn threshold(sigma: f64, delta: f64, words_per_unit: usize) -> f64 {
    let of = |words: usize| {
        let each = -((-delta).ln_1p() / words as f64).exp_m1();
        // The quantile is accurate to about 1e-9.
        1.0 / (words as f64).sqrt() + sigma * (normal_quantile(each) + 1e-8)
    };
    (1..=words_per_unit.max(1)).map(of).fold(0.0, f64::max)
}

/// The words whose noisy sums exceed the threshold, the most common ones first.
pub fn above_threshold(
    sums: &Words,
    threshold: f64,
    noisy: impl FnOnce(&[i64]) -> Vec<f64>,
) -> Vec<Word> {
    // In the order of words, which does not depend on the order of rows.
    let ordered: BTreeMap<&String, i64> = sums.iter().map(|(word, sum)| (word, *sum)).collect();
    let noisy = noisy(&ordered.values().copied().collect::<Vec<_>>());
    let mut words: Vec<Word> = ordered
        .keys()
        .zip(noisy)
        .filter(|(_, weight)| *weight > threshold)
        .map(|(word, weight)| Word { word: (*word).clone(), weight })
        .collect();
    words.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.word.cmp(&b.word)));
    words
}

#[cfg(test)]
mod tests {
    use super::super::NoiseSource;
    use super::super::contribution::ONE;
    use super::*;

    #[test]
    fn a_unit_adds_to_so_many_words_and_no_more() {
        let mut own = OwnWords::default();
        own.read("The cat, the CAT; sat on 1 mat", 7, 100);
        let mut sums = Words::new();
        own.add_to(&mut sums);
        assert_eq!(sums.len(), 6);
        assert!(sums.values().all(|weight| *weight == weight_of_word(6)));
        let mut own = OwnWords::default();
        let text: String = (0..500).map(|i| format!("w{i} ")).collect();
        own.read(&text, 7, 20);
        let mut sums = Words::new();
        own.add_to(&mut sums);
        let norm: f64 = sums.values().map(|w| (*w as f64 / ONE as f64).powi(2)).sum();
        assert!(sums.len() == 20 && norm <= 1.0, "{norm}");
    }

    /// Without noise, or with a lower threshold, words of a single unit would be released.
    #[test]
    fn words_of_one_unit_are_released_with_probability_delta_at_most() {
        let (sigma, delta, trials) = (4.0, 0.02, 4000);
        let mut source = NoiseSource::from_seed(3);
        for words in [1_usize, 5, 50] {
            let own: Words = (0..words).map(|i| (format!("w{i}"), weight_of_word(words))).collect();
            let rate = |threshold: f64, source: &mut NoiseSource| {
                let released = (0..trials).filter(|_| {
                    let noisy = |sums: &[i64]| source.added(sums, sigma);
                    !above_threshold(&own, threshold, noisy).is_empty()
                });
                released.count() as f64 / f64::from(trials)
            };
            let most = delta + 4.0 * (delta / f64::from(trials)).sqrt();
            let measured = rate(threshold(sigma, delta, 50), &mut source);
            assert!(measured <= most, "{words}: {measured}");
            let exact = threshold(sigma, delta, words);
            let below = rate(exact - 0.5 * sigma, &mut source);
            assert!(below > most, "the test would see a lower threshold: {words}: {below}");
        }
    }

    #[test]
    fn common_words_are_released() {
        let sums = Words::from([("a".to_owned(), 100 * ONE), ("b".to_owned(), 300 * ONE)]);
        let mut source = NoiseSource::from_seed(3);
        let words = above_threshold(&sums, 20.0, |sums| source.added(sums, 2.0));
        assert_eq!(words.iter().map(|word| word.word.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    }
}
