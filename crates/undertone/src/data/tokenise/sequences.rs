//! The sequences that each task asks for.

use super::super::cut::{self, LongTexts, Predicted};
use super::super::error::Result;
use super::Tokeniser;

/// A tokenised text or pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens, special ones included.
    pub ids: Vec<u32>,
    /// For each token, the text of a pair that it belongs to; empty means that all are 0.
    pub segments: Vec<u32>,
}

impl Tokeniser {
    /// One text, which loses its end where it is too long. An empty text that gives no token at all
    /// becomes the token that ends a text.
    pub fn text(&self, text: &str) -> Result<Tokens> {
        let room = self.max_tokens - self.single.len();
        let mut ids = self.ids(text, room)?;
        ids.truncate(room);
        let (mut ids, segments) = self.single.fill(&ids, &[]);
        if ids.is_empty() {
            ids.extend(self.eos);
        }
        Ok(Tokens { ids, segments })
    }

    /// Tokens of one text with the special ones around them, and how many of those stand before.
    pub fn framed(&self, ids: &[u32]) -> (Tokens, usize) {
        let (ids, segments) = self.single.fill(ids, &[]);
        (Tokens { ids, segments }, self.single.before().len())
    }

    /// How many tokens of one text there is room for.
    pub fn room(&self) -> usize {
        self.max_tokens - self.single.len()
    }

    /// A pair of texts. Where they are too long, the longer loses tokens from its end until both
    /// are as long, then both do.
    pub fn pair(&self, first: &str, second: &str) -> Result<Tokens> {
        let room = self.max_tokens - self.pair.len();
        let (first, second) = (self.ids(first, room)?, self.ids(second, room)?);
        let (m, n) = cut::longest_first(first.len(), second.len(), room);
        let (mut ids, segments) = self.pair.fill(&first[..m], &second[..n]);
        if ids.is_empty() {
            ids.extend(self.eos);
        }
        Ok(Tokens { ids, segments })
    }

    /// A text whose tokens are to be predicted one after the other, with the token that ends a text
    /// at its end. A text that is too long is cut or split; none result when there is nothing to
    /// predict.
    pub fn language(&self, text: &str, long: LongTexts) -> Result<Vec<Predicted>> {
        let pieces = long.most_per_text();
        let mut ids = self.ids(text, self.max_tokens.saturating_mul(pieces))?;
        let after = self.single.after();
        ids.extend(self.eos.filter(|eos| after.last() != Some(eos)).into_iter().chain(after));
        let before = self.start(ids.len() < 2);
        Ok(cut::language(&before, &ids, self.max_tokens, pieces))
    }

    /// A prompt, and its completion that is to be predicted, with the token that ends a text at its
    /// end.
    ///
    /// Both are tokenised on their own and as they are: a separator that should stand between them
    /// belongs into the data. Where they are too long the prompt loses its beginning, down to a
    /// quarter of the room, and then the completion its end. None when there is nothing to predict.
    pub fn completion(&self, prompt: &str, completion: &str) -> Result<Option<Predicted>> {
        let prompt = self.ids(prompt, usize::MAX)?;
        let mut written = self.ids(completion, self.max_tokens)?;
        written.extend(self.eos);
        let before = self.start(prompt.is_empty());
        let (tokens, from) = cut::completion(&before, &prompt, &written, self.max_tokens);
        Ok((1..tokens.len()).contains(&from).then_some((tokens, from)))
    }

    /// A prompt to be continued, of which the beginning is cut so that `reserve` tokens can follow.
    pub fn prompt(&self, prompt: &str, reserve: usize) -> Result<Vec<u32>> {
        let prompt = self.ids(prompt, usize::MAX)?;
        let before = self.start(prompt.is_empty());
        let room = self.max_tokens.saturating_sub(reserve + before.len()).max(1);
        Ok([before, prompt[prompt.len().saturating_sub(room)..].to_vec()].concat())
    }

    /// What stands before a sequence to be continued. Where the tokenizer puts nothing there and
    /// the sequence would have nothing to predict from, the token that ends the text before it
    /// does.
    fn start(&self, needed: bool) -> Vec<u32> {
        let before = self.single.before();
        match before.is_empty() && needed {
            true => self.eos.into_iter().collect(),
            false => before,
        }
    }
}
