//! N-grams of tokenized texts and their counts.

use std::collections::HashMap;

/// The n-grams of a text and how often each occurs.
pub(super) fn counts(tokens: &[String], order: usize) -> HashMap<&[String], u64> {
    let mut counts: HashMap<&[String], u64> = HashMap::new();
    tokens.windows(order).for_each(|ngram| *counts.entry(ngram).or_default() += 1);
    counts
}

/// The n-grams of several texts and how often each occurs in the text that has it most often.
pub(super) fn most(texts: &[Vec<String>], order: usize) -> HashMap<&[String], u64> {
    let mut most: HashMap<&[String], u64> = HashMap::new();
    for (ngram, count) in texts.iter().flat_map(|tokens| counts(tokens, order)) {
        let largest = most.entry(ngram).or_default();
        *largest = count.max(*largest);
    }
    most
}
