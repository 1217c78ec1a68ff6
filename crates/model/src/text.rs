//! The text side of a model: tokenizer, label names, end-of-sequence tokens.

use super::Model;
use std::path::Path;
use undertone_data::{Error, Labels, Tokenizer};

impl Model {
    /// The tokenizer of the model's folder, truncating at `max_tokens` or the model's maximum
    /// sequence length, whichever is smaller.
    pub fn tokenizer(&self, folder: &Path, max_tokens: usize) -> Result<Tokenizer, Error> {
        let tokenizer =
            Tokenizer::load(folder)?.with_max_tokens(max_tokens.min(self.network.max_positions))?;
        let tokenizer = tokenizer.with_embedded(self.network.vocabulary);
        Ok(match self.end_tokens().first() {
            Some(&eos) => tokenizer.with_eos(eos),
            None => tokenizer,
        })
    }

    /// Label names; `LABEL_0`, `LABEL_1`, … if the configuration has none.
    pub fn labels(&self) -> super::Result<Vec<String>> {
        let numbered =
            || (0..self.network.head.out.outputs).map(|class| format!("LABEL_{class}")).collect();
        Ok(self.config.labels()?.unwrap_or_else(numbered))
    }

    /// Label names as a [`Labels`].
    pub fn label_set(&self) -> super::Result<Labels> {
        Labels::given(self.labels()?).map_err(|e| super::Error::Request(e.to_string()))
    }

    /// End-of-sequence tokens, from the configuration's `eos_token_id`.
    pub fn end_tokens(&self) -> Vec<u32> {
        match self.config.as_map().get("eos_token_id") {
            Some(serde_json::Value::Array(all)) => {
                all.iter().filter_map(|id| id.as_u64()).map(|id| id as u32).collect()
            }
            Some(id) => id.as_u64().map(|id| id as u32).into_iter().collect(),
            None => Vec::new(),
        }
    }
}
