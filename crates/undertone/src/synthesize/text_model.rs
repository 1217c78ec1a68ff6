//! Generates texts with the trained model: text number i depends only on the model, the sampling
//! seed, i and its class.

use super::Sampling;
use super::classes::prompt_of;
use super::quotas::most_tokens;
use crate::data::Tokenizer;
use crate::error::{Error, Result};
use crate::model::generate::{self, generate};
use crate::model::{self, Model, TaskHead};

/// Batch size on the CPU, and the maximum on a GPU.
const BATCH: (usize, usize) = (32, 512);
/// The KV cache may use at most this fraction of a GPU's memory.
const KV_CACHE_SHARE: u64 = 8;

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
                "this model cannot generate text; use a causal language model".to_owned(),
            )));
        }
        let Sampling { statistics, section, data, .. } = *sampling;
        let prompt = |class: &undertone_run::ClassWeight| -> Result<Vec<u32>> {
            let filled = prompt_of(&data.prompt, &statistics.codes, &class.values)?;
            Ok(tokenizer.prompt(&filled, 0)?)
        };
        let prompts: Vec<Vec<u32>> =
            statistics.classes.iter().map(prompt).collect::<Result<_>>()?;
        let mut end_tokens = model.end_tokens();
        end_tokens.extend(tokenizer.eos());
        let most = most_tokens(statistics) as usize;
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) + most;
        let settings = generate::Settings {
            max_new_tokens: most,
            temperature: section.temperature as f32,
            top_p: section.top_p as f32,
            seed: statistics.sampling_seed,
            end_tokens,
            batch: batch_size(model, longest),
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

/// Number of texts of this many tokens to generate together.
fn batch_size(model: &Model, tokens: usize) -> usize {
    let (cpu, gpu) = BATCH;
    let Some(memory) = model.device().memory() else { return cpu };
    let bytes = model.cached_bytes_per_token() * tokens as u64;
    (memory / KV_CACHE_SHARE / bytes.max(1)).clamp(cpu as u64, gpu as u64) as usize
}
