//! ROUGE-L of generated texts, as the package rouge_score computes `rougeL` without stemming: the
//! F1 score of the longest common subsequence of words, averaged over texts. Of several references,
//! the one with the highest score counts.

/// Accumulates ROUGE-L over texts.
#[derive(Clone, Debug, Default)]
pub struct RougeL {
    sum: f64,
    texts: usize,
}

impl RougeL {
    /// Adds a generated text and its references.
    pub fn add(&mut self, text: &str, references: &[impl AsRef<str>]) {
        let text = words(text);
        let scores = references.iter().map(|reference| f1(&text, &words(reference.as_ref())));
        self.sum += scores.fold(0.0, f64::max);
        self.texts += 1;
    }

    /// The mean F1 score, from 0 to 1.
    pub fn mean(&self) -> f64 {
        self.sum / self.texts.max(1) as f64
    }
}

/// Runs of ASCII letters and digits, in lowercase.
fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// With a common subsequence of l words: precision l/m, recall l/n, and their harmonic mean
/// 2l/(m+n).
fn f1(text: &[String], reference: &[String]) -> f64 {
    let total = text.len() + reference.len();
    if total == 0 { 0.0 } else { 2.0 * common(text, reference) as f64 / total as f64 }
}

/// Length of the longest common subsequence.
fn common(left: &[String], right: &[String]) -> usize {
    let mut row = vec![0; right.len() + 1];
    for word in left {
        let mut diagonal = 0;
        for (j, second) in right.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if word == second { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: "the cat … mat" with five and six words.
    #[test]
    fn a_score_computed_by_hand() {
        let mut rouge = RougeL::default();
        rouge.add("The cat ate the mat!", &["the mat", "the cat sat on the mat", "a dog"]);
        assert!((rouge.mean() - 2.0 * 4.0 / 11.0).abs() < 1e-12, "{}", rouge.mean());
        rouge.add("", &["a"]);
        assert!((rouge.mean() - 4.0 / 11.0).abs() < 1e-12, "{}", rouge.mean());
        assert_eq!(RougeL::default().mean(), 0.0);
        assert_eq!(common(&words("a b c d"), &words("d c b a")), 1);
    }
}
