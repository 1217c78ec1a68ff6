//! What a language model knows about a secret in its context: how likely it considers each
//! candidate, and how high the secret's own tokens rank in the vocabulary.
//!
//! A causal model predicts the secret, and what follows, from the preceding text. For a masked
//! model, the secret is hidden behind mask tokens: either all of it at once, so that only the
//! context provides information (Wu et al. 2023), or one token at a time with the others visible,
//! whose sum is the pseudo-log-likelihood (Salazar et al. 2020).

use crate::data::{Batch, Example, Target, Tokenizer};
use crate::evaluate::{Limits, predict};
use crate::model::{Error, Model, Result, TaskHead};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Which tokens of a secret are hidden from a masked model at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Hidden {
    /// All at once: fast, since candidates with the same number of tokens share a forward pass
    #[default]
    Together,
    /// One at a time, with the others visible (pseudo-log-likelihood): one forward pass per token
    /// of each candidate
    InTurn,
}

/// A secret and the text around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretInText {
    pub before: String,
    pub secret: String,
    pub after: String,
}

/// A language model with its tokenizer, which an attacker queries about secrets.
#[derive(Clone, Copy, Debug)]
pub struct SecretReader<'a> {
    model: &'a Model,
    tokenizer: &'a Tokenizer,
    /// The mask token of a masked model; `None` if the model is causal.
    mask: Option<u32>,
    hidden: Hidden,
}

/// A tokenized text, and the positions of the secret's tokens in it.
struct Placed {
    example: Example,
    secret: Vec<usize>,
}

/// An input of a masked model: its tokens, and the positions whose logits are requested.
type Query = (Vec<u32>, Vec<u32>, Vec<usize>);

fn broken(error: crate::data::Error) -> Error {
    Error::Request(error.to_string())
}

impl<'a> SecretReader<'a> {
    /// Creates a reader for a masked or causal language model.
    pub fn new(model: &'a Model, tokenizer: &'a Tokenizer, hidden: Hidden) -> Result<Self> {
        let mask = match model.network.head.task_head {
            TaskHead::CausalLanguageModel => None,
            TaskHead::MaskedLanguageModel => Some(tokenizer.mask().ok_or_else(|| {
                Error::Request("the tokenizer has no mask token, which a masked model needs".into())
            })?),
            other => {
                return Err(Error::Request(format!(
                    "exposure needs a language model, but the model's head is {other:?}"
                )));
            }
        };
        Ok(Self { model, tokenizer, mask, hidden })
    }

    /// The text with a candidate in place of the secret. If the text is too long, the part around
    /// the secret is kept.
    fn place(&self, text: &SecretInText, candidate: &str) -> Result<Placed> {
        let whole = [&text.before, candidate, &text.after].concat();
        let (start, end) = (text.before.len(), text.before.len() + candidate.len());
        let tokens = self.tokenizer.with_bytes(&whole).map_err(broken)?;
        let inside = |i: &usize| tokens[*i].1.start < end && tokens[*i].1.end > start;
        let secret: Vec<usize> = (0..tokens.len()).filter(inside).collect();
        let room = self.tokenizer.max_text_tokens();
        let (first, last) = match (secret.first(), secret.last()) {
            (Some(&first), Some(&last)) if last - first < room => (first, last),
            _ => {
                return Err(Error::Request(
                    "a secret has no token, or more tokens than a sequence can have".into(),
                ));
            }
        };
        let spare = room - (last + 1 - first);
        let from = first.saturating_sub(spare / 2).min(tokens.len().saturating_sub(room));
        let kept: Vec<u32> = tokens.iter().skip(from).take(room).map(|(token, _)| *token).collect();
        let (framed, before) = self.tokenizer.framed(&kept);
        let example =
            Example { tokens: framed.ids, segments: framed.segments, ..Example::default() };
        Ok(Placed { example, secret: secret.iter().map(|i| i - from + before).collect() })
    }

    /// Negative log-likelihood of each candidate in place of the secret, in nats.
    pub fn losses(&self, text: &SecretInText, candidates: &[String]) -> Result<Vec<f64>> {
        let placed: Result<Vec<Placed>> =
            candidates.par_iter().map(|candidate| self.place(text, candidate)).collect();
        match self.mask {
            Some(mask) => self.masked_losses(&placed?, mask),
            None => self.causal_losses(placed?),
        }
    }

    /// Losses of the secret and everything that follows, given the preceding text.
    fn causal_losses(&self, placed: Vec<Placed>) -> Result<Vec<f64>> {
        let target = |placed: Placed| {
            let from = placed.secret.first().copied().unwrap_or(1).max(1);
            Example { target: Target::Next { from }, ..placed.example }
        };
        let examples: Vec<Example> = placed.into_iter().map(target).collect();
        let predictions = predict(self.model, &examples, Limits::default(), false)?;
        let sum = |said: &crate::evaluate::Prediction| {
            said.loss.map_or(0.0, |loss| f64::from(loss) * said.predictions as f64)
        };
        Ok(predictions.iter().map(sum).collect())
    }

