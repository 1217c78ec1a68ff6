//! Sampling a token from each row of logits, and the likely tokens of each row.
//!
//! Both happen where the logits are, since a step's logits are the largest matrix of generation and
//! a GPU would spend more time on copying them than on computing them. Greedy decoding, top-k, top-p
//! and beam search take the likely tokens: they rarely need more than the few that hold nearly all
//! probability.

use super::Matrix;
use super::backend::{Backend, on_backend};
use super::error::{Result, count};

/// The likely tokens of one row of logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Likely {
    /// The largest logit m; NaN is ignored.
    pub largest: f32,
    /// Σ exp((z − m) / temperature) over all tokens. A temperature of 0 is the limit: the number of
    /// tokens with z = m.
    pub total: f64,
    /// The tokens with z ≥ m − below and their logits, in no particular order; `None` if there are
    /// too many to be worth copying.
    pub tokens: Option<Vec<(u32, f32)>>,
}

/// Selects from each row of logits the tokens that are at most `below` under the largest.
pub fn likely(logits: &Matrix, temperature: f32, below: f32) -> Result<Vec<Likely>> {
    on_backend!("selection of tokens", logits, |B, at| {
        B::likely(at.get(logits)?, temperature, below)
    })
}

/// Samples a token from each row of logits, with probability proportional to
/// exp(z / temperature): the first token at which the sum of these weights, in the order of the
/// tokens, exceeds the row's share `uniforms`, from 0 to 1 without 1, of their total.
pub fn sample(logits: &Matrix, temperature: f32, uniforms: &[f64]) -> Result<Vec<u32>> {
    const NAME: &str = "sampling of tokens";
    count(NAME, logits.shape(), "random numbers", uniforms.len(), logits.rows())?;
    on_backend!(NAME, logits, |B, at| B::sample(at.get(logits)?, temperature, uniforms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::random::Random;

    fn devices() -> Vec<Device> {
        let mut devices = vec![Device::Cpu];
        if std::env::var("UNDERTONE_TEST_DEVICE").as_deref() == Ok("cuda") {
            devices.push(Device::cuda(0).unwrap());
        }
        devices
    }

    /// The definition.
    fn defined(row: &[f32], temperature: f32, below: f32) -> Likely {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |z: &f32| match z == &largest {
            true => 1.0,
            false => f64::from((z - largest) / temperature).exp(),
        };
        let total = row.iter().map(weight).sum();
        let tokens = (0..).zip(row.iter().copied()).filter(|(_, z)| *z >= largest - below);
        Likely { largest, total, tokens: Some(tokens.collect()) }
    }

    #[test]
    fn the_likely_tokens_are_those_near_the_largest() {
        let (rows, columns) = (5, 3001);
        for (spread, temperature, below) in [(4.0, 1.0, 10.0), (30.0, 0.7, 7.0), (1.0, 0.0, 0.0)] {
            let values = Random::new(3).normal(rows * columns, spread);
            for device in &devices() {
                let logits = Matrix::from_vec(rows, columns, values.clone()).to_device(device);
                let rows_of_likely = likely(&logits.unwrap(), temperature, below).unwrap();
                assert_eq!(rows_of_likely.len(), rows);
                for (row, likely) in values.chunks(columns).zip(rows_of_likely) {
                    let expected = defined(row, temperature, below);
                    assert_eq!(likely.largest, expected.largest);
                    assert!((likely.total / expected.total - 1.0).abs() < 1e-5);
                    let mut tokens = likely.tokens.unwrap();
                    tokens.sort_by_key(|(token, _)| *token);
                    assert_eq!(Some(tokens), expected.tokens, "{spread} {below}");
                }
            }
        }
    }
    /// Where the weights up to the sampled token, and those before it, lie around the wanted share,
    /// up to rounding.
    #[test]
    fn a_sampled_token_is_where_the_weights_reach_the_random_share() {
        for (columns, spread, temperature) in [
            (1, 1.0, 1.0),
            (7, 1.0, 0.5),
            (3001, 3.0, 1.0),
            (49_153, 2.0, 0.8),
            (300_001, 1.0, 1.3),
        ] {
            let uniforms: Vec<f64> = (0..21).map(|i| f64::from(i) / 21.0).collect();
            let rows = uniforms.len();
            let mut values = Random::new(columns as u64).normal(rows * columns, spread);
            // A token that is impossible is never sampled, not even first.
            if columns > 1 {
                values.chunks_mut(columns).for_each(|row| row[0] = f32::NEG_INFINITY);
            }
            for device in &devices() {
                let logits = Matrix::from_vec(rows, columns, values.clone()).to_device(device);
                let tokens = sample(&logits.unwrap(), temperature, &uniforms).unwrap();
                assert_eq!(tokens.len(), rows);
                for ((row, uniform), token) in values.chunks(columns).zip(&uniforms).zip(tokens) {
                    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let weight = |z: &f32| f64::from((z - largest) / temperature).exp();
                    let total: f64 = row.iter().map(weight).sum();
                    let before: f64 = row[..token as usize].iter().map(weight).sum();
                    let with = before + weight(&row[token as usize]);
                    assert!(columns == 1 || row[token as usize] > f32::NEG_INFINITY);
                    assert!(before <= (uniform + 1e-5) * total, "{columns} {uniform}: {token}");
                    assert!(with >= (uniform - 1e-5) * total, "{columns} {uniform}: {token}");
                }
            }
        }
    }

    #[test]
    fn one_random_number_per_row_is_needed() {
        assert!(sample(&Matrix::from_vec(2, 2, vec![0.0; 4]), 1.0, &[0.5]).is_err());
    }
}
