//! Generates texts with the trained model: text number i depends only on the model, the sampling
//! seed, i and its class.

use super::Sampling;
use super::classes::prompt_of;
use super::quotas::most_tokens;
use crate::data::Tokenizer;
use crate::error::{Error, Result};
use crate::model::generate::{self, generate};
use crate::model::{self, Model, TaskHead};

/// A trained model that generates texts.
pub struct TextModel<'a> {
    model: &'a Model,
    tokenizer: &'a Tokenizer,
    prompts: Vec<Vec<u32>>,
    settings: generate::Settings,
}

impl<'a> TextModel<'a> {
    /// Prepares sampling from a trained model.
    pub fn new(model: &'a Model, tokenizer: &'a Tokenizer, sampling: &Sampling) -> Result<Self> {
        if model.network.head.task_head != TaskHead::CausalLanguageModel {
            return Err(Error::Model(model::Error::Request(
                "synthetic rows are written by a causal language model, and this model is none"
                    .to_owned(),
            )));
        }
        let Sampling { statistics, section, data, batch, .. } = *sampling;
        let prompt = |class: &undertone_run::ClassWeight| -> Result<Vec<u32>> {
            let filled = prompt_of(&data.prompt, &statistics.codes, &class.values)?;
            Ok(tokenizer.prompt(&filled, 0)?)
        };
        let prompts = statistics.classes.iter().map(prompt).collect::<Result<_>>()?;
        let mut end_tokens = model.end_tokens();
        end_tokens.extend(tokenizer.eos());
        let settings = generate::Settings {
            max_new_tokens: most_tokens(statistics) as usize,
            temperature: section.temperature as f32,
            top_p: section.top_p as f32,
            seed: statistics.sampling_seed,
            end_tokens,
            batch,
            ..generate::Settings::default()
        };
        Ok(Self { model, tokenizer, prompts, settings })
    }

    /// Generates texts of these classes, numbered from `first`.
    pub fn write(&self, first: u64, classes: &[usize]) -> Result<Vec<String>> {
        let prompts: Vec<Vec<u32>> =
            classes.iter().map(|&class| self.prompts[class].clone()).collect();
        let settings = generate::Settings { first: first as usize, ..self.settings.clone() };
        let mut texts = Vec::new();
        for mut tokens in generate(self.model, &prompts, &settings, |_| ())? {
            tokens.pop_if(|last| settings.end_tokens.contains(last));
            texts.push(self.tokenizer.decode(&tokens)?);
        }
        Ok(texts)
    }
}
