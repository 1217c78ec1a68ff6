//! Evaluation of a model on a dataset: accuracy, F1, ROC AUC, loss and perplexity; BLEU, NIST,
//! ROUGE-L and CIDEr of generated texts.
//!
//! The E2E NLG challenge reports METEOR 1.5 as well. It needs WordNet, a table of paraphrases and a
//! list of function words. With exact matches and stems only, held-out references of E2E's test
//! file score 0.452 instead of 0.459. Published models differ by no more, so it is left out.

mod bleu;
mod by_class;
mod cider;
mod metrics;
mod ngrams;
mod nist;
mod on_file;
mod on_ranks;
mod ranking;
mod released;
mod rouge;
mod tokens;

pub use bleu::Bleu;
pub use by_class::{OfClass, by_class};
pub use cider::Cider;
pub use metrics::{Meter, likeliest};
pub use nist::Nist;
pub use on_file::{FileMetrics, FileToEvaluate, evaluate_file};
pub use on_ranks::predict_on_ranks;
pub use ranking::Ranking;
pub use released::{MOST_LOSS, UnitValues};
pub use rouge::RougeL;
pub use undertone_run::{ClassificationMetrics, LanguageMetrics, Metrics};

use crate::data::{Batch, Example, pieces};
use crate::model::layer::sanitizer::Perturb;
use crate::model::{Error, Model, Result, TaskHead};
use crate::tensor;

/// Size of a forward pass; it only affects time and memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum sequences per pass.
    pub sequences: usize,
    /// Maximum tokens per pass.
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sequences: 64, tokens: 4096 }
    }
}

/// The model's output for one example.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Mean loss over the example's predictions; `None` if it has no target.
    pub loss: Option<f32>,
    /// Number of predictions over which the loss is averaged.
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

/// Predictions for each example, in order. For language models, `want_logits` requires a vector of
/// vocabulary size per example.
pub fn predict(
    model: &Model,
    examples: &[Example],
    limits: Limits,
    want_logits: bool,
) -> Result<Vec<Prediction>> {
    let every = |_: usize| true;
    let predictions =
        in_batches(examples, limits, every, |_, batch| predict_batch(model, batch, want_logits))?;
    Ok(predictions.into_iter().flatten().collect())
}

fn predict_batch(model: &Model, batch: &Batch, want_logits: bool) -> Result<Vec<Prediction>> {
    model.device().compute(|| match model.network.head.task_head {
        TaskHead::SequenceClassification => classify(model, batch, None),
        _ => predict_tokens(model, batch, want_logits),
    })
}

/// The predictions for the examples in some of the batches, selected by batch index.
pub(crate) fn in_batches(
    examples: &[Example],
    limits: Limits,
    is_wanted: impl Fn(usize) -> bool,
    predict_batch: impl Fn(&[usize], &Batch) -> Result<Vec<Prediction>>,
) -> Result<Vec<Option<Prediction>>> {
    let mut predictions: Vec<Option<Prediction>> = vec![None; examples.len()];
    let all = pieces(examples, limits.sequences, limits.tokens).into_iter().enumerate();
    for (_, piece) in all.filter(|(number, _)| is_wanted(*number)) {
        let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
        let of_batch = predict_batch(&piece, &batch)?;
        for (index, prediction) in piece.into_iter().zip(of_batch) {
            if !prediction.is_finite() {
                return Err(Error::Request(
                    "the model's outputs are not finite; use a checkpoint with finite weights"
                        .into(),
                ));
            }
            predictions[index] = Some(prediction);
        }
    }
    Ok(predictions)
}

fn rows(values: &[f32], columns: usize) -> impl Iterator<Item = Vec<f32>> {
    values.chunks_exact(columns.max(1)).map(<[f32]>::to_vec)
}

pub(crate) fn classify(
    model: &Model,
    batch: &Batch,
    noise: Option<&dyn Perturb>,
) -> Result<Vec<Prediction>> {
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
    // A class that the head does not have is a mistake of the caller.
    if let Some(class) = targets.iter().flatten().find(|&&class| class as usize >= logits.columns())
    {
        return Err(Error::Request(format!(
            "class {class} is not one of the model's {} classes; use the model's labels",
            logits.columns()
        )));
    }
    let known: Vec<u32> = targets.iter().map(|target| target.unwrap_or(0)).collect();
    let losses = tensor::cross_entropy(&logits, &known, None)?.0.to_vec()?;
    let values = logits.to_vec()?;
    let scored = rows(&values, logits.columns()).zip(losses.into_iter().zip(targets));
    Ok(scored
        .map(|(logits, (loss, target))| Prediction {
            loss: target.map(|_| loss),
            predictions: usize::from(target.is_some()),
            logits,
        })
        .collect())
}

fn predict_tokens(model: &Model, batch: &Batch, want_logits: bool) -> Result<Vec<Prediction>> {
    let objective = crate::model::Objective::of(batch, model.network.head.task_head)?;
    let losses = model.losses(batch)?;
    let mut counts = vec![0; batch.sequences()];
    objective.examples.iter().for_each(|&example| counts[example as usize] += 1);
    let mut last = vec![Vec::new(); batch.sequences()];
    if want_logits {
        let ends: Vec<u32> = batch.starts[1..].iter().map(|&end| (end - 1) as u32).collect();
        let logits = model.logits(batch, Some(&ends))?;
        last = rows(&logits.to_vec()?, logits.columns()).collect();
    }
    let scored = losses.into_iter().zip(counts).zip(last);
    Ok(scored
        .map(|((loss, predictions), logits)| Prediction {
            loss: (predictions > 0).then_some(loss),
            predictions,
            logits,
        })
        .collect())
}
