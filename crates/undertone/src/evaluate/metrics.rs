//! Evaluation metrics, accumulated over examples.

use super::Prediction;
use crate::data::{Example, Target};
use crate::model::TaskHead;
use undertone_run::{ClassificationMetrics, LanguageMetrics, Metrics};

/// Accumulates metrics over a stream of examples.
#[derive(Clone, Debug)]
pub struct Meter {
    task_head: TaskHead,
    confusion: Vec<Vec<u64>>,
    examples: usize,
    predictions: usize,
    loss: f64,
}

impl Meter {
    /// Creates a meter for this kind of task head with `classes` classes.
    pub fn new(task_head: TaskHead, classes: usize) -> Self {
        let confusion = if task_head == TaskHead::SequenceClassification {
            vec![vec![0; classes]; classes]
        } else {
            Vec::new()
        };
        Self { task_head, confusion, examples: 0, predictions: 0, loss: 0.0 }
    }

    pub fn add(&mut self, example: &Example, prediction: &Prediction) {
        let Some(loss) = prediction.loss else { return };
        self.examples += 1;
        self.predictions += prediction.predictions;
        self.loss += f64::from(loss) * prediction.predictions as f64;
        if let (Target::Class(truth), true) =
            (&example.target, self.task_head == TaskHead::SequenceClassification)
        {
            self.confusion[*truth as usize][likeliest(&prediction.logits)] += 1;
        }
    }

    /// The metrics so far.
    pub fn metrics(&self) -> Metrics {
        let loss = self.loss / self.predictions.max(1) as f64;
        if self.task_head != TaskHead::SequenceClassification {
            let (examples, tokens) = (self.examples, self.predictions);
            return Metrics::Language(LanguageMetrics {
                examples,
                tokens,
                loss,
                perplexity: loss.exp(),
            });
        }
        let right: u64 = (0..self.confusion.len()).map(|class| self.confusion[class][class]).sum();
        let scores: Vec<f64> =
            (0..self.confusion.len()).map(|class| f1(&self.confusion, class)).collect();
        let f1 = if scores.len() == 2 {
            scores[1]
        } else {
            scores.iter().sum::<f64>() / scores.len().max(1) as f64
        };
        Metrics::Classification(ClassificationMetrics {
            examples: self.examples,
            accuracy: right as f64 / self.examples.max(1) as f64,
            f1,
            loss,
            confusion: self.confusion.clone(),
        })
    }
}

/// The index of the largest logit; the first one in case of a tie.
pub fn likeliest(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best
}

/// Harmonic mean of precision and recall; 0 if the class neither occurs nor is predicted.
fn f1(confusion: &[Vec<u64>], class: usize) -> f64 {
    let hit = confusion[class][class] as f64;
    let truth: u64 = confusion[class].iter().sum();
    let predicted: u64 = confusion.iter().map(|row| row[class]).sum();
    let total = (truth + predicted) as f64;
    if total == 0.0 { 0.0 } else { 2.0 * hit / total }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(classes: usize, pairs: &[(u32, usize)]) -> ClassificationMetrics {
        let mut meter = Meter::new(TaskHead::SequenceClassification, classes);
        for &(truth, predicted) in pairs {
            let mut logits = vec![0.0; classes];
            logits[predicted] = 1.0;
            let example = Example { target: Target::Class(truth), ..Example::default() };
            meter.add(&example, &Prediction { loss: Some(0.5), predictions: 1, logits });
        }
        match meter.metrics() {
            Metrics::Classification(metrics) => metrics,
            Metrics::Language(_) => unreachable!(),
        }
    }

    #[test]
    fn figures_of_a_small_table() {
        // Label 1 three times (predicted twice), label 0 twice (predicted once).
        let metrics = counted(2, &[(1, 1), (1, 1), (1, 0), (0, 0), (0, 1)]);
        assert_eq!(metrics.examples, 5);
        assert!((metrics.accuracy - 0.6).abs() < 1e-12);
        assert!((metrics.f1 - 2.0 * 2.0 / 6.0).abs() < 1e-12);
        assert!((metrics.loss - 0.5).abs() < 1e-12);
        let three = counted(3, &[(0, 0), (1, 1), (2, 1)]);
        assert!((three.f1 - (1.0 + 2.0 / 3.0 + 0.0) / 3.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_counted_is_not_a_number_nowhere() {
        let metrics = counted(2, &[]);
        assert!(metrics.accuracy == 0.0 && metrics.f1 == 0.0 && metrics.loss == 0.0);
    }
}