    fn masked_losses(&self, placed: &[Placed], mask: u32) -> Result<Vec<f64>> {
        let mut queries: BTreeMap<Query, Vec<usize>> = BTreeMap::new();
        for (i, placed) in placed.iter().enumerate() {
            let together = std::slice::from_ref(&placed.secret);
            let in_turn: Vec<Vec<usize>> = placed.secret.iter().map(|&at| vec![at]).collect();
            let hidden = match self.hidden {
                Hidden::Together => together,
                Hidden::InTurn => in_turn.as_slice(),
            };
            for positions in hidden {
                let mut tokens = placed.example.tokens.clone();
                positions.iter().for_each(|&at| tokens[at] = mask);
                let query = (tokens, placed.example.segments.clone(), positions.clone());
                queries.entry(query).or_default().push(i);
            }
        }
        let mut losses = vec![0.0; placed.len()];
        self.ask(&queries.keys().collect::<Vec<_>>(), |query, row, logits| {
            let total = log_sum_exp(logits);
            let at = query.2[row];
            for &i in &queries[query] {
                let token = placed[i].example.tokens[at] as usize;
                losses[i] += total - logits.get(token).map_or(f64::INFINITY, |&x| f64::from(x));
            }
        })?;
        Ok(losses)
    }

    /// Vocabulary rank of each token of the secret, 1 for the likeliest: predicted from the
    /// preceding text in a causal model, and with the whole secret hidden in a masked model. Ties
    /// count half.
    pub fn token_ranks(&self, text: &SecretInText) -> Result<Vec<f64>> {
        let Placed { example, secret } = self.place(text, &text.secret)?;
        let labels = example.tokens.clone();
        let mut tokens = example.tokens;
        let asked: Vec<usize> = match self.mask {
            Some(mask) => {
                secret.iter().for_each(|&at| tokens[at] = mask);
                secret.clone()
            }
            // The very first token has no context to predict it from.
            None => secret.iter().filter(|&&at| at > 0).map(|at| at - 1).collect(),
        };
        let shift = usize::from(self.mask.is_none());
        let mut ranks = Vec::new();
        self.ask(&[&(tokens, example.segments, asked)], |query, row, logits| {
            ranks.push(rank(logits, labels[query.2[row] + shift] as usize));
        })?;
        Ok(ranks)
    }

    /// Calls `each` with every query, the index of its position and the logits there.
    fn ask(&self, queries: &[&Query], mut each: impl FnMut(&Query, usize, &[f32])) -> Result<()> {
        let limits = Limits::default();
        let longest = queries.iter().map(|query| query.0.len()).max().unwrap_or(1).max(1);
        for queries in queries.chunks((limits.tokens / longest).clamp(1, limits.sequences)) {
            let examples: Vec<Example> = queries
                .iter()
                .map(|(tokens, segments, _)| Example {
                    tokens: tokens.clone(),
                    segments: segments.clone(),
                    ..Example::default()
                })
                .collect();
            let batch = Batch::pack(&examples);
            let rows: Vec<u32> = queries
                .iter()
                .zip(&batch.starts)
                .flat_map(|(query, start)| query.2.iter().map(move |at| (start + at) as u32))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let logits = self.model.logits(&batch, Some(&rows))?;
            let values = logits.to_vec()?;
            let mut values = values.chunks_exact(logits.columns());
            for query in queries {
                for row in 0..query.2.len() {
                    each(query, row, values.next().unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln()
}

fn rank(logits: &[f32], token: usize) -> f64 {
    let Some(&own) = logits.get(token) else { return logits.len() as f64 + 1.0 };
    let above = logits.iter().filter(|&&x| x > own).count() as f64;
    let tied = logits.iter().filter(|&&x| x == own).count() as f64 - 1.0;
    1.0 + above + 0.5 * tied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_normalizers_of_small_rows() {
        assert_eq!(rank(&[0.0, 3.0, 1.0], 1), 1.0);
        assert_eq!(rank(&[0.0, 3.0, 1.0], 0), 3.0);
        assert_eq!(rank(&[2.0, 2.0, 1.0], 0), 1.5);
        assert!((log_sum_exp(&[0.0, 0.0]) - 2_f64.ln()).abs() < 1e-12);
        assert!((log_sum_exp(&[1000.0, 1000.0]) - 1000.0 - 2_f64.ln()).abs() < 1e-9);
    }
}
