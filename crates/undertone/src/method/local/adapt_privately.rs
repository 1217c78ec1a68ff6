//! Everything, also what is below the noise, learns from the records by DP-SGD before any is
//! perturbed.
//!
//! # What is proved
//!
//! What leaves is the weights: a function of `steps` releases, each of which is the sum over a
//! Poisson sample of the records (each joins with probability `sampling_rate`, by coins of its own)
//! of gradients no longer than 1, plus normal noise of deviation `noise_multiplier` in every
//! coordinate, divided by a number that does not depend on the records. That is
//! [`Adaptation::event`], as often as the ledger says before the first step.

use super::adapt::ramp;
use crate::data::{Batch, Dataset, PoissonSampler, micro_batches};
use crate::error::Result;
use crate::gradient::Clip;
use crate::method::central::{AllocationMethod, DpSgd};
use crate::model::Model;
use crate::noise::{Noise, Secret, purpose};
use crate::train::optimiser::Settings;
use crate::train::{Learner, Protection, Step, TrainingEvent};
use undertone_run::{AdaptSection, Adaptation, OptimiserKind};

/// DP-SGD on the records, of the model as it is without a sanitiser. Its cost must be in the ledger
/// before.
pub fn adapt_privately(
    model: &mut Model,
    data: &Dataset,
    asked: &AdaptSection,
    found: &Adaptation,
    secret: &Secret,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<()> {
    let trainable: Vec<bool> = model.parameters.iter().map(|(_, p)| p.trainable).collect();
    let settings =
        Settings { kind: OptimiserKind::AdamCorrected, weight_decay: 0.0, ..Settings::default() };
    let rate = |step: u64| asked.learning_rate() * ramp(step, found.steps);
    descend(model, data, found, secret, settings, rate, callback)?;
    for ((_, parameter), trainable) in model.parameters.iter_mut().zip(trainable) {
        parameter.trainable = trainable;
    }
    Ok(())
}

fn descend(
    model: &mut Model,
    data: &Dataset,
    found: &Adaptation,
    secret: &Secret,
    settings: Settings,
    rate: impl Fn(u64) -> f64,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<()> {
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = true;
    }
    let own = Secret::from_bytes(secret.key(purpose::ADAPTATION));
    let sampler = PoissonSampler::new(data.units, found.sampling_rate, own.key(purpose::SAMPLING))?;
    let method =
        AllocationMethod::Proved(Box::new(DpSgd::new(&Clip::Automatic, &model.parameters)));
    let protection = Protection { method, noise: Noise::new(&own) };
    let mut learner = Learner::new(model.clone(), settings, Some(protection));
    let members = data.members();
    for step in 0..found.steps {
        let chosen = members.of_units(&sampler.step(step));
        let mut sum = learner.start();
        for piece in micro_batches(&chosen, &data.examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &data.examples[i]));
            learner.accumulate(&batch, None, &mut sum)?;
        }
        // The expected number of records, whatever the sample is.
        let divisor = found.sampling_rate * data.units as f64;
        let noise_multiplier = found.noise_multiplier;
        learner.update(sum, &Step { number: step, noise_multiplier, divisor, rate: rate(step) })?;
        callback(TrainingEvent::Adaptation { done: step + 1, steps: found.steps });
    }
    *model = learner.model;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Example, Target};
    use crate::model::TaskHead;
    use crate::model::architecture::{Architecture, Dimensions};
    use crate::tensor::Matrix;

    /// A model with steep gradients.
    fn model() -> Model {
        let dimensions = Dimensions {
            layers: 1,
            hidden: 16,
            heads: 2,
            inner: 16,
            vocabulary: 60,
            positions: 12,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let mut model = Architecture::Bert
            .random(dimensions, TaskHead::SequenceClassification, &labels, 5)
            .unwrap();
        for (_, parameter) in model.parameters.iter_mut().filter(|(_, p)| p.shape.len() == 2) {
            let values = parameter.value.to_vec().unwrap().iter().map(|w| 8.0 * w).collect();
            parameter.value =
                Matrix::from_vec(parameter.value.rows(), parameter.value.columns(), values);
        }
        model
    }

    /// The same record many times, each a unit of its own.
    fn records(count: usize) -> Dataset {
        let record = |unit: usize| Example {
            tokens: (0..8).map(|t| 3 + 5 * t).collect(),
            target: Target::Class(0),
            unit: unit as u32,
            ..Example::default()
        };
        Dataset {
            examples: (0..count).map(record).collect(),
            labels: None,
            units: count,
            most_per_unit: 1,
        }
    }

    /// The noisy sum of one step: weights move by minus that, if the rate is what it is divided by.
    fn released(noise_multiplier: f64, sampling_rate: f64, units: usize, seed: u64) -> Vec<f64> {
        let (before, mut after) = (model(), model());
        let found = Adaptation { noise_multiplier, sampling_rate, steps: 1 };
        let settings = Settings {
            kind: OptimiserKind::Sgd,
            momentum: 0.0,
            weight_decay: 0.0,
            ..Settings::default()
        };
        let divisor = sampling_rate * units as f64;
        descend(
            &mut after,
            &records(units),
            &found,
            &Secret::from_seed(seed),
            settings,
            |_| divisor,
            &mut |_| (),
        )
        .unwrap();
        let values = |model: &Model| -> Vec<f64> {
            let all = model.parameters.iter().flat_map(|(_, p)| p.value.to_vec().unwrap());
            all.map(f64::from).collect()
        };
        values(&before).iter().zip(values(&after)).map(|(old, new)| old - new).collect()
    }

    fn length(values: &[f64]) -> f64 {
        values.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    #[test]
    fn without_records_a_release_is_noise_of_the_size_that_is_accounted_for() {
        // So small a rate that nobody is drawn.
        let noise = released(3.0, 1e-12, 40, 1);
        let deviation = length(&noise) / (noise.len() as f64).sqrt();
        assert!(
            (deviation / 3.0 - 1.0).abs() < 0.03,
            "{deviation} over {} coordinates",
            noise.len()
        );
        assert_ne!(noise, released(3.0, 1e-12, 40, 2), "another secret draws other noise");
    }

    #[test]
    fn no_record_moves_a_release_by_more_than_one() {
        let one = length(&released(1e-7, 1.0, 1, 1));
        assert!(one <= 1.0 && one > 0.9, "{one}");
        let mut open = model();
        let mut sum = crate::gradient::ClippedSum::new(&open.parameters);
        open.parameters.iter_mut().for_each(|(_, p)| p.trainable = true);
        open.train(
            &Batch::pack(&records(1).examples),
            crate::model::Weighting::SumOfUnits,
            None,
            &mut sum,
        )
        .unwrap();
        let all = sum.take();
        let squares: f64 = all
            .iter()
            .flatten()
            .flat_map(|m| m.to_vec().unwrap())
            .map(|x| f64::from(x).powi(2))
            .sum();
        assert!(squares.sqrt() > 1.5, "without clipping it would: {}", squares.sqrt());
    }

    #[test]
    fn every_record_joins_by_a_coin_of_its_own() {
        // All records pull alike, so the length of the sum counts them.
        let (units, rate, trials) = (20, 0.3, 300);
        let one = length(&released(1e-7, 1.0, 1, 1));
        let counts: Vec<f64> =
            (0..trials).map(|seed| length(&released(1e-7, rate, units, seed)) / one).collect();
        let mean = counts.iter().sum::<f64>() / trials as f64;
        let variance =
            counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (trials as f64 - 1.0);
        let (expected, spread) = (rate * units as f64, rate * (1.0 - rate) * units as f64);
        // Batches of one size would have no variance at all.
        assert!(
            (mean - expected).abs() < 4.0 * (spread / trials as f64).sqrt(),
            "{mean} of {expected}"
        );
        assert!((variance / spread - 1.0).abs() < 0.4, "{variance} of {spread}");
    }
}
