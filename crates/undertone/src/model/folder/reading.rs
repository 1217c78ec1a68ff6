//! `undertone.json` in the folder of a trained model or adapter: how a run read its texts, so that
//! the model is evaluated on texts that are cut where they were cut in training.
//!
//! A file of its own: PEFT rejects unknown keys in adapter_config.json.

use crate::model::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

const FILE: &str = "undertone.json";

/// How a run read its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Maximum number of tokens of a sequence.
    pub max_tokens: usize,
}

impl Reading {
    /// Writes it into the folder of a model or adapter.
    pub fn save(self, folder: &Path) -> Result<()> {
        Ok(undertone_run::write_json(&folder.join(FILE), &self)?)
    }

    /// What the folder of a model or adapter says; none if it is not of a run.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match undertone_run::read_settings(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        let wrong = |problem: String| Error::Config { path: path.clone(), problem };
        let found: Self =
            serde_json::from_str(&text).map_err(|e| wrong(format!("is damaged: {e}")))?;
        if found.max_tokens == 0 {
            return Err(wrong("max_tokens must be at least 1".into()));
        }
        Ok(Some(found))
    }
}
