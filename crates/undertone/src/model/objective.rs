//! What a batch asks the head to predict, and how the losses are weighted.

use super::layer::head::Purpose;
use super::{Error, Result};
use crate::data::{Batch, Target};
use crate::tensor::{self, Matrix};
use std::collections::HashMap;

/// How the losses of a batch become one number whose gradient is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// The mean over everything that is predicted in the batch, as ordinary training does.
    MeanOfPredictions,
    /// The sum over privacy units of each unit's mean over its examples, each of which is the mean
    /// of what it predicts: what private training clips unit by unit.
    SumOfUnits,
}

/// Labels that went through k-ary randomised response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlippedLabels {
    /// The probability of the true label.
    pub kept: f64,
    /// The probability of each other one.
    pub other: f64,
}

impl FlippedLabels {
    /// From the cross-entropy −ln p to −ln(q + (k − q) p), where k and q are the probabilities of
    /// the true label and of another one, and the factor by which the gradient of the first becomes
    /// that of the second.
    fn correct(&self, loss: f32) -> (f32, f32) {
        let p = (-f64::from(loss)).exp();
        let hit = (self.kept - self.other) * p;
        let said = self.other + hit;
        (-(said.max(1e-300).ln()) as f32, (hit / said.max(1e-300)) as f32)
    }
}

/// Rows of logits, the class that each should have, and the example that each belongs to.
#[derive(Clone, Debug, Default)]
pub struct Objective {
    /// For heads on tokens: the packed tokens whose logits are wanted.
    pub rows: Vec<u32>,
    /// One class for each row of logits.
    pub targets: Vec<u32>,
    /// The example of each row of logits.
    pub examples: Vec<u32>,
}

impl Objective {
    /// Reads the targets of a batch as a head of this purpose needs them.
    pub fn of(batch: &Batch, purpose: Purpose) -> Result<Self> {
        let mut objective = Self::default();
        for (i, target) in batch.targets.iter().enumerate() {
            let range = batch.range(i);
            let mut push = |row: usize, target: u32| {
                objective.rows.push(row as u32);
                objective.targets.push(target);
                objective.examples.push(i as u32);
            };
            match (purpose, target) {
                (Purpose::SequenceClassification, Target::Class(class)) => push(i, *class),
                (Purpose::CausalLanguageModel, Target::Next { from }) => {
                    for at in range.start + (*from).max(1)..range.end {
                        push(at - 1, batch.tokens[at]);
                    }
                }
                (
                    Purpose::MaskedLanguageModel | Purpose::TokenClassification,
                    Target::Masked { positions, labels },
                ) => {
                    for (&position, &label) in positions.iter().zip(labels) {
                        let row = range.start + position as usize;
                        if row >= range.end {
                            return Err(Error::Request(format!(
                                "position {position} is beyond a sequence of {} tokens",
                                range.len()
                            )));
                        }
                        push(row, label);
                    }
                }
                _ => {
                    return Err(Error::Request(format!(
                        "the model's head ({purpose:?}) has no use for an example with target {target:?}; \
                         choose the task that fits the model"
                    )));
                }
            }
        }
        Ok(objective)
    }

    /// Whether every class exists.
    pub fn check_targets(&self, classes: usize) -> Result<()> {
        match self.targets.iter().find(|&&target| target as usize >= classes) {
            Some(target) => Err(Error::Request(format!(
                "class {target} was asked for, but the model has {classes}"
            ))),
            None => Ok(()),
        }
    }

    /// The loss of each row, and the gradient of their weighted sum. With labels that lie now and
    /// then, the loss of what was said: −ln P(said | logits).
    pub fn losses(
        &self,
        logits: &Matrix,
        weighting: Weighting,
        units: &[u32],
        labels: Option<FlippedLabels>,
    ) -> Result<(Vec<f32>, Option<Matrix>)> {
        self.check_targets(logits.columns())?;
        let mut weights = self.weights(weighting, units);
        let Some(labels) = labels else {
            return Ok(tensor::cross_entropy(logits, &self.targets, Some(&weights))?);
        };
        let (mut losses, _) = tensor::cross_entropy(logits, &self.targets, None)?;
        for (loss, weight) in losses.iter_mut().zip(&mut weights) {
            let (corrected, share) = labels.correct(*loss);
            *loss = corrected;
            *weight *= share;
        }
        let (_, gradient) = tensor::cross_entropy(logits, &self.targets, Some(&weights))?;
        Ok((losses, gradient))
    }

    fn predictions_by_example(&self, examples: usize) -> Vec<u32> {
        let mut counts = vec![0; examples];
        for &example in &self.examples {
            counts[example as usize] += 1;
        }
        counts
    }

    /// The weight of each row's loss.
    pub fn weights(&self, weighting: Weighting, units: &[u32]) -> Vec<f32> {
        match weighting {
            Weighting::MeanOfPredictions => {
                vec![1.0 / self.rows.len().max(1) as f32; self.rows.len()]
            }
            Weighting::SumOfUnits => {
                let counts = self.predictions_by_example(units.len());
                let mut sizes: HashMap<u32, u32> = HashMap::new();
                units.iter().for_each(|&unit| *sizes.entry(unit).or_default() += 1);
                let weight = |&example: &u32| {
                    let example = example as usize;
                    1.0 / (counts[example] * sizes[&units[example]]) as f32
                };
                self.examples.iter().map(weight).collect()
            }
        }
    }

    /// Each example's mean of its rows' losses; 0 for one that predicts nothing.
    pub fn mean_by_example(&self, losses: &[f32], examples: usize) -> Vec<f32> {
        let counts = self.predictions_by_example(examples);
        let mut means = vec![0.0; examples];
        for (&example, loss) in self.examples.iter().zip(losses) {
            means[example as usize] += loss / counts[example as usize] as f32;
        }
        means
    }
}
