//! Canaries: examples that nobody would write, each in the training data or not by a coin of its own.

use crate::data::{Dataset, Example, Target};
use crate::mechanism::Secret;
use crate::model::{Error, Purpose, Result};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What the secret of an audit is used for.
const TEXTS: u64 = 101;
const COINS: u64 = 102;

fn below(random: &mut ChaCha20Rng, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

/// As many examples of random tokens, with random targets: as long as those of the data and made of tokens that occur there.
pub fn canaries(data: &Dataset, purpose: Purpose, count: usize, secret: &Secret) -> Result<Vec<Example>> {
    let mut random = ChaCha20Rng::from_seed(secret.key(TEXTS));
    let classes = data.labels.as_ref().map_or(1, |labels| labels.names().len());
    if data.examples.is_empty() {
        return Err(Error::Request("there are no examples that canaries could be like".into()));
    }
    let made = (0..count).map(|_| {
        let like = &data.examples[below(&mut random, data.examples.len())];
        let length = like.tokens.len();
        let mut tokens = like.tokens.clone();
        // The first and the last are often special, and stay.
        for token in tokens.iter_mut().take(length.saturating_sub(1)).skip(1) {
            let other = &data.examples[below(&mut random, data.examples.len())].tokens;
            *token = other[below(&mut random, other.len().max(1)).min(other.len().saturating_sub(1))];
        }
        let target = match purpose {
            Purpose::SequenceClassification => Target::Class(below(&mut random, classes.max(1)) as u32),
            _ => like.target.clone(),
        };
        Example { tokens, segments: like.segments.clone(), target, unit: 0 }
    });
    Ok(made.collect())
}

/// How the coins fell.
#[derive(Clone, Debug)]
pub struct Coins {
    /// Of each canary.
    pub inside: Vec<bool>,
}

impl Coins {
    /// A fair coin for each.
    pub fn toss(count: usize, secret: &Secret) -> Self {
        let mut random = ChaCha20Rng::from_seed(secret.key(COINS));
        Self { inside: (0..count).map(|_| random.next_u64() >> 63 == 1).collect() }
    }

    /// Puts the chosen ones into the data, each a privacy unit of its own.
    pub fn put_in(&self, canaries: &[Example], data: &mut Dataset) {
        for canary in
            canaries.iter().zip(&self.inside).filter(|(_, inside)| **inside).map(|(canary, _)| canary)
        {
            data.examples.push(Example { unit: data.units as u32, ..canary.clone() });
            data.units += 1;
        }
    }
}
