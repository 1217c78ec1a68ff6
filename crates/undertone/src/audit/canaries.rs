//! Canaries: random examples, each of which is included in the training data or left out by a fair
//! coin flip.

use crate::data::{Dataset, Encoder, Example, Row, Target};
use crate::model::{Error, Result};
use crate::noise::Secret;
use crate::plan::Plan;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Purposes that separate the random streams derived from an audit's secret.
const TEXTS: u64 = 101;
const COINS: u64 = 102;

fn below(random: &mut ChaCha20Rng, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

/// Template for canaries. Nothing in it comes from the training data: a canary built from training
/// examples would let one privacy unit influence many.
#[derive(Clone, Debug)]
pub struct CanaryTemplate {
    /// Tokenized examples of made-up text, which give canaries their sequence lengths and special
    /// tokens.
    pub frames: Vec<Example>,
    /// Token ids from which the canaries' text is drawn.
    pub words: Vec<u32>,
    /// Special token ids, which are kept as they are in `frames`.
    pub special: Vec<u32>,
    /// Number of classes for classification tasks.
    pub classes: Option<usize>,
}

impl CanaryTemplate {
    /// The canary template for a run: random tokens in examples of the run's task, with the length
    /// of sentences. It does not depend on the data.
    pub fn of(plan: &Plan) -> crate::error::Result<Self> {
        let (tokenizer, known, labels) = crate::train::reader(plan)?;
        let unknown = ["[UNK]", "<unk>"].map(|token| tokenizer.token_id(token));
        let mut special = tokenizer.special();
        special.retain(|token| !unknown.contains(&Some(*token)));
        let words = (0..known as u32).filter(|token| !special.contains(token)).collect();
        let task = plan.task().without_label();
        let columns = task.columns().len();
        let (file, long_texts) = (plan.data.train.clone(), plan.data.long_texts);
        let encoder = Encoder::new(file, task, &tokenizer, None, long_texts)?;
        let mut frames = Vec::new();
        for words in 4..24 {
            let text = "a ".repeat(words);
            let values = match plan.data.task {
                undertone_run::TaskName::Chat => {
                    let turn =
                        |role: &str| serde_json::json!({ "role": role, "content": text.clone() });
                    vec![serde_json::json!([turn("user"), turn("assistant")]).to_string()]
                }
                _ => vec![text; columns],
            };
            frames.extend(encoder.examples(&Row { line: 1, values })?.into_iter().take(1));
        }
        Ok(Self { frames, words, special, classes: labels.map(|labels| labels.names().len()) })
    }

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

/// Coin flips that determine which canaries are in the training data.
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

    /// Adds the included canaries to the training data, each as its own privacy unit.
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
