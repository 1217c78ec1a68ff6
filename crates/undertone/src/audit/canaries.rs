//! Canaries: random examples, each of which a fair coin flip includes in the training data or
//! leaves out.

use crate::data::{Dataset, Example, Target};
use crate::model::{Error, Result};
use crate::noise::Secret;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Purposes that separate the random streams derived from an audit's secret.
const TEXTS: u64 = 101;
const COINS: u64 = 102;

fn below(random: &mut ChaCha20Rng, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

/// Template of canaries. Nothing in it comes from the training data: a canary built from training
/// examples would let one privacy unit influence many.
#[derive(Clone, Debug)]
pub struct CanaryTemplate {
    /// Tokenised examples of made-up text, which give canaries their sequence lengths and special
    /// tokens.
    pub frames: Vec<Example>,
    /// Token ids to draw the canaries' text from.
    pub words: Vec<u32>,
    /// Special token ids, which are kept as they are in `frames`.
    pub special: Vec<u32>,
    /// Number of classes for classification tasks.
    pub classes: Option<usize>,
}

impl CanaryTemplate {
    /// `count` examples of uniformly random tokens, with uniformly random classes.
    pub fn canaries(&self, count: usize, secret: &Secret) -> Result<Vec<Example>> {
        let mut random = ChaCha20Rng::from_seed(secret.key(TEXTS));
        if self.frames.is_empty() || self.words.is_empty() {
            return Err(Error::Request(
                "canaries need at least one template example and one ordinary token".into(),
            ));
        }
        let made = (0..count).map(|_| {
            let mut canary = self.frames[below(&mut random, self.frames.len())].clone();
            for token in canary.tokens.iter_mut().filter(|token| !self.special.contains(token)) {
                *token = self.words[below(&mut random, self.words.len())];
            }
            if let Some(classes) = self.classes {
                canary.target = Target::Class(below(&mut random, classes.max(1)) as u32);
            }
            canary
        });
        Ok(made.collect())
    }
}

/// Coin flips that decide which canaries are in the training data.
#[derive(Clone, Debug)]
pub struct Coins {
    /// Whether each canary is in the training data.
    pub inside: Vec<bool>,
}

impl Coins {
    /// Flips a fair coin for each canary.
    pub fn toss(count: usize, secret: &Secret) -> Self {
        let mut random = ChaCha20Rng::from_seed(secret.key(COINS));
        Self { inside: (0..count).map(|_| random.next_u64() >> 63 == 1).collect() }
    }

    /// Adds the included canaries to the training data, each as a privacy unit of its own.
    pub fn put_in(&self, canaries: &[Example], data: &mut Dataset) {
        for canary in canaries
            .iter()
            .zip(&self.inside)
            .filter(|(_, inside)| **inside)
            .map(|(canary, _)| canary)
        {
            data.examples.push(Example { unit: data.units as u32, ..canary.clone() });
            data.units += 1;
        }
    }
}
