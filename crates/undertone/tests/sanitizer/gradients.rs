//! Gradients through the layer equal finite differences, and no gradient flows below the noise if
//! everything below it is frozen.

use super::{KINDS, batch, config, model, numbers};
use undertone::data::Batch;
use undertone::method::local::EmbeddingNoise;
use undertone::model::architecture::Architecture;
use undertone::model::layer::sanitizer::{Bounding, NoiseLayer, Perturb, Rows};
use undertone::model::sanitized::{SanitizerConfig, set};
use undertone::model::{
    ForwardOptions, Gradients, Model, ParameterId, RandomizedResponse, Weighting,
};
use undertone::noise::Secret;
use undertone::run::{EncoderActivation, ReleaseKind};

fn loss(model: &Model, batch: &Batch, options: &ForwardOptions) -> f64 {
    let mut ignored = Gradients::new(&model.parameters);
    let losses = model.train_with(batch, Weighting::SumOfUnits, options, &mut ignored).unwrap();
    losses.by_example().unwrap().iter().map(|&x| f64::from(x)).sum()
}

/// Noise that is not rounded to a grid, which would disturb finite differences.
#[derive(Debug)]
struct Smooth;

impl Perturb for Smooth {
    fn perturb(&self, sequence: usize, rows: &mut [f32]) {
        rows.iter_mut().zip(numbers(999, 0.3)).for_each(|(x, n)| *x += n * (1.0 + sequence as f32));
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let batch = batch(&[5, 3, 7]);
    let noise = Smooth;
    let flipped = RandomizedResponse { kept: 0.7, other: 0.15 };
    let labels = [None, Some(flipped)];
    let base = config(NoiseLayer::After(1), Rows::Mean, &[8, 5]);
    let cases = [
        base.clone(),
        SanitizerConfig { bounding: Bounding::Normalize, rows: Rows::Tokens(None), ..base.clone() },
        SanitizerConfig {
            rows: Rows::Tokens(Some(4)),
            noise_layer: NoiseLayer::After(0),
            ..base.clone()
        },
        SanitizerConfig {
            rows: Rows::First,
            noise_layer: NoiseLayer::Output,
            dims: vec![],
            ..base.clone()
        },
        SanitizerConfig {
            rows: Rows::Last,
            decoded: false,
            noise_layer: NoiseLayer::Output,
            dims: vec![6],
            ..base.clone()
        },
        SanitizerConfig {
            squash: Some(1.0),
            direction: Some(vec![0.5, 1.0, 2.0, 0.7, 1.3]),
            rows: Rows::First,
            ..base.clone()
        },
        SanitizerConfig {
            squash: Some(0.6),
            bounding: Bounding::Box,
            calibrated: true,
            ..base.clone()
        },
        // Frozen blocks above the noise still pass the gradient on.
        base.clone(),
        // EW-FT's autoencoder: a single bottleneck is also nonlinear.
        SanitizerConfig {
            activation: Some(EncoderActivation::Tanh),
            dims: vec![5],
            rows: Rows::Tokens(None),
            ..base.clone()
        },
        SanitizerConfig { activation: Some(EncoderActivation::Gelu), ..base.clone() },
        SanitizerConfig { activation: Some(EncoderActivation::None), ..base.clone() },
        // As published: padding rows count toward the norm and contribute gradients through it.
        SanitizerConfig {
            rows: Rows::Padded(9),
            bounding: Bounding::Normalize,
            noise_layer: NoiseLayer::After(2),
            ..base.clone()
        },
        SanitizerConfig { rows: Rows::Padded(9), bounding: Bounding::Normalize, ..base.clone() },
        // After the task head's own dense layer.
        SanitizerConfig {
            rows: Rows::First,
            noise_layer: NoiseLayer::Pooler,
            dims: vec![],
            centered: false,
            ..base.clone()
        },
        SanitizerConfig { rows: Rows::First, noise_layer: NoiseLayer::Pooler, ..base },
    ];
    let bidirectional = [Architecture::Bert, Architecture::Roberta];
    for (i, config) in cases.iter().enumerate() {
        let of_encoders =
            matches!(config.rows, Rows::Padded(_)) || config.noise_layer == NoiseLayer::Pooler;
        // Not every architecture in every case: finite differences fail at the kinks of ReLU, which
        // DistilBERT has in its head.
        let architecture = if of_encoders { bidirectional[i % 2] } else { KINDS[i % 8] };
        let mut model = model(architecture, config);
        if i == 7 {
            let blocks: Vec<ParameterId> =
                model.network.blocks.iter().flat_map(|block| block.parameters()).collect();
            let below: Vec<ParameterId> = model.network.embeddings.parameters().collect();
            blocks
                .into_iter()
                .chain(below)
                .for_each(|id| model.parameters.get_mut(id).trainable = false);
        }
        let options = ForwardOptions {
            noise: Some(&noise),
            labels: labels[i % 2],
            ..ForwardOptions::default()
        };
        let mut gradients = Gradients::new(&model.parameters);
        model.train_with(&batch, Weighting::SumOfUnits, &options, &mut gradients).unwrap();
        let named: Vec<(ParameterId, String)> =
            model.parameters.iter().map(|(id, p)| (id, p.name.clone())).collect();
        let mut compared = 0;
        for (id, name) in named {
            let Some(gradient) = gradients.get(id) else { continue };
            let gradient = gradient.to_vec().unwrap();
            // The steepest coordinate of each parameter: differences of f32 losses resolve little
            // else.
            let (at, steepest) =
                gradient.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap();
            if steepest.abs() < 2e-2 {
                continue;
            }
            let before = model.parameters.value(id).to_vec().unwrap();
            let step = 2e-3;
            let mut at_distance = |distance: f32| {
                let mut moved = before.clone();
                moved[at] += distance;
                set(&mut model, id, moved).unwrap();
                loss(&model, &batch, &options)
            };
            let slope = (at_distance(step) - at_distance(-step)) / f64::from(2.0 * step);
            set(&mut model, id, before).unwrap();
            let close =
                (slope - f64::from(*steepest)).abs() < 0.03 * f64::from(steepest.abs()) + 3e-3;
            assert!(close, "case {i}, {name}[{at}]: {steepest}, but the loss has slope {slope}");
            compared += 1;
        }
        assert!(compared >= 5, "case {i}: only {compared} parameters had a slope");
    }
}

#[test]
fn nothing_flows_below_the_noise_when_it_is_frozen() {
    let layers = [0, 1, 2, 3, 1, 2, 1, 0, 2, 1].map(NoiseLayer::After);
    for (architecture, noise_layer) in KINDS.into_iter().zip(layers) {
        let config = config(noise_layer, Rows::Tokens(None), &[6]);
        let mut model = model(architecture, &config);
        let layer = model.network.sanitizer.clone().unwrap();
        let mut below: Vec<ParameterId> = model.network.embeddings.parameters().collect();
        below.extend(
            model.network.blocks[..model.cut()].iter().flat_map(|block| block.parameters()),
        );
        below.extend(layer.parameters_below());
        below.iter().for_each(|&id| model.parameters.get_mut(id).trainable = false);
        let batch = batch(&[5, 3]);
        let noise = EmbeddingNoise::new(&Secret::from_seed(1), ReleaseKind::Once, vec![0.3]);
        let noise = noise.of(&[0, 1], 0);
        let options = ForwardOptions { noise: Some(&noise), ..ForwardOptions::default() };
        let mut gradients = Gradients::new(&model.parameters);
        let losses =
            model.train_with(&batch, Weighting::SumOfUnits, &options, &mut gradients).unwrap();
        for &id in &below {
            assert!(gradients.get(id).is_none(), "{} was reached", model.parameters.get(id).name);
        }
        for id in layer.parameters_above() {
            assert!(gradients.get(id).is_some(), "{} learns", model.parameters.get(id).name);
        }
        // Starting from precomputed rows gives the same results.
        let rows = model.bounded_rows(&batch).unwrap().0;
        let mut again = Gradients::new(&model.parameters);
        let repeated =
            model.train_above(&batch, rows, Weighting::SumOfUnits, &options, &mut again).unwrap();
        assert_eq!(losses.by_example().unwrap(), repeated.by_example().unwrap());
        for (id, parameter) in model.parameters.iter() {
            let numbers = |g: &Gradients| g.get(id).map(|m| m.to_vec().unwrap());
            assert_eq!(numbers(&gradients), numbers(&again), "{}", parameter.name);
        }
    }
}
