//! Models by their name on the Hugging Face hub.

use crate::model::{Error, Result};
use std::path::{Path, PathBuf};

/// The folder of a model: a local path, or the local cache of a hub model, downloaded if needed.
///
/// Anything that exists on disk is a path. A name such as `bert-base-uncased` or `owner/model` is
/// looked up in the Hugging Face cache first, so that a model is downloaded once.
pub fn locate(path_or_name: &str) -> Result<PathBuf> {
    let path = Path::new(path_or_name);
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    if path.is_file() {
        return Err(Error::Request(format!(
            "{path_or_name} is a file; give the folder of a model"
        )));
    }
    if !looks_like_a_name(path_or_name) {
        return Err(Error::MissingFile {
            path: path.to_owned(),
            what_to_do: "give a model folder, or a model's name on the Hugging Face hub".into(),
        });
    }
    fetch(path_or_name)
}

/// Whether a model can be loaded without fetching anything: a folder, or a name on the hub whose
/// configuration was fetched before.
pub fn is_at_hand(path_or_name: &str) -> bool {
    if Path::new(path_or_name).is_dir() {
        return true;
    }
    let Some(home) = std::env::home_dir().filter(|_| looks_like_a_name(path_or_name)) else {
        return false;
    };
    let cache = hf_hub::Cache::new(home.join(".cache/huggingface/hub"));
    let cache = cache.model(path_or_name.to_owned());
    let weights = ["model.safetensors", "model.safetensors.index.json"];
    cache.get("config.json").is_some() && weights.iter().any(|file| cache.get(file).is_some())
}

/// Whether the text has at most one slash, and only characters that the hub allows.
fn looks_like_a_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() <= 2
        && parts.iter().all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(allowed)
                && !part.contains("..")
        })
}

fn fetch(name: &str) -> Result<PathBuf> {
    let failed = |e: hf_hub::api::sync::ApiError| Error::Hub {
        name: name.to_owned(),
        problem: e.to_string(),
    };
    let repository = hf_hub::api::sync::Api::new().map_err(failed)?.model(name.to_owned());
    let config = repository.get("config.json").map_err(failed)?;
    repository.get("tokenizer.json").map_err(failed)?;
    // A model has one weights file, or an index and its shards.
    if repository.get("model.safetensors").is_err() {
        let index = repository.get("model.safetensors.index.json").map_err(|_| Error::Hub {
            name: name.to_owned(),
            problem: "it has no weights in the safetensors format".into(),
        })?;
        for file in super::weights::files_of_index(&index)? {
            repository.get(&file).map_err(failed)?;
        }
    }
    Ok(config.parent().unwrap_or(Path::new(".")).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_told_apart() {
        for name in ["bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2", "gpt2"] {
            assert!(looks_like_a_name(name), "{name}");
        }
        for path in [
            "./models/x",
            "/models/x",
            "a/b/c",
            "../x",
            "a/..",
            "",
            "with space",
            "target/assets/m/",
        ] {
            assert!(!looks_like_a_name(path), "{path}");
        }
    }
}
