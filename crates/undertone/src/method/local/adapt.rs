//! Fine-tuning of the whole model, including the layers below the noise, on public labeled data
//! before anything is released.

use super::embedding_noise::EmbeddingNoise;
use crate::data::{Batch, Example, ShuffledEpochs, micro_batches};
use crate::error::Result;
use crate::gradient::ClippedSum;
use crate::method::TrainingEvent;
use crate::model::{ForwardOptions, Model, Weighting};
use crate::noise::{Secret, purpose};
use crate::step::optimizer::{Optimizer, Settings};
use crate::step::{Coordinates, GradientRelease};
use undertone_run::{AdaptSection, ReleaseKind};

/// Learning rate of a step as a fraction of the peak: linear warm-up over a tenth of the steps,
/// times linear decay to 0.
pub(super) fn ramp(step: u64, steps: u64) -> f64 {
    let left = 1.0 - step as f64 / steps as f64;
    left * ((step + 1) as f64 / (0.1 * steps as f64).max(1.0)).min(1.0)
}

/// Fine-tunes on public examples, with the same noise that the private embeddings will have. No
/// private data is used.
pub fn adapt(
    model: &mut Model,
    examples: &[Example],
    asked: &AdaptSection,
    std: f32,
    secret: &Secret,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<()> {
    // Calibration applies only to the private examples' releases.
    let calibration = model.network.sanitizer.as_mut().and_then(|layer| layer.calibration.take());
    let network = &model.network;
    // The parameters in use, excluding those of a replaced task head.
    let mut ids: Vec<_> =
        network.embeddings.parameters().chain(network.head.parameters()).collect();
    ids.extend(network.blocks.iter().flat_map(|block| block.parameters()));
    ids.extend(network.last_norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]).flatten());
    ids.extend(
        network
            .sanitizer
            .iter()
            .flat_map(|layer| [layer.parameters_below(), layer.parameters_above()])
            .flatten(),
    );
    for (id, parameter) in model.parameters.iter_mut() {
        parameter.trainable = ids.contains(&id);
    }
    let own = Secret::from_bytes(secret.key(purpose::ADAPTATION));
    let noise = EmbeddingNoise::new(&own, ReleaseKind::Fresh, vec![f64::from(std)]);
    let mut order =
        ShuffledEpochs::new(examples.len(), asked.batch() as usize, own.key(purpose::SAMPLING))?;
    let mut optimizer = Optimizer::new(Settings::default());
    let coordinates = Coordinates::of(&model.parameters);
    let steps = (examples.len() as u64).div_ceil(asked.batch()) * u64::from(asked.epochs());
    let mut drawn = 0;
    for step in 0..steps {
        let chosen = order.step(step);
        let mut sum = ClippedSum::new(&model.parameters);
        for piece in micro_batches(&chosen, examples, 64, 4096) {
            let mut batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            batch.units = (0..piece.len() as u32).collect();
            // Draw fresh noise each time a text is used.
            let indices: Vec<u64> = (0..piece.len() as u64).map(|i| drawn + i).collect();
            drawn += piece.len() as u64;
            let noise = noise.of(&indices, 0);
            let options = ForwardOptions { noise: Some(&noise), ..ForwardOptions::default() };
            model.train_with(&batch, Weighting::SumOfUnits, &options, &mut sum)?;
        }
        let release = GradientRelease {
            step,
            noise: None,
            coordinates: &coordinates,
            divisor: chosen.len().max(1) as f32,
        };
        optimizer
            .step(
                &mut model.parameters,
                sum.take(),
                &release,
                asked.learning_rate() * ramp(step, steps),
            )
            .map_err(crate::model::Error::from)?;
        callback(TrainingEvent::Adaptation { done: step + 1, steps });
    }
    if let Some(layer) = &mut model.network.sanitizer {
        layer.calibration = calibration;
    }
    Ok(())
}
