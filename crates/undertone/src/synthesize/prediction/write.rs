//! Writes a text, token by token. Each text is a function of its group, its number and the secret.

use super::groups::{SEPARATOR, class_of};
use super::{Choice, Groups, Prediction};
use crate::data::{Template, Tokenizer};
use crate::error::{Error, Result};
use crate::model::generate::Session;
use crate::model::{self, Model, TaskHead};
use crate::noise::{Secret, purpose};
use crate::step::Recorded;
use crate::synthesize::classes::prompt_of;
use crate::synthesize::journal::Journal;
use crate::synthesize::sample::entry;
use crate::synthesize::{Classes, Sampled};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::path::Path;
use undertone_accounting::Event;

/// Maximum number of sequences that are computed together.
const SEQUENCES: usize = 64;

/// Number of tokens of an example with its prompt, the prompt again, and a text. Rejects a model
/// that cannot generate texts of this length.
pub fn positions(model: &Model, max_tokens: usize) -> Result<usize> {
    if model.network.head.task_head != TaskHead::CausalLanguageModel {
        return Err(Error::Model(model::Error::Request(
            "this model cannot generate text; use a causal language model".to_owned(),
        )));
    }
    let most = 2 * max_tokens + 8;
    match most > model.network.max_positions {
        false => Ok(most),
        true => Err(Error::Model(model::Error::Request(format!(
            "--max-tokens {max_tokens} needs {most} positions, for an example and a text, but the \
             model has {}; lower it",
            model.network.max_positions
        )))),
    }
}

/// A public model that private examples steer.
pub struct Writer<'a> {
    model: &'a Model,
    tokenizer: Tokenizer,
    prediction: &'a Prediction,
    groups: &'a Groups,
    choice: Choice,
    key: [u8; 32],
    /// The prompt of each class.
    prompts: Vec<String>,
    most_tokens: usize,
    end_tokens: Vec<u32>,
    recorded: Option<Event>,
}

impl<'a> Writer<'a> {
    /// Prepares the writing of texts with at most `most_tokens` tokens.
    pub fn new(
        model: &'a Model,
        tokenizer: &Tokenizer,
        prediction: &'a Prediction,
        (classes, groups): (&Classes, &'a Groups),
        secret: &Secret,
    ) -> Result<Self> {
        let data = &prediction.data;
        let most = positions(model, data.max_tokens)?;
        let prompts = (classes.classes.iter())
            .map(|class| prompt_of(&data.prompt, &classes.columns, &class.values))
            .collect::<Result<_>>()?;
        let mut end_tokens = model.end_tokens();
        end_tokens.extend(tokenizer.eos());
        Ok(Self {
            model,
            tokenizer: tokenizer.clone().with_max_tokens(most)?,
            prediction,
            groups,
            choice: prediction.choice(),
            key: secret.key(purpose::PREDICTION),
            prompts,
            most_tokens: prediction.most_tokens as usize,
            end_tokens,
            recorded: None,
        })
    }

    /// Permits texts whose tokens the ledger lists.
    pub fn permit(&mut self, recorded: &Recorded) -> Result<()> {
        let covers = match recorded.event() {
            Event::Exponential { range } => self.choice.range() <= range,
            _ => false,
        };
        match covers && recorded.count() >= self.most_tokens as u64 {
            true => self.recorded = Some(recorded.event()),
            false => {
                return Err(Error::Model(model::Error::Request(
                    "the ledger does not cover these texts: nothing was released".to_owned(),
                )));
            }
        }
        Ok(())
    }

    /// Writes text number `text`.
    pub fn write(&self, text: u64) -> Result<String> {
        if self.recorded.is_none() {
            return Err(Error::Model(model::Error::Request(
                "the texts are not in the ledger: nothing was released".to_owned(),
            )));
        }
        let contexts = self.contexts(text)?;
        let mut rng = ChaCha20Rng::from_seed(self.key);
        rng.set_stream(text);
        let mut sessions: Vec<(Session, Vec<Vec<u32>>)> = contexts
            .chunks(SEQUENCES)
            .map(|contexts| (Session::new(self.model, contexts.len()), contexts.to_vec()))
            .collect();
        let (device, mut tokens, mut written) = (self.model.device(), Vec::new(), String::new());
        while tokens.len() < self.most_tokens {
            let uniform = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let mut logits = Vec::new();
            for (session, new) in &mut sessions {
                let host = device.compute_batch_invariant(|| session.extend(new))?.to_host();
                logits.push(host.map_err(model::Error::from)?);
            }
            let mut rows = logits.iter().flat_map(|host| (0..host.rows()).map(|i| host.row(i)));
            let public = rows.next().unwrap_or_default();
            let private: Vec<&[f32]> = rows.collect();
            let token = self.choice.choose(public, &private, uniform);
            if self.end_tokens.contains(&token) {
                break;
            }
            tokens.push(token);
            written = self.tokenizer.decode(&tokens)?;
            // A text may begin with white space.
            if let Some(end) = written.trim_start().find(SEPARATOR) {
                written = written.trim_start()[..end].to_owned();
                break;
            }
            sessions.iter_mut().for_each(|(_, new)| new.fill(vec![token]));
        }
        Ok(written)
    }

    /// The tokens before the text: first the public ones, then those with each example.
    fn contexts(&self, text: u64) -> Result<Vec<Vec<u32>>> {
        let prompt = &self.prompts[class_of(text, self.prompts.len())];
        let mut contexts = vec![self.tokenizer.prompt(prompt, 0)?];
        for example in self.groups.of(text, self.prediction.rows, self.prompts.len()) {
            let example = self.shortened(example)?;
            let context = format!("{prompt}{example}{SEPARATOR}{prompt}");
            contexts.push(self.tokenizer.prompt(&context, self.most_tokens)?);
        }
        Ok(contexts)
    }

    /// The example, truncated to the token limit of a text.
    fn shortened<'t>(&self, example: &'t str) -> Result<&'t str> {
        // Tokens longer than 32 bytes are rare; they only truncate it further.
        let example = beginning(example, 32 * self.most_tokens);
        let tokens = self.tokenizer.with_bytes(example)?;
        let end = tokens.get(self.most_tokens).map_or(example.len(), |(_, bytes)| bytes.start);
        Ok(beginning(example, end))
    }

    /// Writes all texts, or resumes doing so; `progress` is called with the number of texts so far,
    /// before each of them, and returns an error to stop.
    pub fn write_all(
        &self,
        classes: &Classes,
        journal: &Path,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Sampled> {
        let Prediction { data, rows, .. } = self.prediction;
        let mut journal = Journal::open(journal, &self.prediction.journaled())?;
        let template = Template::parse(&data.completion)?;
        let mut sampled = Sampled { rows_by_class: vec![0; classes.len()], ..Sampled::default() };
        for text in 0..*rows {
            progress(text)?;
            let class = class_of(text, classes.len());
            let mut recorded = journal.recorded(text, &[class]).unwrap_or_default();
            let written = match recorded.pop() {
                Some(entry) => entry,
                None => {
                    let written = entry(text, class, &template, &self.write(text)?);
                    journal.append(std::slice::from_ref(&written))?;
                    written
                }
            };
            sampled.add(written, &classes.classes[class].values);
        }
        progress(*rows)?;
        Ok(sampled)
    }
}

/// The longest prefix of a text with at most `bytes` bytes that does not split a character.
fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}
