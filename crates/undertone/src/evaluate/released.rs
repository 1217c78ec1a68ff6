//! Metrics on private validation data, with noise.
//!
//! # Statement
//!
//! Every example of the validation file has a value in [0, 1]: 1 for a wrong class and 0 for the
//! right one, or the loss, clipped to [0, C] and divided by C. A unit whose examples have mean
//! value m adds (m, 1 − m) to a sum. These two numbers are non-negative and add up to 1, so adding
//! or removing a unit moves the sum by an ℓ2 norm of at most 1, whatever the model is. (Sums are
//! integers in units of 2⁻²⁰, rounded down.) With noise of std σ on both numbers, a release is a
//! Gaussian mechanism with noise multiplier σ. E of them, on models that may depend on earlier
//! releases, are one Gaussian mechanism with noise multiplier σ/√E: this is the ledger's entry,
//! written before the first release. The metric is a function of the two noisy numbers, their
//! ratio. The number of units need not be public.
//!
//! A unit that has rows in both the training file and the validation file is part of both kinds of
//! releases. The ledger composes them, so this case is covered.

use super::{Prediction, likeliest};
use crate::data::{Example, Target};
use crate::model::TaskHead;
use crate::statistics::{NoiseSource, ONE};
use std::collections::BTreeMap;
use undertone_run::ReleasedMetric;

/// C: the loss of an example, in nats, is clipped to this. About the loss of guessing uniformly
/// among the tokens of a vocabulary.
pub const MOST_LOSS: f64 = 10.0;

/// Values of the units of a validation file.
#[derive(Clone, Debug)]
pub struct UnitValues {
    is_classifier: bool,
    /// Sum of the values, and number of examples.
    units: BTreeMap<u32, (f64, u32)>,
}

impl UnitValues {
    pub fn new(task_head: TaskHead) -> Self {
        let is_classifier = task_head == TaskHead::SequenceClassification;
        Self { is_classifier, units: BTreeMap::new() }
    }

    pub fn add(&mut self, example: &Example, prediction: &Prediction) {
        let Some(loss) = prediction.loss else { return };
        let value = match example.target {
            Target::Class(class) if self.is_classifier => {
                f64::from(u8::from(likeliest(&prediction.logits) != class as usize))
            }
            _ => bounded(f64::from(loss)),
        };
        let (sum, examples) = self.units.entry(example.unit).or_default();
        *sum += value;
        *examples += 1;
    }

    /// The sum of the units' contributions, before noise.
    fn sums(&self) -> [i64; 2] {
        let mut sums = [0, 0];
        for (sum, examples) in self.units.values() {
            let mean = (sum / f64::from(*examples)).clamp(0.0, 1.0);
            let value = (ONE as f64 * mean).floor() as i64;
            sums[0] += value;
            sums[1] += ONE - value;
        }
        sums
    }

    /// The metric after an epoch, with noise of std `sigma` on both sums. This is a release, which
    /// must already be recorded.
    pub fn released(&self, epoch: u64, sigma: f64, noise: &mut NoiseSource) -> ReleasedMetric {
        let noisy = noise.added(&self.sums(), sigma);
        let [value, rest] = [noisy[0].max(0.0), noisy[1].max(0.0)];
        let units = (value + rest).max(1.0);
        let share = if value + rest > 0.0 { value / (value + rest) } else { 1.0 };
        // The ratio's std to first order.
        let std = sigma / units * (share * share + (1.0 - share) * (1.0 - share)).sqrt();
        match self.is_classifier {
            true => ReleasedMetric { epoch, accuracy: Some(1.0 - share), loss: None, std },
            false => {
                let loss = Some(MOST_LOSS * share);
                ReleasedMetric { epoch, accuracy: None, loss, std: MOST_LOSS * std }
            }
        }
    }
}

/// A loss as a value in [0, 1]; NaN counts as the largest.
fn bounded(loss: f64) -> f64 {
    if loss.is_nan() { 1.0 } else { loss.clamp(0.0, MOST_LOSS) / MOST_LOSS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(unit: u32, class: u32) -> Example {
        Example { unit, target: Target::Class(class), ..Example::default() }
    }

    fn said(loss: f32, logits: &[f32]) -> Prediction {
        Prediction { loss: Some(loss), predictions: 1, logits: logits.to_vec() }
    }

    fn norm_of_change(with: [i64; 2], without: [i64; 2]) -> f64 {
        let change = |i: usize| (with[i] - without[i]) as f64 / ONE as f64;
        change(0).hypot(change(1))
    }

    /// Whatever a unit has, a thousand examples or an infinite loss, it moves the sums by at
    /// most 1.
    #[test]
    fn a_unit_moves_the_sums_by_at_most_1() {
        for head in [TaskHead::SequenceClassification, TaskHead::CausalLanguageModel] {
            let mut others = UnitValues::new(head);
            others.add(&example(1, 0), &said(2.0, &[1.0, 0.0]));
            others.add(&example(2, 1), &said(3.0, &[1.0, 0.0]));
            let losses = [0.0, 1e30, f32::INFINITY, f32::NAN, -5.0];
            for (examples, loss) in losses.into_iter().enumerate().map(|(i, l)| (1 + 300 * i, l)) {
                let mut with = others.clone();
                for i in 0..examples {
                    with.add(&example(3, (i % 2) as u32), &said(loss, &[0.0, 1.0]));
                }
                let moved = norm_of_change(with.sums(), others.sums());
                assert!(moved <= 1.0 && moved > 0.7, "{examples} {loss}: {moved}");
            }
        }
    }

    #[test]
    fn metrics_are_near_the_truth_and_have_their_noise() {
        let mut values = UnitValues::new(TaskHead::SequenceClassification);
        for unit in 0..1000 {
            values.add(&example(unit, 0), &said(1.0, &[f32::from(u8::from(unit % 4 > 0)), 0.5]));
        }
        let mut noise = NoiseSource::from_seed(4);
        let trials = 400;
        let (mut squares, mut stated) = (0.0, 0.0);
        for _ in 0..trials {
            let released = values.released(1, 20.0, &mut noise);
            squares += (released.accuracy.unwrap() - 0.75).powi(2);
            stated = released.std;
        }
        let std = (squares / f64::from(trials)).sqrt();
        assert!((std / stated - 1.0).abs() < 0.25, "{std} {stated}");
        let mut values = UnitValues::new(TaskHead::CausalLanguageModel);
        (0..1000).for_each(|unit| values.add(&example(unit, 0), &said(3.0, &[])));
        let loss = values.released(1, 1.0, &mut noise).loss.unwrap();
        assert!((loss - 3.0).abs() < 0.1, "{loss}");
        let nothing = UnitValues::new(TaskHead::CausalLanguageModel);
        assert!(nothing.released(1, 1.0, &mut noise).loss.unwrap() <= MOST_LOSS);
    }
}
