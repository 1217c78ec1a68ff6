//! Initial relevance at the model's output.

use crate::TaskHead;
use undertone_settings::InitialRelevance;
use undertone_tensor::Host;

/// The initial relevance of every logit, `[rows, classes or vocabulary]`. For classification it is
/// the one-hot row of the target class, regardless of `initial`.
pub(super) fn initial_relevance(
    initial: InitialRelevance,
    logits: &Host,
    targets: &[u32],
    task_head: TaskHead,
) -> Host {
    let (rows, columns) = (logits.rows(), logits.columns());
    if task_head != TaskHead::CausalLanguageModel {
        let one_hot = |i: usize| {
            let target = targets.get(i).copied().unwrap_or(0) as usize;
            (0..columns).map(move |j| if j == target { 1.0 } else { 0.0 })
        };
        return Host::from_vec(rows, columns, (0..rows).flat_map(one_hot).collect());
    }
    let probabilities: Vec<Vec<f32>> = (0..rows).map(|i| softmax(logits.row(i))).collect();
    let kept: Vec<Vec<usize>> = match initial {
        InitialRelevance::Naive => vec![(0..columns).collect(); rows],
        InitialRelevance::TopK(count) => probabilities.iter().map(|p| largest(p, count)).collect(),
        InitialRelevance::TopP(least) => probabilities.iter().map(|p| nucleus(p, least)).collect(),
        InitialRelevance::Beam(width) => beams(&probabilities, width),
    };
    let mut start = vec![0.0; rows * columns];
    for (i, (kept, probabilities)) in kept.iter().zip(&probabilities).enumerate() {
        kept.iter().for_each(|&j| start[i * columns + j] = probabilities[j]);
    }
    Host::from_vec(rows, columns, start)
}

fn softmax(row: &[f32]) -> Vec<f32> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = row.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// Indices of the `count` largest numbers, largest first.
fn largest(numbers: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]).then(a.cmp(&b)));
    order.truncate(count.max(1));
    order
}

fn nucleus(probabilities: &[f32], least: f32) -> Vec<usize> {
    let mut sum = 0.0;
    let mut kept = largest(probabilities, probabilities.len());
    let count = kept.iter().position(|&j| {
        sum += probabilities[j];
        sum >= least
    });
    kept.truncate(count.map_or(kept.len(), |last| last + 1));
    kept
}

/// The tokens at each position of the `width` most likely sequences.
fn beams(probabilities: &[Vec<f32>], width: usize) -> Vec<Vec<usize>> {
    let width = width.max(1);
    let mut beams: Vec<(f32, Vec<usize>)> = vec![(0.0, Vec::new())];
    for row in probabilities {
        // A token outside the top `width` cannot be part of the best `width` sequences.
        let candidates = largest(row, width);
        let mut next: Vec<(f32, Vec<usize>)> = beams
            .iter()
            .flat_map(|(score, path)| {
                candidates.iter().map(move |&token| {
                    let mut path = path.clone();
                    path.push(token);
                    (score + row[token].ln(), path)
                })
            })
            .collect();
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        next.truncate(width);
        beams = next;
    }
    let tokens = |position: usize| {
        let mut tokens: Vec<usize> = beams.iter().map(|(_, path)| path[position]).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    };
    (0..probabilities.len()).map(tokens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(initial: InitialRelevance) -> Vec<Vec<f32>> {
        let logits: Vec<f32> =
            [0.5_f32, 0.3, 0.15, 0.05, 0.1, 0.2, 0.3, 0.4].iter().map(|p| p.ln()).collect();
        let start = initial_relevance(
            initial,
            &Host::from_vec(2, 4, logits),
            &[0, 1],
            TaskHead::CausalLanguageModel,
        );
        let rounded = |row: &[f32]| row.iter().map(|x| (x * 1e4).round() / 1e4).collect();
        (0..2).map(|i| rounded(start.row(i))).collect()
    }

    #[test]
    fn decoding_strategies_keep_the_important_tokens() {
        assert_eq!(kept(InitialRelevance::TopK(2)), [[0.5, 0.3, 0.0, 0.0], [0.0, 0.0, 0.3, 0.4]]);
        assert_eq!(
            kept(InitialRelevance::TopP(0.75)),
            [[0.5, 0.3, 0.0, 0.0], [0.0, 0.2, 0.3, 0.4]]
        );
        // The two most likely pairs are (0, 3) and (0, 2).
        assert_eq!(kept(InitialRelevance::Beam(2)), [[0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.3, 0.4]]);
        assert_eq!(kept(InitialRelevance::Naive)[1], [0.1, 0.2, 0.3, 0.4]);
    }

    #[test]
    fn a_class_is_one_hot() {
        let start = initial_relevance(
            InitialRelevance::Naive,
            &Host::from_vec(1, 3, vec![1.0, 2.0, 3.0]),
            &[1],
            TaskHead::SequenceClassification,
        );
        assert_eq!(start.row(0), [0.0, 1.0, 0.0]);
    }
}
