//! Compares every architecture with transformers, tensor by tensor: hidden states, logits, loss and
//! the gradient of every parameter, on every device. `fixtures/models/make_models.py` creates the
//! fixtures.

use crate::common::{Expected, assert_close, batch, devices, difference, fixture};
use undertone_model::folder::{LoadOptions, load};
use undertone_model::{Gradients, Model, Weighting};
use undertone_tensor::Device;

const TOLERANCE: f32 = 1e-4;

const MODELS: [&str; 34] = [
    "bert-classification",
    "bert-masked-lm",
    "bert-token-classification",
    "distilbert-classification",
    "distilbert-masked-lm",
    "roberta-classification",
    "roberta-masked-lm",
    "gpt2-causal-lm",
    "gpt2-classification",
    "gpt2-long",
    "llama-causal-lm",
    "llama-untied",
    "llama-classification",
    "xlm-roberta-classification",
    "camembert-masked-lm",
    "mistral-causal-lm",
    "qwen2-causal-lm",
    "qwen2-classification",
    "qwen3-causal-lm",
    "mistral-window",
    "smollm3-causal-lm",
    "gemma2-causal-lm",
    "gemma2-classification",
    "gemma3-causal-lm",
    "phi3-causal-lm",
    "phi3-longrope",
    "modernbert-classification",
    "modernbert-masked-lm",
    "modernbert-token-classification",
    "mpnet-classification",
    "mpnet-masked-lm",
    "deberta-classification",
    "deberta-token-classification",
    "deberta-masked-lm",
];

fn loaded(name: &str, device: &Device) -> Model {
    let mut model =
        load(&fixture(name), &LoadOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(model.fresh.is_empty(), "{name} has all its weights");
    model.to_device(device).unwrap();
    model
}

fn check(name: &str, device: &Device) {
    let model = loaded(name, device);
    let expected = Expected::of(name);
    let batch = batch(name, &model);
    let hidden = model.hidden_states(&batch).unwrap();
    // If there is a final normalization, transformers returns the last state after it.
    let shown: Vec<usize> = (0..model.network.blocks.len()).chain([hidden.len() - 1]).collect();
    for (k, state) in shown.into_iter().enumerate() {
        assert_close(
            &format!("{name} hidden.{k}"),
            &hidden[state],
            &expected.get(&format!("hidden.{k}")),
            TOLERANCE,
        );
    }
    let logits = model.logits(&batch, None).unwrap();
    assert_close(&format!("{name} logits"), &logits, &expected.get("logits"), TOLERANCE);

    let mut gradients = Gradients::new(&model.parameters);
    let losses = model.train(&batch, Weighting::MeanOfPredictions, None, &mut gradients).unwrap();
    let losses = losses.by_example().unwrap();
    assert_eq!(losses.len(), batch.sequences());
    let objective = undertone_model::Objective::of(&batch, model.network.head.task_head).unwrap();
    let counts: Vec<f32> = (0..batch.sequences())
        .map(|i| objective.examples.iter().filter(|&&e| e as usize == i).count() as f32)
        .collect();
    let total: f32 = counts.iter().sum();
    let loss: f32 = losses.iter().zip(&counts).map(|(l, c)| l * c / total).sum();
    assert!(difference(&[loss], &expected.get("loss")) < TOLERANCE, "{name} loss {loss}");

    let mut compared = 0;
    for key in expected.with_prefix("grad.") {
        let id =
            model.parameters.find(&key).unwrap_or_else(|| panic!("{name} has no parameter {key}"));
        let gradient = gradients.get(id).unwrap_or_else(|| panic!("{name}: {key} got no gradient"));
        assert_close(
            &format!("{name} grad.{key}"),
            gradient,
            &expected.get(&format!("grad.{key}")),
            TOLERANCE,
        );
        compared += 1;
    }
    assert_eq!(compared, model.parameters.len(), "{name}: every parameter is compared");
}

#[test]
fn every_architecture_equals_transformers() {
    for device in devices() {
        for name in MODELS {
            check(name, &device);
        }
    }
}

#[test]
fn scaled_rotary_frequencies_equal_transformers() {
    for name in ["llama-rope-scaled", "llama-yarn", "phi3-longrope"] {
        check(name, &Device::Cpu);
    }
}

#[test]
fn sharded_and_half_precision_weights_load() {
    for name in ["bert-sharded", "bert-f16", "bert-bf16"] {
        let model = loaded(name, &Device::Cpu);
        let logits = model.logits(&batch(name, &model), None).unwrap();
        assert_close(
            &format!("{name} logits"),
            &logits,
            &Expected::of(name).get("logits"),
            TOLERANCE,
        );
    }
}

#[test]
fn padding_does_not_exist_so_a_sequence_alone_has_the_same_logits() {
    for name in [
        "bert-classification",
        "gpt2-classification",
        "llama-classification",
        "gemma2-classification",
        "modernbert-classification",
    ] {
        let model = loaded(name, &Device::Cpu);
        let together = batch(name, &model);
        let all = model.logits(&together, None).unwrap().to_vec().unwrap();
        let classes = all.len() / together.sequences();
        for i in 0..together.sequences() {
            let example = undertone_data::Example {
                tokens: together.tokens[together.range(i)].to_vec(),
                segments: together.segments[together.range(i)].to_vec(),
                ..Default::default()
            };
            let alone = model
                .logits(&undertone_data::Batch::pack([&example]), None)
                .unwrap()
                .to_vec()
                .unwrap();
            assert!(
                difference(&alone, &all[i * classes..(i + 1) * classes]) < 1e-5,
                "{name}, sequence {i}"
            );
        }
    }
}
