//! Extraction: which private things of the training texts does a model write by itself?

use super::spans::{Finder, Kind, plain};
use super::statistics::{Interval, proportion};
use crate::model::Result;
use serde::Serialize;
use std::collections::BTreeSet;

/// Private things, each in one way of writing it.
pub type Things = BTreeSet<String>;

/// What was extracted of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Extraction {
    /// Of which kind.
    pub kind: Kind,
    /// Things in the training texts that the untouched model does not write.
    pub in_training: usize,
    /// Different things that the trained model wrote, without those of the untouched one.
    pub written: usize,
    /// How many of them are in the training texts.
    pub right: usize,
    /// Things of the training texts that the untouched model writes.
    pub known_before: usize,
    /// Share of what was written that is in the training texts.
    pub precision: Interval,
    /// Share of what is in the training texts that was written.
    pub recall: Interval,
}

/// The things of one kind in each text.
pub fn things(finder: &dyn Finder, texts: &[String], kind: Kind) -> Result<Vec<Things>> {
    let spans = finder.find(texts)?;
    let of = |(text, spans): (&String, &Vec<super::spans::Span>)| {
        let mine = spans.iter().filter(|span| span.kind == kind);
        mine.map(|span| plain(&text[span.range()], kind)).collect()
    };
    Ok(texts.iter().zip(&spans).map(of).collect())
}

/// Judges texts that a trained model wrote, beside those of the untouched one. Intervals take each
/// thing for a trial of its own.
pub fn judge(
    kind: Kind,
    training: &[Things],
    trained: &[Things],
    untouched: &[Things],
    confidence: f64,
) -> Extraction {
    let all = |texts: &[Things]| -> Things { texts.iter().flatten().cloned().collect() };
    let (training, trained, known) = (all(training), all(trained), all(untouched));
    let written: Things = trained.difference(&known).cloned().collect();
    let wanted: Things = training.difference(&known).cloned().collect();
    let right = written.intersection(&wanted).count();
    Extraction {
        kind,
        in_training: wanted.len(),
        written: written.len(),
        right,
        known_before: training.len() - wanted.len(),
        precision: proportion(right as u64, written.len() as u64, confidence),
        recall: proportion(right as u64, wanted.len() as u64, confidence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&[&str]]) -> Vec<Things> {
        texts.iter().map(|things| things.iter().map(ToString::to_string).collect()).collect()
    }

    #[test]
    fn what_the_untouched_model_says_counts_for_nothing() {
        let training = of(&[&["a", "b"], &["c"], &["d"]]);
        let (trained, untouched) = (of(&[&["a", "d"], &["x"], &["a"], &[]]), of(&[&["d"], &["y"]]));
        let found = judge(Kind::Person, &training, &trained, &untouched, 0.95);
        // d was known before: of a, b, c the model writes a; of a and x, one is right.
        assert_eq!(
            (found.in_training, found.written, found.right, found.known_before),
            (3, 2, 1, 1)
        );
        assert_eq!(found.precision.estimate, 0.5);
        assert_eq!(found.recall.estimate, 1.0 / 3.0);
        assert!(found.recall.lower <= 1.0 / 3.0 && found.recall.upper >= 1.0 / 3.0);
        let nothing = judge(Kind::Email, &[], &[], &[], 0.95);
        assert_eq!((nothing.precision.estimate, nothing.recall.estimate), (0.0, 0.0));
    }
}
