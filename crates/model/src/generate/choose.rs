//! Sampling the next token from its logits.

use super::Settings;
use crate::Result;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use undertone_tensor::{self as tensor, Likely, Matrix, parallel_map};

/// Tokens whose probability is at least e⁻¹⁰ of the largest are considered first; of a large
/// vocabulary, usually no others are needed.
const LIKELY: f32 = 10.0;

/// Chooses the next token of each row, with one random number from 0 to 1, without 1, per row.
pub fn next_tokens(logits: &Matrix, settings: &Settings, uniforms: &[f64]) -> Result<Vec<u32>> {
    let is_whole = settings.top_k == 0 || settings.top_k >= logits.columns();
    if settings.temperature > 0.0 && settings.top_p == 1.0 && is_whole {
        return Ok(tensor::sample(logits, settings.temperature, uniforms)?);
    }
    pick(logits, settings, |row, tokens| tokens.choose(settings, uniforms[row]))
}

/// Calls `pick` with the likely tokens of each row of logits and, where it returns `None`, with all
/// of them.
pub fn pick<T: Send>(
    logits: &Matrix,
    settings: &Settings,
    pick: impl Fn(usize, &mut Descending) -> Option<T> + Sync,
) -> Result<Vec<T>> {
    let (temperature, below) = limits(settings);
    let likely = tensor::likely(logits, temperature, below)?;
    let mut picked = parallel_map(likely.len(), |row| {
        Descending::likely(&likely[row], logits.columns())
            .and_then(|mut tokens| pick(row, &mut tokens))
    });
    let missing: Vec<u32> =
        (0..).zip(&picked).filter(|(_, p)| p.is_none()).map(|(i, _)| i).collect();
    if !missing.is_empty() {
        let all = tensor::gather(logits, &missing)?.to_host()?;
        let of_all = parallel_map(missing.len(), |i| {
            let row = missing[i] as usize;
            let Likely { largest, total, .. } = likely[row];
            pick(row, &mut Descending::all(largest, total, all.row(i)))
        });
        missing.iter().zip(of_all).for_each(|(&row, token)| picked[row as usize] = token);
    }
    // All tokens are always enough.
    Ok(picked.into_iter().flatten().collect())
}

/// The temperature of the weights, and how far below the largest logit a token is still likely.
fn limits(settings: &Settings) -> (f32, f32) {
    // Greedy decoding, with a temperature of 0, only needs the tokens with the largest logit.
    (settings.temperature, LIKELY * settings.temperature)
}

/// A token and its logit. The greatest has the largest logit; of equal ones, the lowest number.
struct Token {
    logit: f32,
    number: u32,
}

impl Ord for Token {
    fn cmp(&self, other: &Self) -> Ordering {
        self.logit.total_cmp(&other.logit).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Token {}

/// Tokens in descending order, sorted as far as needed: all of them, or the likely ones.
pub struct Descending {
    largest: f32,
    /// The total weight of all tokens.
    total: f64,
    vocabulary: usize,
    sorted: Vec<Token>,
    rest: BinaryHeap<Token>,
}

impl Descending {
    /// The likely tokens, if they are known.
    fn likely(likely: &Likely, vocabulary: usize) -> Option<Self> {
        let tokens = likely.tokens.as_ref()?.iter().copied();
        Some(Self::new(likely.largest, likely.total, vocabulary, tokens))
    }

    /// All tokens, of which [`Likely`] states the largest logit and the total.
    fn all(largest: f32, total: f64, logits: &[f32]) -> Self {
        Self::new(largest, total, logits.len(), (0..).zip(logits.iter().copied()))
    }

    fn new(
        largest: f32,
        total: f64,
        vocabulary: usize,
        tokens: impl Iterator<Item = (u32, f32)>,
    ) -> Self {
        let rest = tokens.map(|(number, logit)| Token { logit, number }).collect();
        Self { largest, total, vocabulary, sorted: Vec::new(), rest }
    }

    /// The token at this position of the order, if it is among these.
    fn token(&mut self, place: usize) -> Option<&Token> {
        while self.sorted.len() <= place {
            self.sorted.push(self.rest.pop()?);
        }
        self.sorted.get(place)
    }

    /// exp((logit − largest) / temperature) of the token at this position.
    fn weight(&mut self, place: usize, temperature: f32) -> Option<f64> {
        let largest = self.largest;
        let Token { logit, .. } = self.token(place)?;
        Some(f64::from((logit - largest) / temperature).exp())
    }

    /// Samples from softmax(logits / temperature), restricted by top-k and top-p: walks through the
    /// tokens in this order until their total exceeds the fraction `uniform` of all. A temperature
    /// of 0 selects the first. `None` if that needs more tokens than these.
    pub fn choose(&mut self, settings: &Settings, uniform: f64) -> Option<u32> {
        let Settings { temperature, top_k, top_p, .. } = *settings;
        if temperature == 0.0 {
            return self.token(0).map(|token| token.number);
        }
        let count = if top_k == 0 { self.vocabulary } else { top_k.min(self.vocabulary) };
        let mut total = match count == self.vocabulary {
            true => self.total,
            false => (0..count).map(|place| self.weight(place, temperature)).sum::<Option<_>>()?,
        };
        let mut kept = count;
        if top_p < 1.0 {
            // Top-p: the smallest set of most likely tokens whose total probability reaches p.
            let (mut reached, wanted) = (0.0, f64::from(top_p) * total);
            kept = 0;
            while kept < count && (kept == 0 || reached < wanted) {
                reached += self.weight(kept, temperature)?;
                kept += 1;
            }
            total = reached;
        }
        let mut left = uniform * total;
        for place in 0..kept {
            left -= self.weight(place, temperature)?;
            if left < 0.0 {
                return self.token(place).map(|token| token.number);
            }
        }
        self.token(kept - 1).map(|token| token.number)
    }

    /// The first `count` tokens and their log-probabilities; `None` if these are fewer.
    pub fn most_likely(&mut self, count: usize) -> Option<Vec<(u32, f64)>> {
        let normalizer = f64::from(self.largest) + self.total.ln();
        let log_probability = |token: &Token| (token.number, f64::from(token.logit) - normalizer);
        (0..count).map(|place| self.token(place).map(log_probability)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    /// Samples a token from the same logits for each random number.
    fn choose(settings: &Settings, logits: &[f32], uniforms: &[f64]) -> Vec<u32> {
        pick(&repeated(logits, uniforms.len()), settings, |row, tokens| {
            tokens.choose(settings, uniforms[row])
        })
        .unwrap()
    }

    fn repeated(logits: &[f32], rows: usize) -> Matrix {
        Matrix::from_vec(rows, logits.len(), logits.repeat(rows))
    }

    fn uniforms(seed: u64, count: usize) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| super::super::uniform(&mut rng)).collect()
    }

    fn frequencies(settings: &Settings, logits: &[f32]) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        let logits = repeated(logits, 20_000);
        for token in next_tokens(&logits, settings, &uniforms(1, 20_000)).unwrap() {
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
            let likeliest = |_: usize, tokens: &mut Descending| tokens.most_likely(count);
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
