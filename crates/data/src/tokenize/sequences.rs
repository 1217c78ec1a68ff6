//! Token sequences for each task.

use super::super::LongTexts;
use super::super::chat::Conversation;
use super::super::cut::{self, Predicted};
use super::super::error::Result;
use super::Tokenizer;
use std::ops::Range;

/// A tokenized text or pair of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Token ids, including special tokens.
    pub ids: Vec<u32>,
    /// Segment (token type) id of each token; empty means segment 0 for all tokens.
    pub segments: Vec<u32>,
}

impl Tokenizer {
    /// One text, truncated from the right. A text that yields no token at all becomes the
    /// end-of-text token.
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

    /// Adds the special tokens around one text; also returns the number of special tokens before
    /// it.
    pub fn framed(&self, ids: &[u32]) -> (Tokens, usize) {
        let (ids, segments) = self.single.fill(ids, &[]);
        (Tokens { ids, segments }, self.single.before().len())
    }

    /// Maximum number of tokens of one text, excluding special tokens.
    pub fn max_text_tokens(&self) -> usize {
        self.max_tokens - self.single.len()
    }

    /// A pair of texts, truncated from the right, longest first.
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

    /// A text for causal language modeling, followed by the end-of-text token. A text above the
    /// maximum number of tokens is truncated or split; the result is empty if there is nothing to
    /// predict.
    pub fn language(&self, text: &str, long: LongTexts) -> Result<Vec<Predicted>> {
        let pieces = long.most_per_text();
        let mut ids = self.ids(text, self.max_tokens.saturating_mul(pieces))?;
        let after = self.single.after();
        ids.extend(self.eos.filter(|eos| after.last() != Some(eos)).into_iter().chain(after));
        let before = self.start(ids.len() < 2);
        Ok(cut::language(&before, &ids, self.max_tokens, pieces))
    }

    /// A text for masked language modeling, with its special tokens. A text above the maximum
    /// number of tokens is truncated or split; the result is empty if the text has no token.
    pub fn masked_language(&self, text: &str, long: LongTexts) -> Result<Vec<Tokens>> {
        let (room, pieces) = (self.max_text_tokens(), long.most_per_text());
        let ids = self.ids(text, room.saturating_mul(pieces))?;
        Ok(ids.chunks(room).take(pieces).map(|piece| self.framed(piece).0).collect())
    }

    /// A prompt and the completion to be predicted, followed by the end-of-text token.
    ///
    /// Both are tokenized separately and unchanged: a separator between them must be in the data.
    /// To fit the maximum number of tokens, the prompt is truncated from the left, down to a
    /// quarter of them, and then the completion from the right. `None` if there is nothing to
    /// predict.
    pub fn completion(&self, prompt: &str, completion: &str) -> Result<Option<Predicted>> {
        let prompt = self.ids(prompt, usize::MAX)?;
        let mut written = self.ids(completion, self.max_tokens)?;
        written.extend(self.eos);
        let before = self.start(prompt.is_empty());
        let (tokens, from) = cut::completion(&before, &prompt, &written, self.max_tokens);
        Ok((1..tokens.len()).contains(&from).then_some((tokens, from)))
    }

    /// A conversation and the tokens of the assistant's turns. The template has already written the
    /// special tokens. An overlong conversation loses its end, or its beginning if truncating the
    /// end would remove the assistant's first turn.
    pub(crate) fn conversation(
        &self,
        conversation: &Conversation,
    ) -> Result<(Vec<u32>, Vec<Range<usize>>)> {
        let tokens = self.with_bytes(&conversation.text)?;
        let inside = |bytes: &Range<usize>| {
            let own = |turn: &Range<usize>| turn.start <= bytes.start && bytes.end <= turn.end;
            conversation.assistant.iter().any(own)
        };
        // The first token has no context from which it could be predicted.
        let predicted: Vec<usize> = (1..tokens.len()).filter(|&at| inside(&tokens[at].1)).collect();
        let most = self.max_tokens;
        // If the end cannot be kept, three quarters of the room are context.
        let first = match predicted.first() {
            Some(&at) if at >= most => at - 3 * most / 4,
            _ => 0,
        };
        let last = tokens.len().min(first + most);
        let ids = tokens[first..last].iter().map(|(id, _)| *id).collect();
        let mut spans: Vec<Range<usize>> = Vec::new();
        for at in predicted.into_iter().filter(|at| (first + 1..last).contains(at)) {
            match spans.last_mut().filter(|span| span.end == at - first) {
                Some(span) => span.end += 1,
                None => spans.push(at - first..at - first + 1),
            }
        }
        Ok((ids, spans))
    }

    /// A prompt to be continued, truncated from the left so that `reserve` tokens can be generated.
    pub fn prompt(&self, prompt: &str, reserve: usize) -> Result<Vec<u32>> {
        let prompt = self.ids(prompt, usize::MAX)?;
        let before = self.start(prompt.is_empty());
        let room = self.max_tokens.saturating_sub(reserve + before.len()).max(1);
        Ok([before, prompt[prompt.len().saturating_sub(room)..].to_vec()].concat())
    }

    /// A prompt whose special tokens a chat template has written, truncated from the left like
    /// [`Tokenizer::prompt`].
    pub fn chat_prompt(&self, prompt: &str, reserve: usize) -> Result<Vec<u32>> {
        let prompt = self.ids(prompt, usize::MAX)?;
        let room = self.max_tokens.saturating_sub(reserve).max(1);
        Ok(prompt[prompt.len().saturating_sub(room)..].to_vec())
    }

    /// The tokens before a sequence. If the tokenizer adds none and the first prediction has no
    /// context (`needed`), the end-of-text token serves as context.
    fn start(&self, needed: bool) -> Vec<u32> {
        let before = self.single.before();
        match before.is_empty() && needed {
            true => self.eos.into_iter().collect(),
            false => before,
        }
    }
}
