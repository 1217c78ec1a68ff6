//! Sampling the next token from its logits.

use super::Settings;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use std::cmp::Ordering::{Equal, Greater};
use undertone_tensor::simd::{exp, max, sum_lanes, widest};

/// Greedy decoding: the first token with the largest logit.
pub fn argmax(logits: &[f32]) -> u32 {
    let largest = widest(
        #[inline(always)]
        || max(logits),
    );
    logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u32
}

/// Sampler for the tokens of one text.
pub struct Chooser<'a> {
    rng: ChaCha8Rng,
    settings: &'a Settings,
}

impl<'a> Chooser<'a> {
    pub fn new(rng: ChaCha8Rng, settings: &'a Settings) -> Self {
        Self { rng, settings }
    }

    /// Samples from softmax(logits / temperature), restricted by top-k and top-p: walks through the
    /// tokens in descending order of probability until their total exceeds a random fraction.
    pub fn choose(&mut self, logits: &[f32]) -> u32 {
        let Settings { temperature, top_k, top_p, .. } = *self.settings;
        let largest = widest(
            #[inline(always)]
            || max(logits),
        );
        let weight = |token: u32| f64::from((logits[token as usize] - largest) / temperature).exp();
        let mut order = Descending::of(logits, largest - LIKELY * temperature);
        let count = if top_k == 0 { logits.len() } else { top_k.min(logits.len()) };
        let mut total = match count == logits.len() {
            true => total_weight(logits, largest, temperature),
            false => (0..count).map(|place| weight(order.token(place))).sum(),
        };
        let mut kept = count;
        if top_p < 1.0 {
            // Top-p: the smallest set of most likely tokens whose total probability reaches p.
            let (mut reached, wanted) = (0.0, f64::from(top_p) * total);
            kept = 0;
            while kept < count && (kept == 0 || reached < wanted) {
                reached += weight(order.token(kept));
                kept += 1;
            }
            total = reached;
        }
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut left = uniform * total;
        for place in 0..kept {
            left -= weight(order.token(place));
            if left < 0.0 {
                return order.token(place);
            }
        }
        order.token(kept - 1)
    }
}

/// Tokens whose probability is at least e⁻¹⁰ of the largest are sorted first; of a large
/// vocabulary, usually no others are needed.
const LIKELY: f32 = 10.0;

/// Σ exp((logit − largest) / temperature).
fn total_weight(logits: &[f32], largest: f32, temperature: f32) -> f64 {
    widest(
        #[inline(always)]
        || {
            let mut total = 0.0;
            for run in logits.chunks(512) {
                let mut lanes = [0.0; 16];
                let (chunks, rest) = run.as_chunks::<16>();
                for chunk in chunks {
                    for i in 0..16 {
                        lanes[i] += exp((chunk[i] - largest) / temperature);
                    }
                }
                total += f64::from(sum_lanes(lanes));
                for logit in rest {
                    total += f64::from(exp((logit - largest) / temperature));
                }
            }
            total
        },
    )
}

/// The tokens by descending logit, sorted as far as needed.
struct Descending<'l> {
    logits: &'l [f32],
    sorted: Vec<u32>,
    /// Upper bound on the logits of the tokens not sorted yet.
    least: f32,
}

impl<'l> Descending<'l> {
    /// Sorts the tokens whose logit is at least `least`.
    fn of(logits: &'l [f32], least: f32) -> Self {
        let mut sorted: Vec<u32> =
            (0..logits.len() as u32).filter(|&token| logits[token as usize] >= least).collect();
        sort(logits, &mut sorted);
        Self { logits, sorted, least }
    }

    /// The token at this position of the order.
    fn token(&mut self, place: usize) -> u32 {
        if place >= self.sorted.len() {
            let Self { logits, sorted, least } = self;
            // NaN compares neither above nor below.
            let is_rest = |token: &u32| {
                !matches!(logits[*token as usize].partial_cmp(least), Some(Equal | Greater))
            };
            let mut rest: Vec<u32> = (0..logits.len() as u32).filter(is_rest).collect();
            sort(logits, &mut rest);
            sorted.extend(rest);
        }
        self.sorted[place]
    }
}

fn sort(logits: &[f32], tokens: &mut [u32]) {
    tokens.sort_unstable_by(|a, b| {
        logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b))
    });
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
        for (frequency, logit) in frequencies(&settings, &logits).iter().zip(logits) {
            assert!((frequency - f64::from(logit / 0.7).exp() / total).abs() < 0.015);
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [1.0, 2.0, 0.0, -1.0];
        let two = frequencies(&Settings { top_k: 2, ..Settings::default() }, &logits);
        assert!(two[2] == 0.0 && two[3] == 0.0 && two[0] > 0.2);
        // The most likely token has probability 0.64, so 0.6 keeps only that one and 0.7 adds the
        // second.
        let likeliest = frequencies(&Settings { top_p: 0.6, ..Settings::default() }, &logits);
        assert!((likeliest[1] - 1.0).abs() < 1e-9);
        let both = frequencies(&Settings { top_p: 0.7, ..Settings::default() }, &logits);
        assert!(both[0] > 0.2 && both[2] == 0.0);
    }

    /// The tokens are the same as with the whole vocabulary sorted, even if the likely ones are few
    /// or insufficient.
    #[test]
    fn as_much_is_sorted_as_is_needed() {
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 1e7
        };
        for (spread, top_k, top_p) in
            [(1.0, 0, 1.0), (40.0, 0, 1.0), (40.0, 700, 1.0), (1.0, 50, 0.9), (8.0, 0, 0.7)]
        {
            let logits: Vec<f32> = (0..3000).map(|_| spread * noise()).collect();
            let settings = Settings { top_k, top_p, temperature: 0.8, ..Settings::default() };
            let mut chooser = Chooser::new(ChaCha8Rng::seed_from_u64(2), &settings);
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            for _ in 0..50 {
                let uniform = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                let mut order: Vec<usize> = (0..logits.len()).collect();
                order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
                order.truncate(if top_k == 0 { logits.len() } else { top_k });
                let largest = logits[order[0]];
                let weight = |&token: &usize| f64::from((logits[token] - largest) / 0.8).exp();
                let mut weights: Vec<f64> = order.iter().map(weight).collect();
                let wanted = f64::from(top_p) * weights.iter().sum::<f64>();
                let mut sum = 0.0;
                let enough = weights.iter().position(|weight| {
                    sum += weight;
                    sum >= wanted
                });
                weights.truncate(enough.map_or(weights.len(), |last| last + 1));
                let mut left = uniform * weights.iter().sum::<f64>();
                let position = weights.iter().position(|weight| {
                    left -= weight;
                    left < 0.0
                });
                assert_eq!(chooser.choose(&logits) as usize, order[position.unwrap()]);
            }
        }
    }
}
