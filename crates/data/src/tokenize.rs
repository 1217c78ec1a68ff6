//! Tokenization of texts and decoding of tokens.

mod checks;
mod sequences;

use super::error::{Error, Result};
use super::frame::Frame;
use super::guard::guarded_result;
use super::special;
pub use sequences::Tokens;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::Tokenizer as HfTokenizer;

/// Default maximum number of tokens per sequence.
const MAX_TOKENS: usize = 512;

/// Maximum size of a tokenizer file in bytes; those of the largest vocabularies have about 40 MB.
pub const MOST_OF_TOKENIZER: u64 = 256 << 20;

/// Texts of at most this many bytes are always tokenized in full.
const WHOLE_BYTES: usize = 1 << 16;

/// A Hugging Face tokenizer with a maximum number of tokens per sequence. Cheap to clone.
///
/// The truncation and padding configured in the tokenizer's file are ignored: each method documents
/// how it truncates to [`max_tokens`](Tokenizer::max_tokens), and nothing is padded.
#[derive(Clone)]
pub struct Tokenizer {
    tokenizer: Arc<HfTokenizer>,
    file: PathBuf,
    max_tokens: usize,
    single: Frame,
    pair: Frame,
    eos: Option<u32>,
    mask: Option<u32>,
    /// Number of tokens for which the model has embeddings, if there is a model.
    embedded: Option<usize>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("file", &self.file)
            .field("max_tokens", &self.max_tokens)
            .finish()
    }
}

impl Tokenizer {
    /// Loads a `tokenizer.json`, or the one in a model's folder.
    ///
    /// The end-of-text and mask tokens are those specified by `tokenizer_config.json` or
    /// `special_tokens_map.json` next to it, or otherwise the common ones that are in the
    /// vocabulary.
    pub fn load(path: &Path) -> Result<Tokenizer> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        let bytes = undertone_settings::read_bytes(&file, MOST_OF_TOKENIZER)
            .map_err(|e| Error::io(&file, &e))?;
        let broken = |reason| Error::Tokenizer { file: file.clone(), reason };
        checks::check(&bytes).map_err(broken)?;
        let loaded = guarded_result(|| {
            let mut tokenizer = HfTokenizer::from_bytes(&bytes).map_err(|e| e.to_string())?;
            tokenizer.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
            let frames = (Frame::around_one(&tokenizer)?, Frame::around_two(&tokenizer)?);
            Ok((tokenizer, frames))
        });
        let (tokenizer, (single, pair)) = loaded.map_err(broken)?;

        let folder = file.parent().unwrap_or(Path::new(""));
        let role = |role: &str, customary: &[&str]| -> Result<Option<u32>> {
            let stated =
                special::stated(folder, role)?.and_then(|token| tokenizer.token_to_id(&token));
            Ok(stated.or_else(|| customary.iter().find_map(|token| tokenizer.token_to_id(token))))
        };
        let (eos, mask) =
            (role("eos_token", &special::ENDS)?, role("mask_token", &special::MASKS)?);
        Ok(Tokenizer {
            tokenizer: Arc::new(tokenizer),
            max_tokens: MAX_TOKENS,
            single,
            pair,
            eos,
            mask,
            embedded: None,
            file,
        })
    }

    /// The folder of the tokenizer's file.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Sets the maximum number of tokens per sequence, including special tokens.
    pub fn with_max_tokens(mut self, max_tokens: usize) -> Result<Tokenizer> {
        let least = self.single.len().max(self.pair.len()) + 2;
        if max_tokens < least {
            let rule = format!("at least {least}, to leave room next to the special tokens");
            return Err(Error::invalid("the maximum number of tokens", max_tokens, rule));
        }
        self.max_tokens = max_tokens;
        Ok(self)
    }

    /// Sets the end-of-text token, if the tokenizer's files specify a different one or none.
    pub fn with_eos(self, eos: u32) -> Tokenizer {
        Tokenizer { eos: Some(eos), ..self }
    }

    /// Sets the number of tokens for which the model has embeddings, which may be smaller than the
    /// tokenizer's vocabulary.
    pub fn with_embedded(self, tokens: usize) -> Tokenizer {
        Tokenizer { embedded: Some(tokens), ..self }
    }

    /// Number of tokens that both the tokenizer and the model have.
    pub fn usable(&self) -> usize {
        self.embedded.map_or(self.vocabulary(), |embedded| embedded.min(self.vocabulary()))
    }

    /// Maximum number of tokens per sequence, including special tokens.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Vocabulary size, including added tokens.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// The id of a token, such as `[MASK]`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The token with this id.
    pub fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// Ids of the special tokens, in increasing order.
    pub fn special(&self) -> Vec<u32> {
        let added = self.tokenizer.get_added_tokens_decoder();
        let mut special: Vec<u32> =
            added.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        special.sort_unstable();
        special
    }

    /// The end-of-text token, if there is one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The mask token, if there is one.
    pub fn mask(&self) -> Option<u32> {
        self.mask
    }

    /// Decodes token ids to text, without special tokens.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let decoded =
            guarded_result(|| self.tokenizer.decode(ids, true).map_err(|e| e.to_string()));
        decoded.map_err(|reason| self.unusable(reason))
    }

    /// Token ids of a text without special tokens; for a huge text, at least the first `needed`.
    fn ids(&self, text: &str, needed: usize) -> Result<Vec<u32>> {
        // Tokenization takes about twenty times the memory of the text, so only the beginning of a
        // huge text is tokenized, up to a space, with a margin for tokens that the rest might
        // change.
        let part = beginning(text, needed.saturating_mul(32).max(WHOLE_BYTES));
        let ids = self.encode(part)?;
        match part.len() < text.len() && ids.len() < needed.saturating_add(16) {
            true => self.encode(text),
            false => Ok(ids),
        }
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoded =
            guarded_result(|| self.tokenizer.encode_fast(text, false).map_err(|e| e.to_string()));
        let encoded = encoded.map_err(|reason| self.unusable(reason))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// Token ids of a whole text without special tokens, each with the byte range it covers.
    pub fn with_bytes(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>> {
        let encoded =
            guarded_result(|| self.tokenizer.encode(text, false).map_err(|e| e.to_string()));
        let encoded = encoded.map_err(|reason| self.unusable(reason))?;
        let bytes = encoded.get_offsets().iter().map(|&(start, end)| start..end);
        Ok(encoded.get_ids().iter().copied().zip(bytes).collect())
    }

    fn unusable(&self, reason: String) -> Error {
        Error::Tokenizer { file: self.file.clone(), reason }
    }
}

/// The text up to its last space within `bytes` bytes, or all of it if there is none.
fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    text[..end].rfind(char::is_whitespace).map_or(text, |space| &text[..space])
}

#[cfg(test)]
mod tests;
