//! Everything, also what is below the noise, learns before anything is released: from public labelled data, or from the records by DP-SGD.

use crate::data::{Batch, Dataset, Example, PoissonSampler, ShuffledEpochs, micro_batches};
use crate::gradient::{Clip, ClippedSum};
use crate::mechanism::allocation::{Method, Uniform};
use crate::mechanism::forward::{RecordNoise, Release};
use crate::mechanism::{Coordinates, Noise, Secret, purpose};
use crate::model::{Conditions, Model, Weighting};
use crate::train::error::Result;
use crate::train::learner::{Learner, Protection, Step};
use crate::train::news::News;
use crate::train::optimiser::{Kind, Optimiser, Settings};
use crate::train::plan::{AdaptPlan, Adaptation};

/// The share of the largest learning rate at a step: up over a tenth of the steps, then down to 0.
fn ramp(step: u64, steps: u64) -> f64 {
    let left = 1.0 - step as f64 / steps as f64;
    left * ((step + 1) as f64 / (0.1 * steps as f64).max(1.0)).min(1.0)
}

/// DP-SGD on the records, of the model as it is without a sanitiser: Poisson sampling, each record's gradient no longer than 1, noise in every step. Their cost must be in the ledger before.
///
/// What leaves this function is the weights, a function of `found.steps` releases of the subsampled Gaussian mechanism, which is what [`Adaptation::event`] is.
pub fn adapt_privately(
    model: &mut Model,
    data: &Dataset,
    asked: &AdaptPlan,
    found: &Adaptation,
    secret: &Secret,
    watch: &mut dyn FnMut(News),
) -> Result<()> {
    let trainable: Vec<bool> = model.parameters.iter().map(|(_, p)| p.trainable).collect();
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = true;
    }
    let own = Secret::from_bytes(secret.key(purpose::ADAPTATION));
    let sampler = PoissonSampler::new(data.units, found.sampling_rate, own.key(purpose::SAMPLING))?;
    let method = Method::Proved(Box::new(Uniform::new(&Clip::Automatic, &model.parameters)));
    let protection = Protection { method, noise: Noise::new(&own) };
    let settings = Settings { kind: Kind::AdamCorrected, weight_decay: 0.0, ..Settings::default() };
    let mut learner = Learner::new(model.clone(), settings, Some(protection));
    let members = data.members();
    for step in 0..found.steps {
        let chosen = members.of_units(&sampler.step(step));
        let mut sum = learner.start();
        for piece in micro_batches(&chosen, &data.examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &data.examples[i]));
            learner.accumulate(&batch, None, &mut sum)?;
        }
        let rate = asked.learning_rate() * ramp(step, found.steps);
        let divisor = found.sampling_rate * data.units as f64;
        learner
            .update(sum, &Step { number: step, noise_multiplier: found.noise_multiplier, divisor, rate })?;
        watch(News::Adaptation { done: step + 1, steps: found.steps });
    }
    *model = learner.model;
    for ((_, parameter), trainable) in model.parameters.iter_mut().zip(trainable) {
        parameter.trainable = trainable;
    }
    Ok(())
}

/// Trains on public examples, with the noise that records will have: nothing private is looked at.
pub fn adapt(
    model: &mut Model,
    examples: &[Example],
    asked: &AdaptPlan,
    deviation: f32,
    secret: &Secret,
    watch: &mut dyn FnMut(News),
) -> Result<()> {
    // Calibration belongs to the private records.
    let calibration = model.network.sanitiser.as_mut().and_then(|layer| layer.calibration.take());
    let network = &model.network;
    // What takes part: a head that was replaced does not.
    let mut ids: Vec<_> = network.embeddings.parameters().chain(network.head.parameters()).collect();
    ids.extend(network.blocks.iter().flat_map(|block| block.parameters()));
    ids.extend(network.last_norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]).flatten());
    ids.extend(
        network
            .sanitiser
            .iter()
            .flat_map(|layer| [layer.parameters_below(), layer.parameters_above()])
            .flatten(),
    );
    for (id, parameter) in model.parameters.iter_mut() {
        parameter.trainable = ids.contains(&id);
    }
    let own = Secret::from_bytes(secret.key(purpose::ADAPTATION));
    let noise = RecordNoise::new(&own, Release::Fresh, vec![f64::from(deviation)]);
    let mut order = ShuffledEpochs::new(examples.len(), asked.batch() as usize, own.key(purpose::SAMPLING))?;
    let mut optimiser = Optimiser::new(Settings::default(), &model.parameters);
    let coordinates = Coordinates::of(&model.parameters);
    let steps = (examples.len() as u64).div_ceil(asked.batch()) * u64::from(asked.epochs());
    let mut drawn = 0;
    for step in 0..steps {
        let chosen = order.step(step);
        let mut sum = ClippedSum::new(&model.parameters);
        for piece in micro_batches(&chosen, examples, 64, 4096) {
            let mut batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            batch.units = (0..piece.len() as u32).collect();
            // New noise whenever a text is seen.
            let records: Vec<u64> = (0..piece.len() as u64).map(|i| drawn + i).collect();
            drawn += piece.len() as u64;
            let noise = noise.of(&records, 0);
            let conditions = Conditions { noise: Some(&noise), ..Conditions::default() };
            model.train_under(&batch, Weighting::SumOfUnits, &conditions, &mut sum)?;
        }
        let release = crate::mechanism::Release {
            step,
            noise: None,
            coordinates: &coordinates,
            divisor: chosen.len().max(1) as f32,
        };
        optimiser
            .step(&mut model.parameters, sum.take(), &release, asked.learning_rate() * ramp(step, steps))
            .map_err(crate::model::Error::from)?;
        watch(News::Adaptation { done: step + 1, steps });
    }
    if let Some(layer) = &mut model.network.sanitiser {
        layer.calibration = calibration;
    }
    Ok(())
}
