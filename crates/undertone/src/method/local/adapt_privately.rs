//! DP-SGD fine-tuning of the whole model, including the layers below the noise, on the private
//! examples before their embeddings are perturbed.
//!
//! # What is proved
//!
//! The adapted weights are a function of `steps` releases. Each release is a sum, over a Poisson
//! sample of the examples (each joins independently with probability `sampling_rate`), of
//! per-example gradients of ℓ2 norm at most 1, plus Gaussian noise of std `noise_multiplier` in
//! every coordinate, divided by a number that does not depend on the examples. This is
//! [`Adaptation::event`], which is recorded in the ledger `steps` times before the first step.

use super::adapt::ramp;
use crate::data::{Batch, Dataset, PoissonSampler, micro_batches};
use crate::error::Result;
use crate::gradient::Clip;
use crate::method::TrainingEvent;
use crate::method::central::DpSgd;
use crate::model::Model;
use crate::noise::{Noise, Secret, purpose};
use crate::replay::{ReleaseId, StepTape, Tape};
use crate::step::optimizer::Settings;
use crate::step::{AllocationMethod, Cost, Learner, Protection, Recorded, StepSettings};
use undertone_run::{AdaptSection, Adaptation, OptimizerKind};

/// Runs DP-SGD on the private examples, on the model without a sanitizer.
pub fn adapt_privately(
    model: &mut Model,
    data: &Dataset,
    (asked, adaptation, recorded): (&AdaptSection, &Adaptation, Recorded),
    secret: &Secret,
    tape: Option<&Tape>,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<()> {
    let trainable: Vec<bool> = model.parameters.iter().map(|(_, p)| p.trainable).collect();
    let settings =
        Settings { kind: OptimizerKind::AdamCorrected, weight_decay: 0.0, ..Settings::default() };
    let learning_rate = |step: u64| asked.learning_rate() * ramp(step, adaptation.steps);
    descend(
        model,
        data,
        (adaptation, recorded),
        (secret, tape),
        settings,
        learning_rate,
        callback,
    )?;
    for ((_, parameter), trainable) in model.parameters.iter_mut().zip(trainable) {
        parameter.trainable = trainable;
    }
    Ok(())
}

fn descend(
    model: &mut Model,
    data: &Dataset,
    (adaptation, recorded): (&Adaptation, Recorded),
    (secret, tape): (&Secret, Option<&Tape>),
    settings: Settings,
    learning_rate: impl Fn(u64) -> f64,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<()> {
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = true;
    }
    let own = Secret::from_bytes(secret.key(purpose::ADAPTATION));
    let sampler =
        PoissonSampler::new(data.units, adaptation.sampling_rate, own.key(purpose::SAMPLING))?;
    let method =
        AllocationMethod::Proved(Box::new(DpSgd::new(&Clip::Automatic, &model.parameters)));
    let protection = Protection { method, noise: Noise::new(&own) };
    let mut learner = Learner::new(model.clone(), settings, Some(protection));
    let release = ReleaseId::Adaptation;
    learner.tape = tape.map(|tape| StepTape { tape: tape.clone(), release });
    let members = data.members();
    for (step, recorded) in (0..adaptation.steps).zip(recorded.each()) {
        // The expected number of examples, regardless of the actual sample.
        let divisor = adaptation.sampling_rate * data.units as f64;
        let noise_multiplier = adaptation.noise_multiplier;
        let learning_rate = learning_rate(step);
        let settings = StepSettings { number: step, noise_multiplier, divisor, learning_rate };
        let begun = learner.begin_step(settings)?;
        let chosen = members.of_units(&sampler.step(step));
        let mut sum = learner.empty_sum();
        for piece in micro_batches(&chosen, &data.examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &data.examples[i]));
            learner.accumulate(&begun, &batch, None, &mut sum)?;
        }
        learner.release(sum, begun, Cost::Recorded(recorded))?;
        callback(TrainingEvent::Adaptation { done: step + 1, steps: adaptation.steps });
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

    /// A model with large gradients.
    fn model() -> Model {
        let dimensions = Dimensions {
            layers: 1,
            hidden: 16,
            heads: 2,
            inner: 16,
            vocabulary: 60,
            positions: 12,
            key_heads: None,
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

    /// The same example `count` times, each as its own privacy unit.
    fn examples(count: usize) -> Dataset {
        let example = |unit: usize| Example {
            tokens: (0..8).map(|t| 3 + 5 * t).collect(),
            target: Target::Class(0),
            unit: unit as u32,
            ..Example::default()
        };
        Dataset {
            examples: (0..count).map(example).collect(),
            labels: None,
            units: count,
            most_per_unit: 1,
            masking: None,
            skipped: 0,
            tally: Default::default(),
        }
    }

    /// The noisy sum of one step: with the divisor as the learning rate, the weights move by minus
    /// the sum.
    fn released(noise_multiplier: f64, sampling_rate: f64, units: usize, seed: u64) -> Vec<f64> {
        let (before, mut after) = (model(), model());
        let adaptation = Adaptation { noise_multiplier, sampling_rate, steps: 1 };
        let settings = Settings {
            kind: OptimizerKind::Sgd,
            momentum: 0.0,
            weight_decay: 0.0,
            ..Settings::default()
        };
        let divisor = sampling_rate * units as f64;
        let recorded = Recorded::in_tests(adaptation.event(), 1);
        descend(
            &mut after,
            &examples(units),
            (&adaptation, recorded),
            (&Secret::from_seed(seed), None),
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

    fn norm(values: &[f64]) -> f64 {
        values.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    #[test]
    fn without_examples_a_release_is_noise_of_the_std_that_is_accounted_for() {
        // The sampling rate is so small that no example is drawn.
        let noise = released(3.0, 1e-12, 40, 1);
        let std = norm(&noise) / (noise.len() as f64).sqrt();
        assert!((std / 3.0 - 1.0).abs() < 0.03, "{std} over {} coordinates", noise.len());
        assert_ne!(noise, released(3.0, 1e-12, 40, 2), "another secret draws other noise");
    }

    #[test]
    fn no_example_moves_a_release_by_more_than_one() {
        let moved = norm(&released(1e-7, 1.0, 1, 1));
        assert!(moved <= 1.0 && moved > 0.9, "{moved}");
        let mut non_private = model();
        let mut sum = crate::gradient::ClippedSum::new(&non_private.parameters);
        non_private.parameters.iter_mut().for_each(|(_, p)| p.trainable = true);
        non_private
            .train(
                &Batch::pack(&examples(1).examples),
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
    fn every_example_is_sampled_independently() {
        // All gradients are equal, so the norm of the sum reveals the number of examples.
        let (units, sampling_rate, trials) = (20, 0.3, 300);
        let moved = norm(&released(1e-7, 1.0, 1, 1));
        let counts: Vec<f64> =
            (0..trials).map(|s| norm(&released(1e-7, sampling_rate, units, s)) / moved).collect();
        let mean = counts.iter().sum::<f64>() / trials as f64;
        let variance =
            counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (trials as f64 - 1.0);
        let expected = sampling_rate * units as f64;
        let spread = sampling_rate * (1.0 - sampling_rate) * units as f64;
        // Batches of a fixed size would have zero variance.
        assert!(
            (mean - expected).abs() < 4.0 * (spread / trials as f64).sqrt(),
            "{mean} of {expected}"
        );
        assert!((variance / spread - 1.0).abs() < 0.4, "{variance} of {spread}");
    }
}
