//! Membership inference attacks: was this example in the training data?

use super::statistics::{Scores, area, rate_at};
pub use undertone_run::audit::Membership;

/// Bootstrap resamples per interval.
const REPETITIONS: usize = 500;

/// Evaluates an attack by its scores; a higher score means more likely a member.
pub fn judge(
    attack: &'static str,
    members: &[f64],
    others: &[f64],
    confidence: f64,
    seed: u64,
) -> Membership {
    let scores = Scores::new(members, others);
    let roc = scores.roc();
    let step = (roc.len() / 400).max(1);
    let last = roc.last().copied();
    Membership {
        attack: attack.to_owned(),
        auc: scores.bootstrap(REPETITIONS, confidence, seed, area),
        rate_at_0_1_percent: scores
            .bootstrap(REPETITIONS, confidence, seed, |curve| rate_at(curve, 1e-3)),
        rate_at_1_percent: scores
            .bootstrap(REPETITIONS, confidence, seed, |curve| rate_at(curve, 1e-2)),
        members: members.len(),
        others: others.len(),
        roc: roc.into_iter().step_by(step).chain(last).collect(),
    }
}

/// Loss attack: the score is the negative loss.
pub fn by_loss(losses: &[f64]) -> Vec<f64> {
    losses.iter().map(|loss| -loss).collect()
}

/// Reference attack: the score is the reference model's loss minus the target model's, which
/// corrects for examples that are easy for every model.
pub fn by_reference(losses: &[f64], reference: &[f64]) -> Vec<f64> {
    losses.iter().zip(reference).map(|(loss, before)| before - loss).collect()
}

/// The likelihood-ratio attack (LiRA) with shadow models (Carlini and others, 2022): for each
/// example, is its confidence more likely under shadow models trained with it or without it?
///
/// `shadows` has one entry for each shadow model: its loss on every example, and whether it was
/// trained on that example. Confidence is ln(p/(1 − p)) with p = e^−loss. Both distributions are
/// modeled as normal, with a mean per example and a variance shared by all examples.
pub fn by_likelihood_ratio(losses: &[f64], shadows: &[(Vec<f64>, Vec<bool>)]) -> Vec<f64> {
    let confidence = |loss: f64| {
        let loss = loss.clamp(1e-9, 50.0);
        -loss - (-(-loss).exp_m1()).ln()
    };
    let of = |example: usize, inside: bool| -> Vec<f64> {
        let seen = shadows.iter().filter(|(_, members)| members[example] == inside);
        seen.map(|(losses, _)| confidence(losses[example])).collect()
    };
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len().max(1) as f64;
    // Variances shared by all examples, without [0] and with [1] the example in training.
    let (mut squares, mut count) = ([0.0; 2], [0.0; 2]);
    for example in 0..losses.len() {
        for (kind, inside) in [false, true].into_iter().enumerate() {
            let values = of(example, inside);
            if values.len() > 1 {
                let mean = mean(&values);
                squares[kind] += values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                count[kind] += values.len() as f64 - 1.0;
            }
        }
    }
    let variance =
        |kind: usize| if count[kind] > 0.0 { (squares[kind] / count[kind]).max(1e-6) } else { 1.0 };
    let density = |x: f64, mean: f64, variance: f64| {
        -0.5 * (x - mean).powi(2) / variance - 0.5 * variance.ln()
    };
    (0..losses.len())
        .map(|example| {
            let (outside, inside) = (of(example, false), of(example, true));
            if outside.is_empty() || inside.is_empty() {
                return 0.0;
            }
            let x = confidence(losses[example]);
            density(x, mean(&inside), variance(1)) - density(x, mean(&outside), variance(0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihood_ratios_beat_plain_losses_when_examples_differ() {
        // Some examples are hard for every model; training on one lowers its loss by a tenth.
        let noise = crate::noise::Noise::new(&crate::noise::Secret::from_seed(4));
        let n = 600;
        let hardness: Vec<f64> = (0..n).map(|i| 0.2 + 0.004 * f64::from(i % 500)).collect();
        let losses_of = |model: u64, inside: &[bool]| -> Vec<f64> {
            let mut wobble = vec![0.0_f32; n as usize];
            noise.add(model, 0, 0.03, 1.0, &mut wobble);
            let of = |i: usize| {
                (hardness[i] * if inside[i] { 0.9 } else { 1.0 }) * (1.0 + f64::from(wobble[i]))
            };
            (0..n as usize).map(of).collect()
        };
        let coin = |model: u64| -> Vec<bool> {
            (0..n as u64).map(|i| ((i * 7 + model * 13) / 3).is_multiple_of(2)).collect()
        };
        let shadows: Vec<_> =
            (1..17).map(|model| (losses_of(model, &coin(model)), coin(model))).collect();
        let truth: Vec<bool> = (0..n).map(|i| i % 2 == 0).collect();
        let losses = losses_of(99, &truth);
        let auc = |scores: Vec<f64>| {
            let pick = |inside: bool| -> Vec<f64> {
                (0..n as usize).filter(|&i| truth[i] == inside).map(|i| scores[i]).collect()
            };
            judge("test", &pick(true), &pick(false), 0.95, 1).auc.estimate
        };
        let (plain, ratio) = (auc(by_loss(&losses)), auc(by_likelihood_ratio(&losses, &shadows)));
        assert!(plain < 0.6 && ratio > 0.9, "{plain} {ratio}");
        assert!(auc(by_reference(&losses, &hardness)) > 0.9);
    }
}
