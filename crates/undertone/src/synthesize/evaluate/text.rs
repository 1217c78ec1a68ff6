//! Properties of texts: lengths, vocabulary, duplicates, and how much they resemble each other.

use super::{Figure, Texts};
use std::collections::{HashMap, HashSet};

/// Number of texts for which self-BLEU is computed.
const SELF_BLEU: usize = 500;

/// Describes a set of texts. Words are separated by whitespace.
pub fn describe(texts: &Texts, of: &str) -> Vec<Figure> {
    let split: Vec<Vec<&str>> =
        texts.texts.iter().map(|text| text.split_whitespace().collect()).collect();
    let count = split.len().max(1) as f64;
    let mut lengths: Vec<usize> = split.iter().map(Vec::len).collect();
    lengths.sort_unstable();
    let quantile = |share: f64| {
        let at = (share * lengths.len().saturating_sub(1) as f64).round() as usize;
        lengths.get(at).copied().unwrap_or(0) as f64
    };
    let vocabulary: HashSet<&str> = split.iter().flatten().copied().collect();
    let pairs: Vec<&[&str]> = split.iter().flat_map(|words| words.windows(2)).collect();
    let distinct: HashSet<&&[&str]> = pairs.iter().collect();
    let unique: HashSet<&Vec<&str>> = split.iter().collect();
    let step = split.len().div_ceil(SELF_BLEU).max(1);
    let some: Vec<Vec<&str>> = split.iter().step_by(step).cloned().collect();
    let figure = |name, value| Figure::new(name, value, of, texts.audience());
    vec![
        figure("texts", split.len() as f64),
        figure("words per text, median", quantile(0.5)),
        figure("words per text, 95th percentile", quantile(0.95)),
        figure("vocabulary", vocabulary.len() as f64),
        figure("distinct-2", distinct.len() as f64 / pairs.len().max(1) as f64),
        figure("duplicates, share", (split.len() - unique.len()) as f64 / count),
        figure("self-BLEU", self_bleu(&some)),
    ]
}

/// Highest order of n-grams.
const ORDERS: usize = 4;

type Counts<'a> = HashMap<&'a [&'a str], u64>;

fn counts<'a>(text: &'a [&'a str], order: usize) -> Counts<'a> {
    let mut counts = Counts::new();
    text.windows(order).for_each(|ngram| *counts.entry(ngram).or_default() += 1);
    counts
}

/// The maximum number of occurrences of an n-gram in one text, that text, and the maximum in any
/// other text.
#[derive(Clone, Copy, Default)]
struct Most {
    count: u64,
    text: usize,
    other: u64,
}

/// Self-BLEU: the mean BLEU-4, from 0 to 1, of each text with all others as its references. An
/// order without a common n-gram counts as half an n-gram; texts of fewer than four words score 0.
fn self_bleu(texts: &[Vec<&str>]) -> f64 {
    if texts.len() < 2 {
        return 0.0;
    }
    let mut logarithms = vec![0.0_f64; texts.len()];
    for order in 1..=ORDERS {
        let own: Vec<Counts> = texts.iter().map(|text| counts(text, order)).collect();
        let mut most: HashMap<&[&str], Most> = HashMap::new();
        for (text, counts) in own.iter().enumerate() {
            for (ngram, &count) in counts {
                let seen = most.entry(ngram).or_default();
                if count > seen.count {
                    *seen = Most { count, text, other: seen.count };
                } else {
                    seen.other = seen.other.max(count);
                }
            }
        }
        for (text, counts) in own.iter().enumerate() {
            let all: u64 = counts.values().sum();
            let in_others = |ngram: &[&str]| match most.get(ngram) {
                Some(seen) if seen.text == text => seen.other,
                Some(seen) => seen.count,
                None => 0,
            };
            let common: u64 = counts.iter().map(|(ngram, &n)| n.min(in_others(ngram))).sum();
            logarithms[text] += match all {
                0 => f64::NEG_INFINITY,
                _ => ((common as f64).max(0.5) / all as f64).ln() / ORDERS as f64,
            };
        }
    }
    // The brevity penalty, by the reference whose length is closest.
    let penalty = |text: usize| {
        let own = texts[text].len() as f64;
        let others = texts.iter().enumerate().filter(|(other, _)| *other != text);
        let lengths = others.map(|(_, other)| other.len() as f64);
        let closest =
            lengths.min_by(|a, b| (a - own).abs().total_cmp(&(b - own).abs()).then(a.total_cmp(b)));
        (1.0 - closest.unwrap_or(own) / own.max(1.0)).min(0.0).exp()
    };
    let bleu = logarithms.iter().enumerate().map(|(text, log)| penalty(text) * log.exp());
    bleu.sum::<f64>() / texts.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(texts: &[&str], name: &str) -> f64 {
        let texts = Texts::public(texts.iter().map(ToString::to_string).collect());
        let figures = describe(&texts, "texts");
        figures.iter().find(|figure| figure.name == name).unwrap().value
    }

    #[test]
    fn texts_are_described() {
        let texts = ["the sun is warm", "the sun is warm", "a dog", "a cat ran on"];
        assert_eq!(value(&texts, "words per text, median"), 4.0);
        assert_eq!(value(&texts, "vocabulary"), 9.0);
        assert_eq!(value(&texts, "duplicates, share"), 0.25);
        assert_eq!(value(&texts, "distinct-2"), 7.0 / 10.0);
        assert_eq!(value(&[], "duplicates, share"), 0.0);
    }

    #[test]
    fn equal_texts_resemble_each_other() {
        let equal = ["the sun is warm today"; 3];
        assert!((value(&equal, "self-BLEU") - 1.0).abs() < 1e-12);
        // Two texts that share the first three of five words: 3/5, 2/4, 1/3 and half of 1/2.
        let half = ["a b c d e", "a b c x y"];
        let expected = (0.6_f64 * 0.5 / 3.0 * 0.25).powf(0.25);
        assert!((value(&half, "self-BLEU") - expected).abs() < 1e-12);
        assert!(value(&["a b c d", "e f g h"], "self-BLEU") < 0.25);
    }
}
