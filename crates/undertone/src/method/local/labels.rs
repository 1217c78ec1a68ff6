//! Randomized response on labels.

use crate::model::RandomizedResponse;
use crate::noise::{Secret, purpose};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use undertone_accounting::Event;

/// k-ary randomized response: the true label with probability e^ε/(e^ε + k − 1), otherwise one of
/// the other labels, chosen uniformly.
///
/// # What is proved
/// Whatever the true label, each answer has a probability of at least q = 1/(e^ε + k − 1) and at
/// most e^ε q, so the ratio of any two is at most e^ε: (ε, 0)-differential privacy. (Probabilities
/// are multiples of 2⁻⁶⁴; that of the true label is rounded down.)
#[derive(Clone)]
pub struct RandomizedLabels {
    key: [u8; 32],
    epsilon: f64,
    classes: u32,
}

/// Omits the key.
impl std::fmt::Debug for RandomizedLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RandomizedLabels {{ epsilon: {}, classes: {} }}", self.epsilon, self.classes)
    }
}

impl RandomizedLabels {
    /// Randomized response with this ε for k = `classes`.
    pub fn new(secret: &Secret, epsilon: f64, classes: u32) -> Self {
        Self { key: secret.key(purpose::LABELS), epsilon, classes }
    }

    /// Probability of the true label, and of each other label.
    pub fn flipped(&self) -> RandomizedResponse {
        // The form 1/(1 + (k − 1) e^−ε) does not overflow.
        let away = (-self.epsilon).exp();
        let kept = 1.0 / (1.0 + f64::from(self.classes - 1) * away);
        RandomizedResponse { kept, other: kept * away }
    }

    /// The randomized label of an example, which is the same in every call.
    pub fn answer(&self, example: u64, label: u32) -> u32 {
        let mut stream = ChaCha20Rng::from_seed(self.key);
        stream.set_stream(example);
        let (coin, other) = (stream.next_u64(), stream.next_u64());
        if (coin as f64) < self.flipped().kept * (1.0 - 1e-15) * 2.0_f64.powi(64) {
            return label;
        }
        let others = u128::from(self.classes - 1);
        let choice = ((u128::from(other) * others) >> 64) as u32;
        if choice < label { choice } else { choice + 1 }
    }

    /// The accounting event of one response.
    pub fn event(&self) -> Event {
        Event::RandomizedResponse { epsilon: self.epsilon, categories: u64::from(self.classes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_stated_probabilities() {
        for (epsilon, classes) in [(1.0, 2), (2.0, 4), (0.2, 3)] {
            let labels = RandomizedLabels::new(&Secret::from_seed(3), epsilon, classes);
            let n = 60_000_u32;
            for truth in 0..classes {
                let mut counts = vec![0.0; classes as usize];
                (0..n).for_each(|r| counts[labels.answer(u64::from(r), truth) as usize] += 1.0);
                let flipped = labels.flipped();
                assert!((flipped.kept / flipped.other - epsilon.exp()).abs() < 1e-9);
                assert!(
                    (flipped.kept + flipped.other * f64::from(classes - 1) - 1.0).abs() < 1e-12
                );
                for (class, count) in counts.iter().enumerate() {
                    let p = if class as u32 == truth { flipped.kept } else { flipped.other };
                    let spread = (p * (1.0 - p) / f64::from(n)).sqrt();
                    assert!((count / f64::from(n) - p).abs() < 5.0 * spread, "{class} of {truth}");
                }
            }
            assert_eq!(labels.answer(7, 1), labels.answer(7, 1));
        }
    }
}
