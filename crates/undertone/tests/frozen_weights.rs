//! Frozen weights stored in bf16 or NF4: on every device, a step equals that of a model with the
//! same values in f32.

use crate::common::devices;
use crate::steps;
use undertone::data::{Batch, Example, Target};
use undertone::gradient::Clip;
use undertone::method::central::DpSgd;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::folder::Random;
use undertone::model::tuning::{LoraSettings, Tuning};
use undertone::model::{Model, TaskHead};
use undertone::noise::{Noise, Secret};
use undertone::run::{OptimizerKind, Quantize};
use undertone::step::optimizer::Settings;
use undertone::step::{AllocationMethod, Learner, Protection, StepSettings};
use undertone::tensor::Precision;
use undertone::tensor::{Device, Matrix};

const LABELS: [&str; 2] = ["a", "b"];

/// A model with frozen weights in bf16, or in NF4 for linear layers, and nonzero LoRA.
fn model(architecture: Architecture, head: TaskHead, quantize: Option<Quantize>) -> Model {
    let dimensions = Dimensions {
        layers: 2,
        hidden: 64,
        heads: 4,
        inner: 160,
        vocabulary: 300,
        positions: 32,
        key_heads: None,
    };
    let config = architecture.config(dimensions, &LABELS.map(str::to_owned));
    let mut source = Random::in_bf16(3, 0.1);
    let mut model =
        architecture.random_from(&mut source, config, head, LABELS.len(), quantize).unwrap();
    let lora = LoraSettings { targets: vec!["all-linear".into()], ..LoraSettings::default() };
    model.apply_tuning(&Tuning::Lora(lora), 5).unwrap();
    let mut random = Random::new(9, 1.0);
    for (_, parameter) in model.parameters.iter_mut().filter(|(_, p)| p.name.contains("lora_B")) {
        let [rows, columns] = parameter.value.shape();
        parameter.value = Matrix::from_vec(rows, columns, random.normal(rows * columns, 0.05));
    }
    model
}

/// The same values, all in f32.
fn in_f32(model: &Model) -> Model {
    let mut model = model.clone();
    for (_, parameter) in model.parameters.iter_mut() {
        let [rows, columns] = parameter.value.shape();
        let values = parameter.value.to_vec().unwrap();
        parameter.value = Matrix::from_vec(rows, columns, values);
    }
    model
}

fn batch(head: TaskHead) -> Batch {
    let example = |unit: u32| Example {
        tokens: (0..6 + unit % 5).map(|t| (unit * 31 + t * 7) % 300).collect(),
        target: match head {
            TaskHead::SequenceClassification => Target::Class(unit % 2),
            _ => Target::Next { from: 1 },
        },
        unit,
        ..Example::default()
    };
    let examples: Vec<Example> = (0..6).map(example).collect();
    Batch::pack(&examples)
}

/// Trainable parameters after one clipped and noisy step of SGD.
fn after_a_step(mut model: Model, head: TaskHead, device: &Device) -> Vec<f32> {
    model.to_device(device).unwrap();
    model.round_frozen().unwrap();
    let method = DpSgd::new(&Clip::Flat(0.05), &model.parameters);
    let protection = Protection {
        method: AllocationMethod::Proved(Box::new(method)),
        noise: Noise::new(&Secret::from_seed(4)),
    };
    let kind = OptimizerKind::Sgd;
    let settings = Settings { kind, momentum: 0.0, weight_decay: 0.0, ..Settings::default() };
    let mut learner = Learner::new(model, settings, Some(protection));
    let step = StepSettings { number: 0, noise_multiplier: 0.1, divisor: 4.0, learning_rate: 1.0 };
    steps::take(&mut learner, &batch(head), step);
    let trained = learner.model.parameters.iter().filter(|(_, p)| p.trainable);
    trained.flat_map(|(_, p)| p.value.to_vec().unwrap()).collect()
}

#[test]
fn a_step_is_that_of_the_same_numbers_in_f32() {
    use Architecture::{Bert, Gpt2, Llama};
    for (architecture, head) in [
        (Bert, TaskHead::SequenceClassification),
        (Gpt2, TaskHead::CausalLanguageModel),
        (Llama, TaskHead::CausalLanguageModel),
    ] {
        for quantize in [None, Some(Quantize::Nf4)] {
            let compact = model(architecture, head, quantize);
            let plain = in_f32(&compact);
            for device in devices() {
                let wanted = after_a_step(plain.clone(), head, &device);
                let updated = after_a_step(compact.clone(), head, &device);
                let largest = wanted.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                let apart = wanted.iter().zip(&updated).map(|(a, b)| (a - b).abs());
                let apart = apart.fold(0.0, f32::max) / largest;
                let name = device.name();
                assert!(apart < 2e-4, "{architecture:?} {quantize:?} on {name}: {apart:e}");
            }
        }
    }
}

/// A device stores the same values as the host, in every precision of products.
#[test]
fn numbers_are_the_same_on_every_device() {
    let values = Random::new(2, 1.0).normal(40 * 72, 0.3);
    let halves: Vec<u16> = values.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let bf16 = Matrix::from_bf16(40, 72, halves);
    let nf4 = model(Architecture::Llama, TaskHead::CausalLanguageModel, Some(Quantize::Nf4));
    let nf4 = &nf4.parameters.iter().find(|(_, p)| p.name.contains("up_proj")).unwrap().1.value;
    for device in devices() {
        let precisions: Vec<Device> = match device {
            Device::Cpu => vec![device],
            gpu => Precision::ALL.map(|p| gpu.clone().with_precision(p).unwrap()).into(),
        };
        for device in precisions {
            for matrix in [&bf16, nf4] {
                let on_device = matrix.to_device(&device).unwrap();
                let rows = 3..29;
                for (ours, theirs) in [
                    (matrix.clone(), on_device.clone()),
                    (matrix.row_range(rows.clone()).unwrap(), on_device.row_range(rows).unwrap()),
                    (matrix.column_range(5..40).unwrap(), on_device.column_range(5..40).unwrap()),
                ] {
                    let (ours, theirs) = (ours.to_vec().unwrap(), theirs.to_vec().unwrap());
                    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * a.abs();
                    assert!(ours.iter().zip(&theirs).all(near) && ours.len() == theirs.len());
                }
            }
        }
    }
}
