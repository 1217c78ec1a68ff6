//! Training objective: the prediction targets of a batch and the weighting of its losses.

use super::layer::head::TaskHead;
use super::{Error, Result};
use std::collections::HashMap;
use undertone_data::{Batch, Target};
use undertone_tensor::{self as tensor, Matrix};

/// Reduction of a batch's losses to the scalar that is differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// Mean over all predictions of the batch, as in non-private training.
    MeanOfPredictions,
    /// Sum over privacy units of the unit's mean loss over its examples, each of which is the mean
    /// over its predictions: DP-SGD clips the gradient of each unit's term.
    SumOfUnits,
}

/// Probabilities of the k-ary randomized response that perturbed the labels (local DP).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomizedResponse {
    /// Probability that the true label is reported.
    pub kept: f64,
    /// Probability of each other label.
    pub other: f64,
}

impl RandomizedResponse {
    /// The corrected loss −ln(q + (k − q) p) computed from the cross-entropy −ln p, where k and q
    /// are the probabilities of reporting the true label and any other label; and the ratio of
    /// their gradients.
    fn correct(&self, loss: f32) -> (f32, f32) {
        let p = (-f64::from(loss)).exp();
        let hit = (self.kept - self.other) * p;
        let reported = self.other + hit;
        (-(reported.max(1e-300).ln()) as f32, (hit / reported.max(1e-300)) as f32)
    }
}

/// The losses of a batch. They stay on the device until requested, because reading them waits for
/// all pending work on a GPU.
#[derive(Clone, Debug)]
pub struct Losses {
    pub(super) objective: Objective,
    /// The loss of each row of logits, as a column.
    pub(super) of_rows: Matrix,
    pub(super) examples: usize,
}

impl Losses {
    /// Loss of each example: the mean over its predictions, in nats.
    pub fn by_example(&self) -> Result<Vec<f32>> {
        Ok(self.objective.mean_by_example(&self.of_rows.to_vec()?, self.examples))
    }
}

/// Prediction targets: which logits are needed, the target class of each, and its example.
#[derive(Clone, Debug, Default)]
pub struct Objective {
    /// For heads on tokens: indices of the packed tokens whose logits are needed.
    pub rows: Vec<u32>,
    /// Target class of each row of logits.
    pub targets: Vec<u32>,
    /// Index of the example to which each row of logits belongs.
    pub examples: Vec<u32>,
}

impl Objective {
    /// Prediction targets of a batch for this task head.
    pub fn of(batch: &Batch, task_head: TaskHead) -> Result<Self> {
        let mut objective = Self::default();
        for (i, target) in batch.targets.iter().enumerate() {
            let range = batch.range(i);
            let mut push = |row: usize, target: u32| {
                objective.rows.push(row as u32);
                objective.targets.push(target);
                objective.examples.push(i as u32);
            };
            match (task_head, target) {
                (TaskHead::SequenceClassification, Target::Class(class)) => push(i, *class),
                (TaskHead::CausalLanguageModel, Target::Next { from }) => {
                    for at in range.start + (*from).max(1)..range.end {
                        push(at - 1, batch.tokens[at]);
                    }
                }
                (TaskHead::CausalLanguageModel, Target::Spans(spans)) => {
                    for at in spans.iter().cloned().flatten().filter(|&at| at > 0) {
                        let at = range.start + at;
                        if at < range.end {
                            push(at - 1, batch.tokens[at]);
                        }
                    }
                }
                (
                    TaskHead::MaskedLanguageModel | TaskHead::TokenClassification,
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
                        "the model's task head ({task_head:?}) cannot use an example with target \
                         {target:?}; choose the task that fits the model"
                    )));
                }
            }
        }
        Ok(objective)
    }

    /// Fails if a target class does not exist.
    pub fn check_targets(&self, classes: usize) -> Result<()> {
        match self.targets.iter().find(|&&target| target as usize >= classes) {
            Some(target) => Err(Error::Request(format!(
                "class {target} is out of range: the model has {classes} classes"
            ))),
            None => Ok(()),
        }
    }

    /// The loss of each row, and the gradient of their weighted sum with respect to the logits. For
    /// labels from randomized response, the loss is that of the reported label, −ln P(reported |
    /// logits).
    pub fn losses(
        &self,
        logits: &Matrix,
        weighting: Weighting,
        units: &[u32],
        labels: Option<RandomizedResponse>,
    ) -> Result<(Matrix, Option<Matrix>)> {
        self.check_targets(logits.columns())?;
        let mut weights = self.weights(weighting, units);
        let Some(labels) = labels else {
            return Ok(tensor::cross_entropy(logits, &self.targets, Some(&weights))?);
        };
        let mut losses = tensor::cross_entropy(logits, &self.targets, None)?.0.to_vec()?;
        for (loss, weight) in losses.iter_mut().zip(&mut weights) {
            let (corrected, share) = labels.correct(*loss);
            *loss = corrected;
            *weight *= share;
        }
        let (_, gradient) = tensor::cross_entropy(logits, &self.targets, Some(&weights))?;
        Ok((Matrix::from_vec(losses.len(), 1, losses), gradient))
    }

    fn predictions_by_example(&self, examples: usize) -> Vec<u32> {
        let mut counts = vec![0; examples];
        for &example in &self.examples {
            counts[example as usize] += 1;
        }
        counts
    }

    /// Weight of each row's loss.
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

    /// Mean loss of each example over its predictions; 0 if it has none.
    pub fn mean_by_example(&self, losses: &[f32], examples: usize) -> Vec<f32> {
        let counts = self.predictions_by_example(examples);
        let mut means = vec![0.0; examples];
        for (&example, loss) in self.examples.iter().zip(losses) {
            means[example as usize] += loss / counts[example as usize] as f32;
        }
        means
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::Example;

    /// Each token of a span is predicted from the token before it.
    #[test]
    fn spans_are_predicted_from_the_tokens_before() {
        let example = Example {
            tokens: vec![1, 5, 6, 2, 7, 0, 1, 8, 2, 9, 10, 0],
            target: Target::Spans(vec![4..6, 9..12]),
            ..Example::default()
        };
        let objective =
            Objective::of(&Batch::pack([&example]), TaskHead::CausalLanguageModel).unwrap();
        assert_eq!(objective.rows, [3, 4, 8, 9, 10]);
        assert_eq!(objective.targets, [7, 0, 9, 10, 0]);
    }
}
