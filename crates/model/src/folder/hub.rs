//! Models referenced by their name on the Hugging Face Hub: `owner/model` or
//! `owner/model@revision`.
//!
//! The local cache is shared with Python's huggingface_hub and located by the same environment
//! variables: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME. A cached model is used as is, without any
//! request. HF_HUB_OFFLINE disables requests, HF_TOKEN is sent with them, and HF_ENDPOINT selects
//! another server.

use super::index::{INDEX, Index};
use crate::{Error, Result};
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use std::path::{Path, PathBuf};

/// Optional files of a model, downloaded if the Hub has them.
const OPTIONAL: [&str; 4] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
];

/// The folder of a model: a local path, or the cached copy of a Hub model, downloaded if needed.
///
/// Anything that exists on disk is treated as a path.
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
    let Some(model) = HubModel::parse(path_or_name) else {
        return Err(Error::MissingFile {
            path: path.to_owned(),
            what_to_do: "give a model folder, or a model's name on the Hugging Face hub".into(),
        });
    };
    let failed = |problem: String| Error::Hub { name: path_or_name.to_owned(), problem };
    let cache = cache_folder().ok_or_else(|| {
        failed("there is no home folder for its cache; set HF_HOME to a folder".into())
    })?;
    if let Some(folder) = model.cached(&cache) {
        return Ok(folder);
    }
    if is_set("HF_HUB_OFFLINE") {
        return Err(failed(format!(
            "HF_HUB_OFFLINE is set, and the cache {} does not have the whole model",
            cache.display()
        )));
    }
    model.fetch(&cache).map_err(|e| failed(explained(&e)))
}

/// How an adapter refers to its base model, so that PEFT finds it from any folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseModel {
    /// An absolute path, or a name on the Hub.
    pub name: String,
    /// Branch, tag or commit on the Hub, if one was chosen.
    pub revision: Option<String>,
}

impl BaseModel {
    /// The model that [`locate`] finds under this path or name.
    pub fn named(path_or_name: &str) -> Self {
        if let Ok(folder) = undertone_settings::real_path(Path::new(path_or_name)) {
            return Self { name: folder.display().to_string(), revision: None };
        }
        match path_or_name.split_once('@') {
            Some((name, revision)) => {
                Self { name: name.to_owned(), revision: Some(revision.to_owned()) }
            }
            None => Self { name: path_or_name.to_owned(), revision: None },
        }
    }
}

/// Whether a model can be loaded without a download: a folder, or a Hub model in the local cache.
pub fn is_at_hand(path_or_name: &str) -> bool {
    let cached = || HubModel::parse(path_or_name)?.cached(&cache_folder()?);
    Path::new(path_or_name).is_dir() || cached().is_some()
}

/// Whether a variable is set to anything other than the empty string, 0, false or no.
fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| {
        !["", "0", "false", "no", "off"].contains(&value.to_ascii_lowercase().as_str())
    })
}

fn folder_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The home folder of huggingface_hub.
fn hf_home() -> Option<PathBuf> {
    folder_in("HF_HOME")
        .or_else(|| folder_in("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/huggingface")))
}

fn cache_folder() -> Option<PathBuf> {
    folder_in("HF_HUB_CACHE").or_else(|| hf_home().map(|home| home.join("hub")))
}

/// The token sent with requests: HF_TOKEN, or the one stored by huggingface_hub.
fn token() -> Option<String> {
    let kept = || {
        let path = folder_in("HF_TOKEN_PATH").or_else(|| Some(hf_home()?.join("token")))?;
        undertone_settings::read_settings(&path).ok()
    };
    let token = std::env::var("HF_TOKEN").ok().or_else(kept)?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

fn explained(error: &ApiError) -> String {
    let said = error.to_string();
    match ["401", "403"].iter().any(|status| said.contains(status)) {
        true => {
            format!("{said}: it is private or gated, so set HF_TOKEN to a token that may read it")
        }
        false => said,
    }
}

/// A model on the Hub.
#[derive(Debug, PartialEq, Eq)]
struct HubModel<'a> {
    name: &'a str,
    revision: &'a str,
}

