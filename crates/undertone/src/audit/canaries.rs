//! Canaries: examples that nobody would write, each in the training data or not by a coin of its
//! own.

use crate::data::{Dataset, Example, Target};
use crate::noise::Secret;
use crate::model::{Error, Result};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What the secret of an audit is used for.
const TEXTS: u64 = 101;
const COINS: u64 = 102;

fn below(random: &mut ChaCha20Rng, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

/// What canaries are made of. None of it comes from the records: a canary that was put together
/// from them would give each of them a part in many units.
#[derive(Clone, Debug)]
pub struct Mould {
    /// Examples of the task, of made-up text: they give canaries their lengths and their frame of
    /// special tokens.
    pub frames: Vec<Example>,
    /// Tokens that texts can be made of.
    pub words: Vec<u32>,
    /// Tokens of the frames that stay.
    pub special: Vec<u32>,
    /// How many classes there are, if examples have one.
    pub classes: Option<usize>,
}

impl Mould {
    /// As many examples of random words, with random classes.
    pub fn canaries(&self, count: usize, secret: &Secret) -> Result<Vec<Example>> {
        let mut random = ChaCha20Rng::from_seed(secret.key(TEXTS));
        if self.frames.is_empty() || self.words.is_empty() {
            return Err(Error::Request("there is nothing that canaries could be made of".into()));
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
