//! How good a model is on data: accuracy, F1, loss, perplexity.

mod metrics;

pub use metrics::{Classification, Language, Meter, Metrics, likeliest};

use crate::data::{Batch, Example, pieces};
use crate::method::local::EmbeddingNoise;
use crate::model::layer::sanitiser::Perturb;
use crate::model::{Error, Model, Purpose, Result};
use crate::tensor;

/// How much is computed at once; changes nothing but time and memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sequences in one pass.
    pub sequences: usize,
    /// Tokens in one pass.
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sequences: 64, tokens: 4096 }
    }
}

/// What a model says of one example.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The loss, where the example has a target: the mean over what is predicted of it.
    pub loss: Option<f32>,
    /// How many predictions the loss is a mean of.
    pub predictions: usize,
    /// Logits of the classes, or of the token after the last one.
    pub logits: Vec<f32>,
}

impl Prediction {
    fn is_finite(&self) -> bool {
        self.loss.is_none_or(f32::is_finite) && self.logits.iter().all(|logit| logit.is_finite())
    }

    /// The probability of each class.
    pub fn probabilities(&self) -> Vec<f64> {
        let largest = self.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = self.logits.iter().map(|l| f64::from(l - largest).exp()).collect();
        let total: f64 = powers.iter().sum();
        powers.into_iter().map(|p| p / total).collect()
    }
}

/// What a classifier says of each example when the example is perturbed before it leaves its owner;
/// `first` is the number of the first one's noise.
pub fn predict_perturbed(
    model: &Model,
    examples: &[Example],
    limits: Limits,
    noise: &EmbeddingNoise,
    first: u64,
) -> Result<Vec<Prediction>> {
    in_pieces(examples, limits, |piece, batch| {
        let records: Vec<u64> = piece.iter().map(|&i| first + i as u64).collect();
        classify(model, batch, Some(&noise.of(&records, noise.last_epoch())))
    })
}

/// What the model says of each example, in order; `want_logits` of language models costs a vector
/// as long as the vocabulary each.
pub fn predict(
    model: &Model,
    examples: &[Example],
    limits: Limits,
    want_logits: bool,
) -> Result<Vec<Prediction>> {
    in_pieces(examples, limits, |_, batch| match model.network.head.purpose {
        Purpose::SequenceClassification => classify(model, batch, None),
        _ => read(model, batch, want_logits),
    })
}

fn in_pieces(
    examples: &[Example],
    limits: Limits,
    says: impl Fn(&[usize], &Batch) -> Result<Vec<Prediction>>,
) -> Result<Vec<Prediction>> {
    let mut predictions: Vec<Option<Prediction>> = vec![None; examples.len()];
    for piece in pieces(examples, limits.sequences, limits.tokens) {
        let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
        let found = says(&piece, &batch)?;
        for (index, prediction) in piece.into_iter().zip(found) {
            if !prediction.is_finite() {
                return Err(Error::Request(
                    "the model answers with numbers that are not finite; its weights are broken"
                        .into(),
                ));
            }
            predictions[index] = Some(prediction);
        }
    }
    Ok(predictions.into_iter().flatten().collect())
}

fn rows(values: &[f32], columns: usize) -> impl Iterator<Item = Vec<f32>> {
    values.chunks_exact(columns.max(1)).map(<[f32]>::to_vec)
}

fn classify(model: &Model, batch: &Batch, noise: Option<&dyn Perturb>) -> Result<Vec<Prediction>> {
    let logits = model.noisy_logits(batch, None, noise)?;
    let targets: Vec<Option<u32>> = batch
        .targets
        .iter()
        .map(
            |target| {
                if let crate::data::Target::Class(class) = target { Some(*class) } else { None }
            },
        )
        .collect();
    // A class that the head does not have is a mistake of the caller's, which the objective
    // reports.
    if let Some(class) = targets.iter().flatten().find(|&&class| class as usize >= logits.columns())
    {
        return Err(Error::Request(format!(
            "class {class} was asked for, but the model has {}",
            logits.columns()
        )));
    }
    let known: Vec<u32> = targets.iter().map(|target| target.unwrap_or(0)).collect();
    let (losses, _) = tensor::cross_entropy(&logits, &known, None)?;
    let values = logits.to_vec()?;
    let found = rows(&values, logits.columns()).zip(losses.into_iter().zip(targets));
    Ok(found
        .map(|(logits, (loss, target))| Prediction {
            loss: target.map(|_| loss),
            predictions: usize::from(target.is_some()),
            logits,
        })
        .collect())
}

fn read(model: &Model, batch: &Batch, want_logits: bool) -> Result<Vec<Prediction>> {
    let objective = crate::model::Objective::of(batch, model.network.head.purpose)?;
    let losses = model.losses(batch)?;
    let mut counts = vec![0; batch.sequences()];
    objective.examples.iter().for_each(|&example| counts[example as usize] += 1);
    let mut last = vec![Vec::new(); batch.sequences()];
    if want_logits {
        let ends: Vec<u32> = batch.starts[1..].iter().map(|&end| (end - 1) as u32).collect();
        let logits = model.logits(batch, Some(&ends))?;
        last = rows(&logits.to_vec()?, logits.columns()).collect();
    }
    let found = losses.into_iter().zip(counts).zip(last);
    Ok(found
        .map(|((loss, predictions), logits)| Prediction {
            loss: (predictions > 0).then_some(loss),
            predictions,
            logits,
        })
        .collect())
}
