//! PII reconstruction: PII is masked in a training text, and candidates are ranked by the loss of
//! the text with the mask filled in.

use super::exposure::mean_reciprocal_rank;
use super::spans::{EntityKind, Finder, Span, plain};
use super::statistics::proportion;
use super::texts::{Sampling, Writer};
use crate::model::Result;
use std::collections::BTreeSet;
pub use undertone_run::audit::{Reconstruction, ReconstructionOfKind};

/// A text with one masked PII span.
#[derive(Clone, Debug)]
pub struct Masked {
    /// The text, unmasked.
    pub text: String,
    /// The PII span to mask.
    pub span: Span,
}

impl Masked {
    fn before(&self) -> &str {
        &self.text[..self.span.start]
    }

    fn truth(&self) -> String {
        plain(&self.text[self.span.range()], self.span.kind)
    }

    fn filled(&self, candidate: &str) -> String {
        [self.before(), candidate, &self.text[self.span.end..]].concat()
    }
}

/// The source of candidates.
#[derive(Clone, Copy, Debug)]
pub enum Candidates<'a> {
    /// PII that the model generates when prompted with the text before the mask.
    Written {
        /// Sampled continuations per text.
        samples: usize,
        /// Sampling settings.
        how: Sampling,
    },
    /// A list available to the attacker, such as a directory of names.
    Listed(&'a [String]),
}

/// Rank of the true PII by loss, if it is among the candidates, and the number of candidates.
pub type Ranked = (Option<usize>, usize);

/// Ranks the true PII of a masked text, the `number`-th of all attacked texts.
pub fn attack(
    writer: Writer<'_>,
    (number, target): (usize, &Masked),
    finder: &dyn Finder,
    candidates: Candidates<'_>,
) -> Result<Ranked> {
    let mut tried: Vec<String> = match candidates {
        Candidates::Listed(list) => list.to_vec(),
        Candidates::Written { samples, how } => {
            let prompts = vec![target.before().to_owned(); samples];
            let how = Sampling { seed: how.seed.wrapping_add(number as u64), ..how };
            first_of_kind(finder, &writer.write(&prompts, &how, |_| ())?, target.span.kind)?
        }
    };
    let mut seen = BTreeSet::new();
    tried.retain(|candidate| seen.insert(plain(candidate, target.span.kind)));
    let texts: Vec<String> = tried.iter().map(|candidate| target.filled(candidate)).collect();
    let mean = |(sum, count): (f64, usize)| sum / count.max(1) as f64;
    let losses: Vec<f64> = writer.losses(&texts)?.into_iter().map(mean).collect();
    let truth = target.truth();
    let place = tried.iter().position(|candidate| plain(candidate, target.span.kind) == truth);
    let rank = place.map(|place| {
        let before =
            |i: usize| losses[i] < losses[place] || (losses[i] == losses[place] && i < place);
        1 + (0..losses.len()).filter(|&i| i != place && before(i)).count()
    });
    Ok((rank, tried.len()))
}

/// The first PII string of this kind in each text that has one.
fn first_of_kind(finder: &dyn Finder, texts: &[String], kind: EntityKind) -> Result<Vec<String>> {
    let spans = finder.find(texts)?;
    let first = |(text, spans): (&String, &Vec<Span>)| {
        spans.iter().find(|span| span.kind == kind).map(|span| text[span.range()].to_owned())
    };
    Ok(texts.iter().zip(&spans).filter_map(first).collect())
}

/// The ranks for those texts that the pretrained model does not fill in correctly: fine-tuning has
/// not leaked what the pretrained model already knows.
pub fn not_known(ranks: &[Ranked], pretrained: &[Ranked]) -> Vec<Ranked> {
    let both = ranks.iter().zip(pretrained);
    both.filter(|(_, before)| before.0 != Some(1)).map(|(ranked, _)| *ranked).collect()
}

/// Summarizes both models' ranks for the same masked texts.
pub fn judge_both(
    kind: EntityKind,
    trained: &[Ranked],
    pretrained: &[Ranked],
    k: usize,
    confidence: f64,
) -> ReconstructionOfKind {
    let others = not_known(trained, pretrained);
    ReconstructionOfKind {
        kind,
        trained: judge(trained, k, confidence),
        pretrained: judge(pretrained, k, confidence),
        known_before: trained.len() - others.len(),
        not_known_before: Some(judge(&others, k, confidence)),
    }
}

/// Summarizes ranks as accuracies with confidence intervals.
pub fn judge(ranks: &[Ranked], k: usize, confidence: f64) -> Reconstruction {
    let share = |right: &dyn Fn(&Ranked) -> bool| {
        let right = ranks.iter().filter(|ranked| right(ranked)).count();
        proportion(right as u64, ranks.len() as u64, confidence)
    };
    Reconstruction {
        targets: ranks.len(),
        top_1: share(&|ranked| ranked.0 == Some(1)),
        top_k: share(&|ranked| ranked.0.is_some_and(|rank| rank <= k)),
        k,
        among_candidates: share(&|ranked| ranked.0.is_some()),
        mean_reciprocal_rank: mean_reciprocal_rank(
            &ranks
                .iter()
                .map(|ranked| ranked.0.map_or(f64::INFINITY, |rank| rank as f64))
                .collect::<Vec<_>>(),
        ),
        candidates: ranks.iter().map(|ranked| ranked.1 as f64).sum::<f64>()
            / ranks.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_pretrained_model_fills_in_does_not_count() {
        let trained = [(Some(1), 4), (Some(1), 4), (None, 2), (Some(1), 3), (Some(2), 3)];
        let pretrained = [(Some(1), 4), (None, 4), (Some(1), 2), (Some(2), 3), (None, 3)];
        let result = judge_both(EntityKind::Person, &trained, &pretrained, 5, 0.95);
        assert_eq!((result.known_before, result.trained.top_1.estimate), (2, 0.6));
        // Of the second, the fourth and the fifth text, two are filled in correctly.
        let others = result.not_known_before.unwrap();
        assert_eq!((others.targets, others.top_1.estimate), (3, 2.0 / 3.0));
    }

    #[test]
    fn masks_are_filled_and_ranks_counted() {
        let target = Masked {
            text: "I met Mara Ostrow there.".into(),
            span: Span { start: 6, end: 17, kind: EntityKind::Person },
        };
        assert_eq!((target.before(), target.truth().as_str()), ("I met ", "mara ostrow"));
        assert_eq!(target.filled("Leo Lund"), "I met Leo Lund there.");
        let result = judge(&[(Some(1), 4), (Some(3), 4), (None, 0), (Some(9), 20)], 5, 0.95);
        assert_eq!((result.top_1.estimate, result.top_k.estimate), (0.25, 0.5));
        assert_eq!((result.among_candidates.estimate, result.candidates), (0.75, 7.0));
        assert!((result.mean_reciprocal_rank - (1.0 + 1.0 / 3.0 + 1.0 / 9.0) / 4.0).abs() < 1e-12);
    }
}