impl<'a> HubModel<'a> {
    /// Parses a name with at most one slash and an optional revision; only characters that the Hub
    /// allows.
    fn parse(text: &'a str) -> Option<Self> {
        let allowed = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
                && !part.contains("..")
        };
        let (name, revision) = text.split_once('@').unwrap_or((text, "main"));
        let parts: Vec<&str> = name.split('/').collect();
        let named = parts.len() <= 2 && parts.into_iter().all(allowed);
        (named && revision.split('/').all(allowed)).then_some(Self { name, revision })
    }

    fn repository(&self) -> Repo {
        Repo::with_revision(self.name.to_owned(), RepoType::Model, self.revision.to_owned())
    }

    /// The model's folder in the cache, if all required files are present.
    fn cached(&self, cache: &Path) -> Option<PathBuf> {
        let own = cache.join(self.repository().folder_name());
        // A branch or tag refers to a commit; a commit is named by itself.
        let commit = undertone_settings::read_settings(&own.join("refs").join(self.revision)).ok();
        let commit = commit.as_deref().map_or(self.revision, str::trim);
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if commit.is_empty() || commit.starts_with('.') || !commit.chars().all(plain) {
            return None;
        }
        let folder = own.join("snapshots").join(commit);
        let has = |file: &str| folder.join(file).is_file();
        let weights = || match has("model.safetensors") {
            true => true,
            false => Index::read(&folder.join(INDEX))
                .is_ok_and(|index| index.shards().iter().all(|shard| has(shard))),
        };
        (has("config.json") && has("tokenizer.json") && weights()).then_some(folder)
    }

    /// Downloads the model into the cache.
    fn fetch(&self, cache: &Path) -> std::result::Result<PathBuf, ApiError> {
        let mut api = ApiBuilder::from_cache(Cache::new(cache.to_owned())).with_token(token());
        if let Ok(endpoint) = std::env::var("HF_ENDPOINT") {
            api = api.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        let files: ApiRepo = api.build()?.repo(self.repository());
        let config = files.get("config.json")?;
        files.get("tokenizer.json")?;
        for file in OPTIONAL {
            // Few models have all of them.
            let _ = files.get(file);
        }
        // A model has either a single weights file, or an index and its shards.
        if let Err(no_single_file) = files.get("model.safetensors") {
            let Ok(index) = files.get(INDEX) else { return Err(no_single_file) };
            let listed = Index::read(&index).map_err(|e| std::io::Error::other(e.to_string()))?;
            for shard in listed.shards() {
                files.get(&shard)?;
            }
        }
        Ok(config.parent().unwrap_or(Path::new(".")).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_told_apart() {
        for (text, name, revision) in [
            ("bert-base-uncased", "bert-base-uncased", "main"),
            (
                "sentence-transformers/all-MiniLM-L6-v2",
                "sentence-transformers/all-MiniLM-L6-v2",
                "main",
            ),
            ("gpt2@v1.0", "gpt2", "v1.0"),
            ("Qwen/Qwen3-0.6B@refs/pr/3", "Qwen/Qwen3-0.6B", "refs/pr/3"),
        ] {
            assert_eq!(HubModel::parse(text), Some(HubModel { name, revision }), "{text}");
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
            "gpt2@",
            "gpt2@../../x",
            "gpt2@a//b",
            "gpt2@a@b",
        ] {
            assert_eq!(HubModel::parse(path), None, "{path}");
        }
    }

    /// A cached model is used only if it is complete.
    #[test]
    fn the_cache_has_a_model_or_not() {
        let cache = tempfile::tempdir().unwrap();
        let own = cache.path().join("models--owner--small");
        let folder = own.join("snapshots/0123abcd");
        std::fs::create_dir_all(own.join("refs/pr")).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(own.join("refs/main"), "0123abcd\n").unwrap();
        std::fs::write(own.join("refs/pr/1"), "../../elsewhere").unwrap();
        let cached = |text: &str| HubModel::parse(text).unwrap().cached(cache.path());
        for file in ["config.json", "tokenizer.json", "model-1.safetensors"] {
            std::fs::write(folder.join(file), "{}").unwrap();
        }
        assert_eq!(cached("owner/small"), None, "no weights");
        let index = |second: &str| {
            let map =
                format!(r#"{{"weight_map": {{"a": "model-1.safetensors", "b": "{second}"}}}}"#);
            std::fs::write(folder.join(INDEX), map).unwrap();
        };
        index("model-2.safetensors");
        assert_eq!(cached("owner/small"), None, "a shard is missing");
        index("model-1.safetensors");
        assert_eq!(cached("owner/small"), Some(folder.clone()));
        assert_eq!(cached("owner/small@0123abcd"), Some(folder));
        assert_eq!(cached("owner/small@v2"), None);
        assert_eq!(cached("owner/small@pr/1"), None, "a path is no commit");
        assert_eq!(cached("owner/other"), None);
    }
}
