//! The mechanism: the choice of one token. See the [statement](super).

use crate::tensor::parallel_map;

/// Clipped differences are summed in units of 2⁻³²: integer sums do not depend on their order.
const ONE: f64 = (1_u64 << 32) as f64;

/// How a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Bound on each unit's difference from the public log-probability.
    pub clip: f64,
    /// Divisor of the sum over units.
    pub divisor: f64,
    pub temperature: f64,
    /// Number of the most likely public tokens to choose from; others that clipped differences
    /// could move among them are added. 0 means all.
    pub top_k: usize,
}

impl Choice {
    /// Range of the change of the scores when a unit is added or removed.
    pub fn range(&self) -> f64 {
        2.0 * self.clip / (self.divisor * self.temperature)
    }

    /// The token, from the public logits, those of each unit, and a uniform number in [0, 1).
    pub fn choose(&self, public: &[f32], private: &[&[f32]], uniform: f64) -> u32 {
        let public = log_probabilities(public);
        let tokens = self.tokens(&public);
        let clipped = parallel_map(private.len(), |i| {
            let normalizer = log_sum(private[i]);
            let own = |token: usize| f64::from(private[i][token]) - normalizer;
            let clipped = tokens.iter().map(|&token| self.clipped(own(token) - public[token]));
            clipped.collect::<Vec<i64>>()
        });
        let mut sums = vec![0_i64; tokens.len()];
        for unit in &clipped {
            sums.iter_mut().zip(unit).for_each(|(sum, clipped)| *sum += clipped);
        }
        let score = |(&token, &sum): (&usize, &i64)| {
            (public[token] + sum as f64 / (ONE * self.divisor)) / self.temperature
        };
        let scores: Vec<f64> = tokens.iter().zip(&sums).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut left = uniform * total;
        for (&token, weight) in tokens.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return token as u32;
            }
        }
        // Rounding may leave the last token.
        tokens.last().map_or(0, |&token| token as u32)
    }

    /// A difference within the clip, rounded toward 0. Without numbers, 0.
    fn clipped(&self, difference: f64) -> i64 {
        match difference.is_nan() {
            true => 0,
            false => (difference.clamp(-self.clip, self.clip) * ONE) as i64,
        }
    }

    /// The tokens to choose from: a function of the public log-probabilities.
    fn tokens(&self, public: &[f64]) -> Vec<usize> {
        let whole = self.top_k == 0 || self.top_k >= public.len();
        let least = match whole {
            true => f64::NEG_INFINITY,
            false => {
                let mut sorted = public.to_vec();
                let (_, kth, _) =
                    sorted.select_nth_unstable_by(self.top_k - 1, |a, b| b.total_cmp(a));
                *kth - 2.0 * self.clip
            }
        };
        (0..public.len()).filter(|&token| public[token] >= least).collect()
    }
}

/// Log-probabilities of logits; NaN counts as the minimum.
fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let (normalizer, least) = (log_sum(logits), f64::from(f32::MIN));
    let value = |&logit: &f32| match (f64::from(logit) - normalizer).clamp(least, 0.0) {
        value if value.is_nan() => least,
        value => value,
    };
    logits.iter().map(value).collect()
}

