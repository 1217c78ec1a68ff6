//! The likely tokens of each row of logits.
//!
//! Sampling rarely needs more than the few tokens that hold nearly all probability. They are
//! selected where the logits are, since a step's logits are the largest matrix of generation and a
//! GPU would spend more time on copying them than on computing them.

use super::Matrix;
use super::backend::{Backend, on_backend};
use super::error::Result;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::random::Random;

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
        let mut devices = vec![Device::Cpu];
        if std::env::var("UNDERTONE_TEST_DEVICE").as_deref() == Ok("cuda") {
            devices.push(Device::cuda(0).unwrap());
        }
        let (rows, columns) = (5, 3001);
        for (spread, temperature, below) in [(4.0, 1.0, 10.0), (30.0, 0.7, 7.0), (1.0, 0.0, 0.0)] {
            let values = Random::new(3).normal(rows * columns, spread);
            for device in &devices {
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
}
