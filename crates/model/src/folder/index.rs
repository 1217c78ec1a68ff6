//! `model.safetensors.index.json`: which shard contains which tensor.

use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the index in a model folder.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The shards listed in an index.
pub(super) struct Index {
    /// File of each tensor, by tensor name.
    pub files: BTreeMap<String, String>,
}

impl Index {
    /// Reads an index; file names that contain a path are rejected.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |problem: String| Error::Config { path: path.to_owned(), problem };
        let text = undertone_settings::read_settings(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| wrong(format!("is not JSON: {e}")))?;
        let map =
            value["weight_map"].as_object().ok_or_else(|| wrong("has no weight_map".into()))?;
        let mut files = BTreeMap::new();
        for (tensor, file) in map {
            let file = file.as_str().ok_or_else(|| wrong("weight_map must name files".into()))?;
            if file.is_empty() || file.contains(['/', '\\', ':']) || file.starts_with('.') {
                return Err(wrong(format!(
                    "names the file {file:?}, which is outside of the folder"
                )));
            }
            files.insert(tensor.clone(), file.to_owned());
        }
        if files.is_empty() {
            return Err(wrong("lists no tensors".into()));
        }
        Ok(Self { files })
    }

    /// The shards, without duplicates.
    pub fn shards(&self) -> Vec<String> {
        let mut shards: Vec<String> = self.files.values().cloned().collect();
        shards.sort();
        shards.dedup();
        shards
    }
}
