//! What attacks on language models ask of them: how likely a text is, and texts that they write
//! themselves.

use crate::data::{Example, LongTexts, Target, Tokeniser};
use crate::evaluate::{Limits, predict};
use crate::model::generate::{Settings, generate};
use crate::model::{Error, Model, Result};

/// A language model with its tokenizer.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its tokenizer.
    pub tokeniser: &'a Tokeniser,
}

/// How a model is asked to write.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Only the likeliest so many tokens are considered; 0 means all.
    pub top_k: usize,
    /// Tokens of each text at most.
    pub tokens: usize,
    /// Texts that are written together.
    pub batch: usize,
    /// The same seed gives the same texts.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { top_k: 40, tokens: 256, batch: 64, seed: 1 }
    }
}

fn broken(error: crate::data::Error) -> Error {
    Error::Request(error.to_string())
}

impl Writer<'_> {
    /// The negative log-likelihood of each text, and the number of tokens that it is a sum over.
    /// What goes beyond the longest sequence is not read; a text that has nothing to predict is
    /// certain.
    pub fn losses(&self, texts: &[String]) -> Result<Vec<(f64, usize)>> {
        let mut examples = Vec::new();
        let mut owners = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            for (tokens, from) in self.tokeniser.language(text, LongTexts::Cut).map_err(broken)? {
                examples.push(Example {
                    tokens,
                    target: Target::Next { from },
                    ..Example::default()
                });
                owners.push(i);
            }
        }
        let mut sums = vec![(0.0, 0); texts.len()];
        for (said, owner) in
            predict(self.model, &examples, Limits::default(), false)?.iter().zip(owners)
        {
            let mean = said.loss.map_or(f64::NAN, f64::from);
            sums[owner] = (mean * said.predictions as f64, said.predictions);
        }
        Ok(sums)
    }

    /// What the model writes after each prompt, without the prompt.
    pub fn write(
        &self,
        prompts: &[String],
        how: &Sampling,
        done: impl FnMut(usize),
    ) -> Result<Vec<String>> {
        let asked: std::result::Result<Vec<Vec<u32>>, _> =
            prompts.iter().map(|prompt| self.tokeniser.prompt(prompt, how.tokens)).collect();
        let mut end_tokens = self.model.end_tokens();
        end_tokens.extend(self.tokeniser.eos());
        let settings = Settings {
            max_new_tokens: how.tokens,
            top_k: how.top_k,
            seed: how.seed,
            batch: how.batch,
            end_tokens,
            ..Settings::default()
        };
        let written = generate(self.model, &asked.map_err(broken)?, &settings, done)?;
        written.iter().map(|tokens| self.tokeniser.decode(tokens).map_err(broken)).collect()
    }
}
