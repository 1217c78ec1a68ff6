//! ROC AUC of a classifier: the probability that an example of a class is ranked above one of
//! another class, where ties count half.

use super::Prediction;
use crate::data::{Example, Target};

/// Accumulates log-probabilities of the classes over labeled examples.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    labels: Vec<u32>,
    /// Log-probability of each class, `[examples][classes]`.
    scores: Vec<Vec<f64>>,
}

impl Ranking {
    /// Adds an example; one without a label is skipped.
    pub fn add(&mut self, example: &Example, prediction: &Prediction) {
        if let Target::Class(label) = example.target {
            self.labels.push(label);
            self.scores.push(log_probabilities(&prediction.logits));
        }
    }

    /// With two classes, the area for class 1; with more, the mean over classes, each against all
    /// others (macro one-vs-rest). Classes that no example has, or every example has, are left out;
    /// `None` if no class remains.
    pub fn auc(&self) -> Option<f64> {
        let classes = self.scores.first()?.len();
        let first = usize::from(classes == 2);
        let areas: Vec<f64> = (first..classes).filter_map(|class| self.area(class)).collect();
        (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
    }

    /// The Mann–Whitney statistic of a class against the others, divided by its maximum.
    fn area(&self, class: usize) -> Option<f64> {
        let is_of = |i: &&usize| self.labels[**i] as usize == class;
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        order.sort_by(|&i, &j| self.scores[i][class].total_cmp(&self.scores[j][class]));
        let positives = order.iter().filter(is_of).count() as f64;
        let negatives = order.len() as f64 - positives;
        if positives == 0.0 || negatives == 0.0 {
            return None;
        }
        let (mut below, mut wins) = (0.0, 0.0);
        for equal in order.chunk_by(|&i, &j| self.scores[i][class] == self.scores[j][class]) {
            let hits = equal.iter().filter(is_of).count() as f64;
            let others = equal.len() as f64 - hits;
            wins += hits * (below + others / 2.0);
            below += others;
        }
        Some(wins / (positives * negatives))
    }
}

fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|l| f64::from(l - largest).exp()).sum();
    logits.iter().map(|l| f64::from(l - largest) - total.ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auc(rows: &[(u32, &[f32])]) -> Option<f64> {
        let mut ranking = Ranking::default();
        for (label, logits) in rows {
            let example = Example { target: Target::Class(*label), ..Example::default() };
            let logits = logits.to_vec();
            ranking.add(&example, &Prediction { loss: Some(0.0), predictions: 1, logits });
        }
        ranking.auc()
    }

    #[test]
    fn areas_by_hand() {
        // Of the four pairs, class 1 wins two and ties one.
        let rows: [(u32, &[f32]); 4] =
            [(1, &[0.0, 2.0]), (1, &[0.0, 0.0]), (0, &[0.0, 0.0]), (0, &[0.0, 1.0])];
        assert_eq!(auc(&rows), Some(2.5 / 4.0));
        assert_eq!(auc(&rows[..2]), None, "there is nothing to compare with");
        assert_eq!(auc(&[]), None);
        // Class 2 of three does not occur: the mean is over the other two.
        let three: [(u32, &[f32]); 2] = [(0, &[1.0, 0.0, 0.0]), (1, &[0.0, 1.0, 0.0])];
        assert_eq!(auc(&three), Some(1.0));
    }
}