/// ln Σ e^logit, ignoring NaN.
fn log_sum(logits: &[f32]) -> f64 {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    let weights = logits.iter().map(|&logit| (logit - largest).exp());
    let sum: f64 = weights.filter(|weight| !weight.is_nan()).map(f64::from).sum();
    f64::from(largest) + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICE: Choice = Choice { clip: 1.5, divisor: 4.0, temperature: 0.8, top_k: 0 };

    /// The probabilities of tokens, from the boundaries between them.
    fn probabilities(choice: &Choice, public: &[f32], private: &[&[f32]]) -> Vec<f64> {
        let mut below = vec![0.0; public.len() + 1];
        for token in 0..public.len() {
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                match choice.choose(public, private, middle) as usize <= token {
                    true => low = middle,
                    false => high = middle,
                }
            }
            below[token + 1] = high;
        }
        below.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn logits(seed: u32, size: u32, scale: f32) -> Vec<f32> {
        let hashed = |i: u32| (i ^ seed.wrapping_mul(77)).wrapping_mul(2_654_435_761) >> 8;
        (0..size).map(|i| scale * (hashed(i + 1) as f32 / (1 << 24) as f32 - 0.5)).collect()
    }

    /// Without units, tokens have the model's own probabilities at the temperature.
    #[test]
    fn without_units_the_model_is_sampled() {
        let public = logits(3, 6, 6.0);
        let weights: Vec<f64> = public.iter().map(|x| (f64::from(*x) / 0.8).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (found, weight) in probabilities(&CHOICE, &public, &[]).iter().zip(&weights) {
            assert!((found - weight / total).abs() < 1e-9, "{found} {}", weight / total);
        }
    }

    /// Adding a unit, whatever its logits are, changes no log-ratio of two tokens by more than the
    /// range, and an extreme unit attains it. Twice the clip would exceed it.
    #[test]
    fn a_unit_changes_scores_within_the_range() {
        let public = logits(1, 5, 4.0);
        let others: Vec<Vec<f32>> = (0..3).map(|i| logits(10 + i, 5, 6.0)).collect();
        let without: Vec<&[f32]> = others.iter().map(Vec::as_slice).collect();
        let extreme = [40.0, -40.0, 40.0, -40.0, 40.0];
        let (infinite, nan) = ([f32::INFINITY; 5], [f32::NAN, 0.0, 1.0, f32::NEG_INFINITY, 2.0]);
        let change = |choice: &Choice, unit: &[f32]| {
            let with: Vec<&[f32]> = without.iter().copied().chain([unit]).collect();
            let (p, q) =
                (probabilities(choice, &public, &with), probabilities(choice, &public, &without));
            let losses: Vec<f64> = p.iter().zip(&q).map(|(p, q)| (p / q).ln()).collect();
            let most = losses.iter().copied().fold(f64::MIN, f64::max);
            most - losses.iter().copied().fold(f64::MAX, f64::min)
        };
        for unit in [&extreme[..], &infinite, &nan, &logits(9, 5, 1.0)] {
            assert!(change(&CHOICE, unit) <= CHOICE.range() + 1e-8, "{unit:?}");
        }
        assert!(change(&CHOICE, &extreme) > 0.999 * CHOICE.range());
        let wrong = Choice { clip: 2.0 * CHOICE.clip, ..CHOICE };
        assert!(change(&wrong, &extreme) > 1.5 * CHOICE.range());
    }

    /// The order of the units does not matter, not even for the last bit.
    #[test]
    fn the_order_of_units_does_not_matter() {
        let public = logits(1, 50, 8.0);
        let units: Vec<Vec<f32>> = (0..9).map(|i| logits(100 + i, 50, 9.0)).collect();
        let forward: Vec<&[f32]> = units.iter().map(Vec::as_slice).collect();
        let backward: Vec<&[f32]> = forward.iter().rev().copied().collect();
        for i in 0..500 {
            let uniform = f64::from(i) / 500.0;
            let chosen = [&forward, &backward].map(|units| CHOICE.choose(&public, units, uniform));
            assert_eq!(chosen[0], chosen[1]);
        }
    }

    /// Which tokens may be chosen depends on the public model alone, and includes all that units
    /// could move among the first k.
    #[test]
    fn the_first_tokens_are_public() {
        let choice = Choice { top_k: 2, clip: 0.5, ..CHOICE };
        let public: Vec<f64> = [5.0, 4.0, 3.2, 2.9, 0.0].into();
        assert_eq!(choice.tokens(&public), [0, 1, 2]);
        assert_eq!(Choice { top_k: 0, ..choice }.tokens(&public).len(), 5);
    }
}
