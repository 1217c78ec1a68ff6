//! Sampling the next token from its logits.

use super::Settings;
use crate::tensor::cpu::simd::{max, widest};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// Greedy decoding: the first token with the largest logit.
pub fn argmax(logits: &[f32]) -> u32 {
    let largest = widest(
        #[inline(always)]
        || max(logits),
    );
    logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u32
}

/// Sampler of one text's tokens.
pub struct Chooser<'a> {
    rng: ChaCha8Rng,
    settings: &'a Settings,
}

impl<'a> Chooser<'a> {
    pub fn new(rng: ChaCha8Rng, settings: &'a Settings) -> Self {
        Self { rng, settings }
    }

    /// Samples from softmax(logits / temperature), restricted by top-k and top-p.
    pub fn choose(&mut self, logits: &[f32]) -> u32 {
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let by_logit =
            |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        let keep = if self.settings.top_k == 0 {
            order.len()
        } else {
            self.settings.top_k.min(order.len())
        };
        if keep < order.len() {
            order.select_nth_unstable_by(keep, by_logit);
            order.truncate(keep);
        }
        order.sort_unstable_by(by_logit);
        let largest = logits[order[0] as usize];
        let mut weights: Vec<f64> = order
            .iter()
            .map(|&token| {
                f64::from((logits[token as usize] - largest) / self.settings.temperature).exp()
            })
            .collect();
        let total: f64 = weights.iter().sum();
        if self.settings.top_p < 1.0 {
            // Top-p: the smallest set of likeliest tokens that reaches the probability.
            let (mut reached, wanted) = (0.0, f64::from(self.settings.top_p) * total);
            let enough = weights.iter().position(|weight| {
                reached += weight;
                reached >= wanted
            });
            weights.truncate(enough.map_or(weights.len(), |last| last + 1));
        }
        let total: f64 = weights.iter().sum();
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut left = uniform * total;
        for (token, weight) in order.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return *token;
            }
        }
        order[weights.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn frequencies(settings: &Settings, logits: &[f32]) -> Vec<f64> {
        let mut chooser = Chooser::new(ChaCha8Rng::seed_from_u64(1), settings);
        let mut counts = vec![0.0; logits.len()];
        for _ in 0..20_000 {
            counts[chooser.choose(logits) as usize] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [1.0, 2.0, 0.0, -1.0];
        let settings = Settings { temperature: 0.7, ..Settings::default() };
        let total: f64 = logits.iter().map(|l| f64::from(*l / 0.7).exp()).sum();
        for (found, logit) in frequencies(&settings, &logits).iter().zip(logits) {
            assert!((found - f64::from(logit / 0.7).exp() / total).abs() < 0.015);
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [1.0, 2.0, 0.0, -1.0];
        let two = frequencies(&Settings { top_k: 2, ..Settings::default() }, &logits);
        assert!(two[2] == 0.0 && two[3] == 0.0 && two[0] > 0.2);
        // The likeliest has 64 %, so 0.6 leaves it alone and 0.7 adds the second.
        let one = frequencies(&Settings { top_p: 0.6, ..Settings::default() }, &logits);
        assert!((one[1] - 1.0).abs() < 1e-9);
        let both = frequencies(&Settings { top_p: 0.7, ..Settings::default() }, &logits);
        assert!(both[0] > 0.2 && both[2] == 0.0);
    }
}
