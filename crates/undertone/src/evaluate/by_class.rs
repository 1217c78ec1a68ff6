//! Precision, recall and F1 of each class.

use serde::Serialize;

/// Metrics of one class. A ratio with denominator 0 is 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfClass {
    /// Name of the class.
    pub label: String,
    /// Number of examples with this label.
    pub examples: u64,
    /// Fraction of the examples predicted to be in the class that are in the class.
    pub precision: f64,
    /// Fraction of the examples in the class that are predicted to be in the class.
    pub recall: f64,
    /// Harmonic mean of precision and recall.
    pub f1: f64,
}

/// The metrics of each class, from counts by `[label][prediction]`.
pub fn by_class(confusion: &[Vec<u64>], labels: &[String]) -> Vec<OfClass> {
    let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
    let of = |class: usize| {
        let hit = confusion[class][class];
        let examples: u64 = confusion[class].iter().sum();
        let predicted: u64 = confusion.iter().map(|row| row[class]).sum();
        OfClass {
            label: labels.get(class).cloned().unwrap_or_else(|| class.to_string()),
            examples,
            precision: share(hit, predicted),
            recall: share(hit, examples),
            f1: share(2 * hit, examples + predicted),
        }
    };
    (0..confusion.len()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_small_table() {
        // "yes" three times (predicted twice), "no" twice (predicted once), "maybe" never.
        let confusion = [vec![1, 1, 0], vec![1, 2, 0], vec![0, 0, 0]];
        let labels = ["no", "yes", "maybe"].map(str::to_owned);
        let of_class = by_class(&confusion, &labels);
        let numbers = |i: usize| (of_class[i].examples, of_class[i].precision, of_class[i].recall);
        assert_eq!(numbers(0), (2, 0.5, 0.5));
        assert_eq!(numbers(1), (3, 2.0 / 3.0, 2.0 / 3.0));
        assert_eq!((numbers(2), of_class[2].f1), ((0, 0.0, 0.0), 0.0));
        assert!((of_class[1].f1 - 4.0 / 6.0).abs() < 1e-12 && of_class[1].label == "yes");
    }
}
