//! Sampling the next token from its logits.

use super::Settings;
use crate::Result;
use undertone_tensor::{self as tensor, Likely, Matrix, parallel_map};

/// Tokens whose probability is at least e⁻¹⁰ of the largest are considered first; of a large
/// vocabulary, usually no others are needed.
const LIKELY: f32 = 10.0;

/// Calls `pick` with the likely tokens of each row of logits and, where it returns `None`, with all
/// of them.
pub fn pick<T: Send>(
    logits: &Matrix,
    settings: &Settings,
    pick: impl Fn(usize, &Descending) -> Option<T> + Sync,
) -> Result<Vec<T>> {
    let (temperature, below) = limits(settings);
    let likely = tensor::likely(logits, temperature, below)?;
    let mut picked = parallel_map(likely.len(), |row| {
        Descending::likely(&likely[row], logits.columns()).and_then(|tokens| pick(row, &tokens))
    });
    let missing: Vec<u32> =
        (0..).zip(&picked).filter(|(_, p)| p.is_none()).map(|(i, _)| i).collect();
    if !missing.is_empty() {
        let all = tensor::gather(logits, &missing)?.to_host()?;
        let of_all = parallel_map(missing.len(), |i| {
            let row = missing[i] as usize;
            let Likely { largest, total, .. } = likely[row];
            pick(row, &Descending::all(largest, total, all.row(i)))
        });
        missing.iter().zip(of_all).for_each(|(&row, token)| picked[row as usize] = token);
    }
    // All tokens are always enough.
    Ok(picked.into_iter().flatten().collect())
}

/// The temperature of the weights, and how far below the largest logit a token is still likely.
fn limits(settings: &Settings) -> (f32, f32) {
    match settings.temperature {
        // Greedy decoding only needs the tokens with the largest logit.
        0.0 => (1.0, 0.0),
        temperature => (temperature, LIKELY * temperature),
    }
}

/// Tokens by descending logit, then ascending token: all of them, or the likely ones.
pub struct Descending {
    largest: f32,
    /// The total weight of all tokens.
    total: f64,
    tokens: Vec<(u32, f32)>,
    vocabulary: usize,
}

impl Descending {
    /// The likely tokens, if they are known.
    fn likely(likely: &Likely, vocabulary: usize) -> Option<Self> {
        let tokens = likely.tokens.clone()?;
        Some(Self::sorted(likely.largest, likely.total, tokens, vocabulary))
    }

    /// All tokens, of which [`Likely`] states the largest logit and the total.
    fn all(largest: f32, total: f64, logits: &[f32]) -> Self {
        let tokens = (0..).zip(logits.iter().copied()).collect();
        Self::sorted(largest, total, tokens, logits.len())
    }

    fn sorted(largest: f32, total: f64, mut tokens: Vec<(u32, f32)>, vocabulary: usize) -> Self {
        tokens.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Self { largest, total, tokens, vocabulary }
    }

    fn has_all(&self) -> bool {
        self.tokens.len() == self.vocabulary
    }

    /// Samples from softmax(logits / temperature), restricted by top-k and top-p: walks through the
    /// tokens in this order until their total exceeds the fraction `uniform` of all. A temperature
    /// of 0 selects the first. `None` if that needs more tokens than these.
    pub fn choose(&self, settings: &Settings, uniform: f64) -> Option<u32> {
        let Settings { temperature, top_k, top_p, .. } = *settings;
        if temperature == 0.0 {
            return self.tokens.first().map(|&(token, _)| token);
        }
        let weight = |place: usize| {
            let (_, logit) = self.tokens.get(place)?;
            Some(f64::from((logit - self.largest) / temperature).exp())
        };
        let count = if top_k == 0 { self.vocabulary } else { top_k.min(self.vocabulary) };
        let mut total = match count == self.vocabulary {
            true => self.total,
            false => (0..count).map(weight).sum::<Option<f64>>()?,
        };
        let mut kept = count;
        if top_p < 1.0 {
            // Top-p: the smallest set of most likely tokens whose total probability reaches p.
            let (mut reached, wanted) = (0.0, f64::from(top_p) * total);
            kept = 0;
            while kept < count && (kept == 0 || reached < wanted) {
                reached += weight(kept)?;
                kept += 1;
            }
            total = reached;
        }
        let mut left = uniform * total;
        for place in 0..kept {
            left -= weight(place)?;
            if left < 0.0 {
                return Some(self.tokens[place].0);
            }
        }
        self.tokens.get(kept - 1).map(|&(token, _)| token)
    }

    /// The first `count` tokens and their log-probabilities; `None` if these are fewer.
    pub fn most_likely(&self, count: usize) -> Option<impl Iterator<Item = (u32, f64)>> {
        if self.tokens.len() < count && !self.has_all() {
            return None;
        }
        let normalizer = f64::from(self.largest) + self.total.ln();
        let log_probability =
            move |&(token, logit): &(u32, f32)| (token, f64::from(logit) - normalizer);
        Some(self.tokens.iter().take(count).map(log_probability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    /// Samples a token from the same logits for each random number.
    fn choose(settings: &Settings, logits: &[f32], uniforms: &[f64]) -> Vec<u32> {
        let rows = logits.repeat(uniforms.len());
        let logits = Matrix::from_vec(uniforms.len(), logits.len(), rows);
        pick(&logits, settings, |row, tokens| tokens.choose(settings, uniforms[row])).unwrap()
    }

    fn uniforms(seed: u64, count: usize) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| super::super::uniform(&mut rng)).collect()
    }

    fn frequencies(settings: &Settings, logits: &[f32]) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        for token in choose(settings, logits, &uniforms(1, 20_000)) {
            counts[token as usize] += 1.0 / 20_000.0;
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
    fn likely_tokens_are_used_where_they_are_enough() {
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
            let uniforms = uniforms(2, 50);
            let chosen = choose(&settings, &logits, &uniforms);
            for (token, uniform) in chosen.into_iter().zip(uniforms) {
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
                let place = weights.iter().position(|weight| {
                    left -= weight;
                    left < 0.0
                });
                assert_eq!(token as usize, order[place.unwrap()]);
            }
        }
    }

    #[test]
    fn greedy_decoding_takes_the_first_of_the_largest() {
        let greedy = Settings { temperature: 0.0, ..Settings::default() };
        assert_eq!(choose(&greedy, &[0.0, 3.0, 1.0, 3.0], &[0.9]), [1]);
    }

    #[test]
    fn the_most_likely_tokens_have_their_log_probabilities() {
        let logits = [1.0_f32, 2.0, 0.0, -30.0];
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let matrix = Matrix::from_vec(1, 4, logits.to_vec());
        for count in 1..=4 {
            let settings = Settings::default();
            let likeliest = |_: usize, tokens: &Descending| {
                tokens.most_likely(count).map(Iterator::collect::<Vec<_>>)
            };
            let rows = pick(&matrix, &settings, likeliest).unwrap();
            assert_eq!(
                rows[0].iter().map(|(token, _)| *token).collect::<Vec<_>>(),
                [1, 0, 2, 3][..count]
            );
            for (token, log_probability) in &rows[0] {
                let expected = f64::from(logits[*token as usize]) - total.ln();
                assert!((log_probability - expected).abs() < 1e-6);
            }
        }
    }
}
