//! The layer that perturbs embeddings: its norm, its gradients, and what never flows back through
//! it.

mod contributions;
mod folder;
mod gradients;
mod owner;

use undertone::data::{Batch, Example, Target};
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::layer::sanitizer::{Bounding, NoiseLayer, Rows};
use undertone::model::sanitized::{SanitizerConfig, attach, set};
use undertone::model::tuning::Tuning;
use undertone::model::{Model, ParameterId, TaskHead};

const KINDS: [Architecture; 10] = [
    Architecture::Bert,
    Architecture::DistilBert,
    Architecture::Roberta,
    Architecture::Gpt2,
    Architecture::Llama,
    Architecture::ModernBert,
    Architecture::Gemma2,
    Architecture::Phi3,
    Architecture::MpNet,
    Architecture::Deberta,
];

fn config(noise_layer: NoiseLayer, rows: Rows, dims: &[usize]) -> SanitizerConfig {
    SanitizerConfig {
        noise_layer,
        rows,
        dims: dims.to_vec(),
        activation: None,
        centered: true,
        decoded: true,
        squash: None,
        bounding: Bounding::Clip,
        norm: 1.0,
        direction: None,
        calibrated: false,
        noise_std: 0.5,
    }
}

/// Deterministic numbers that look random.
fn numbers(count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|i| scale * (((i * 2_654_435_761) % 1_000) as f32 / 500.0 - 1.0)).collect()
}

fn model(architecture: Architecture, config: &SanitizerConfig) -> Model {
    let dimensions = Dimensions {
        layers: 3,
        hidden: 16,
        heads: 4,
        inner: 40,
        vocabulary: 60,
        positions: 100,
        key_heads: None,
    };
    let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let mut model =
        architecture.random(dimensions, TaskHead::SequenceClassification, &labels, 5).unwrap();
    model.apply_tuning(&Tuning::Full, 3).unwrap();
    // Initial weights are tiny; with larger ones every part matters.
    let matrices: Vec<ParameterId> =
        model.parameters.iter().filter(|(_, p)| p.shape.len() == 2).map(|(id, _)| id).collect();
    for id in matrices {
        let larger =
            model.parameters.value(id).to_vec().unwrap().iter().map(|w| 12.0 * w).collect();
        set(&mut model, id, larger).unwrap();
    }
    attach(&mut model, config).unwrap();
    let own: Vec<(ParameterId, usize)> = model
        .parameters
        .iter()
        .filter(|(_, p)| p.name.starts_with("sanitizer."))
        .map(|(id, p)| (id, p.len()))
        .collect();
    for (id, count) in own {
        set(&mut model, id, numbers(count, 0.4)).unwrap();
        model.parameters.get_mut(id).trainable = true;
    }
    model
}

fn batch(lengths: &[usize]) -> Batch {
    let examples: Vec<Example> = lengths
        .iter()
        .enumerate()
        .map(|(i, &n)| Example {
            tokens: (0..n as u32).map(|t| (t * t + 3 * i as u32 + 1) % 50).collect(),
            target: Target::Class(i as u32 % 3),
            unit: i as u32,
            ..Example::default()
        })
        .collect();
    Batch::pack(&examples)
}
