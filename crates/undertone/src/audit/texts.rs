//! Queries used by attacks on language models: losses of texts, and generated text.

use crate::data::{Example, LongTexts, Target, Tokenizer};
use crate::evaluate::{Limits, predict};
use crate::model::generate::{Settings, generate};
use crate::model::{Error, Model, Result};

/// A causal language model with its tokenizer.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub model: &'a Model,
    pub tokenizer: &'a Tokenizer,
}

/// Sampling settings for generated text.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Number of likeliest tokens to sample from; 0 means all.
    pub top_k: usize,
    /// Maximum number of new tokens per text.
    pub tokens: usize,
    /// Batch size, in texts.
    pub batch: usize,
    /// Random seed; the same seed gives the same texts.
    pub seed: u64,
    /// Index of the first prompt, if the prompts are part of a larger job.
    pub first: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { top_k: 40, tokens: 256, batch: 64, seed: 1, first: 0 }
    }
}

fn broken(error: crate::data::Error) -> Error {
    Error::Request(error.to_string())
}

impl Writer<'_> {
    /// Negative log-likelihood of each text, in nats, and the number of predicted tokens it sums
    /// over. Texts are truncated to the maximum sequence length; a text with no token to predict
    /// has a loss of 0.
    pub fn losses(&self, texts: &[String]) -> Result<Vec<(f64, usize)>> {
        let mut examples = Vec::new();
        let mut owners = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            for (tokens, from) in self.tokenizer.language(text, LongTexts::Cut).map_err(broken)? {
                examples.push(Example {
                    tokens,
                    target: Target::Next { from },
                    ..Example::default()
                });
                owners.push(i);
            }
        }
        let mut sums = vec![(0.0, 0); texts.len()];
        for (prediction, owner) in
            predict(self.model, &examples, Limits::default(), false)?.iter().zip(owners)
        {
            let mean = prediction.loss.map_or(f64::NAN, f64::from);
            sums[owner] = (mean * prediction.predictions as f64, prediction.predictions);
        }
        Ok(sums)
    }

    /// Samples a continuation of each prompt, returned without the prompt.
    pub fn write(
        &self,
        prompts: &[String],
        how: &Sampling,
        done: impl FnMut(usize),
    ) -> Result<Vec<String>> {
        let tokenized: std::result::Result<Vec<Vec<u32>>, _> =
            prompts.iter().map(|prompt| self.tokenizer.prompt(prompt, how.tokens)).collect();
        let mut end_tokens = self.model.end_tokens();
        end_tokens.extend(self.tokenizer.eos());
        let settings = Settings {
            max_new_tokens: how.tokens,
            top_k: how.top_k,
            seed: how.seed,
            first: how.first,
            batch: how.batch,
            end_tokens,
            ..Settings::default()
        };
        let written = generate(self.model, &tokenized.map_err(broken)?, &settings, done)?;
        written.iter().map(|tokens| self.tokenizer.decode(tokens).map_err(broken)).collect()
    }
}
