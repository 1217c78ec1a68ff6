//! Linear probe: the attacker's classifier from perturbed embeddings to tokens or attributes.

use crate::model::folder::Random;
use crate::model::layer::linear::Linear;
use crate::model::{Gradients, Origin, Parameter, Parameters, Pass, Result};
use crate::step::optimizer::{Optimizer, Settings};
use crate::step::{Coordinates, GradientRelease};
use crate::tensor::{self, Host, Matrix};

/// Linear classifier with logits `x Wᵀ + b`.
pub struct Probe {
    /// W, `[classes, hidden]`.
    pub weights: Matrix,
    /// b, `[classes]`.
    pub bias: Vec<f32>,
}

impl Probe {
    /// The predicted class (largest logit) of each row.
    pub fn best(&self, rows: &Host) -> Result<Vec<u32>> {
        let mut predicted = Vec::with_capacity(rows.rows());
        for first in (0..rows.rows()).step_by(2048) {
            let some = Matrix::Host(rows.row_range(first..(first + 2048).min(rows.rows())));
            let scores =
                tensor::product(1.0, some.plain(), self.weights.transposed())?.to_host()?;
            for i in 0..scores.rows() {
                let with_bias =
                    scores.row(i).iter().zip(&self.bias).map(|(s, b)| s + b).enumerate();
                predicted.push(
                    with_bias
                        .max_by(|a, b| a.1.total_cmp(&b.1))
                        .map_or(0, |(class, _)| class as u32),
                );
            }
        }
        Ok(predicted)
    }
}

/// Hyperparameters of the probe.
pub struct Training {
    /// Number of classes.
    pub classes: usize,
    /// Epochs over the attacker's examples.
    pub epochs: usize,
    /// Seed of the initial weights.
    pub seed: u64,
}

/// Batch size, in rows.
const BATCH: usize = 512;
/// Initial learning rate of AdamW; it decays linearly to 0.
const LEARNING_RATE: f64 = 1e-2;

/// Trains on (row, class) pairs; `rows` returns the embeddings of each epoch, with fresh noise.
pub fn train(
    rows: impl Fn(usize) -> Host,
    examples: &[(u32, u32)],
    training: &Training,
) -> Result<Probe> {
    let mut passes = (0..training.epochs).map(|epoch| (epoch, rows(epoch))).peekable();
    let columns = passes.peek().map_or(0, |(_, rows)| rows.columns());
    let mut parameters = Parameters::default();
    let mut push = |name: &str, shape: Vec<usize>, values: Vec<f32>| {
        let value = Matrix::from_vec(
            if shape.len() == 1 { 1 } else { shape[0] },
            shape[shape.len() - 1],
            values,
        );
        parameters.push(Parameter {
            name: name.into(),
            shape,
            value,
            trainable: true,
            origin: Origin::Base,
        })
    };
    let classes = training.classes;
    let small = Random::new(training.seed, 0.02).normal(classes * columns, 0.01);
    let weight = push("weight", vec![classes, columns], small);
    let bias = push("bias", vec![classes], vec![0.0; classes]);
    let linear = Linear {
        name: "probe".into(),
        weight,
        bias: Some(bias),
        inputs: columns,
        outputs: classes,
        inputs_first: false,
        parts: &[],
        lora: Vec::new(),
        rescaling: None,
    };
    let mut optimizer = Optimizer::new(Settings { weight_decay: 0.0, ..Settings::default() });
    let coordinates = Coordinates::of(&parameters);
    let batches = examples.len().div_ceil(BATCH).max(1);
    let steps = training.epochs * batches;
    for (epoch, rows) in passes {
        let rows = Matrix::Host(rows);
        for (i, some) in examples.chunks(BATCH).enumerate() {
            let (indices, targets): (Vec<u32>, Vec<u32>) = some.iter().copied().unzip();
            let x = tensor::gather(&rows, &indices)?;
            let mut gradients = Gradients::new(&parameters);
            let pass = Pass::plain(&parameters);
            let (logits, saved) = linear.forward(&pass, &x)?;
            let weights = vec![1.0 / targets.len() as f32; targets.len()];
            if let (_, Some(gradient)) = tensor::cross_entropy(&logits, &targets, Some(&weights))? {
                linear.backward(&pass, saved, &gradient, None, &mut gradients)?;
            }
            let release =
                GradientRelease { step: 0, noise: None, coordinates: &coordinates, divisor: 1.0 };
            let remaining = 1.0 - (epoch * batches + i) as f64 / steps as f64;
            let learning_rate = LEARNING_RATE * remaining;
            optimizer.step(&mut parameters, gradients.take(), &release, learning_rate)?;
        }
    }
    Ok(Probe { weights: parameters.value(weight).clone(), bias: parameters.value(bias).to_vec()? })
}
