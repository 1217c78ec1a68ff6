//! Facts for a model card about the files beside it: their library, base model and class names.

use crate::error::{Error, Result};
use crate::model::folder::{Config, Reading};
use serde_json::Value;
use std::path::Path;

/// The library that loads a saved model or adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Transformers,
    Peft,
    Undertone,
}

impl Library {
    /// The name in a card's metadata.
    pub fn name(self) -> &'static str {
        match self {
            Library::Transformers => "transformers",
            Library::Peft => "peft",
            Library::Undertone => "undertone",
        }
    }
}

/// A saved model or adapter, as described by its folder.
#[derive(Clone, Debug)]
pub struct Saved {
    /// Whether it is a whole model; otherwise, an adapter.
    pub whole: bool,
    pub library: Library,
    /// The path or Hub name of an adapter's base model.
    pub base: Option<String>,
    /// The revision of a base model on the Hub.
    pub revision: Option<String>,
    /// Names of the classes; `LABEL_0`, … if they may not be published.
    pub labels: Vec<String>,
    /// Maximum number of tokens of a text.
    pub max_tokens: Option<usize>,
}

impl Saved {
    /// Reads the folder of a saved model or adapter.
    pub fn read(folder: &Path) -> Result<Self> {
        let max_tokens = Reading::of(folder)?.map(|reading| reading.max_tokens);
        let is_sanitized = folder.join("sanitizer.json").exists();
        let adapter = folder.join("adapter_config.json");
        if !adapter.exists() {
            let labels = Config::read(folder)?.labels()?.unwrap_or_default();
            let library = match is_sanitized {
                true => Library::Undertone,
                false => Library::Transformers,
            };
            return Ok(Self {
                whole: true,
                library,
                base: None,
                revision: None,
                labels,
                max_tokens,
            });
        }
        let config = json(&adapter)?;
        let text = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
        let library = match text("peft_type").is_some() && !is_sanitized {
            true => Library::Peft,
            false => Library::Undertone,
        };
        let labels = folder.join("labels.json");
        let labels = match labels.exists() {
            true => serde_json::from_value(json(&labels)?)
                .map_err(|e| Error::folder(&labels, format!("is not a list of names: {e}")))?,
            false => Vec::new(),
        };
        let (base, revision) = (text("base_model_name_or_path"), text("revision"));
        Ok(Self { whole: false, library, base, revision, labels, max_tokens })
    }

    /// The class names, if they are meaningful and can be shown unchanged.
    pub fn named_labels(&self) -> Option<&[String]> {
        let numbered =
            |(i, label): (usize, &String)| label.strip_prefix("LABEL_") == Some(&i.to_string());
        let plain = |label: &String| {
            label.chars().count() <= 60
                && label.chars().all(|c| c.is_alphanumeric() || " _-+&,.()'".contains(c))
        };
        let is_named = !self.labels.iter().enumerate().all(numbered);
        let shown = is_named && self.labels.len() <= 30 && self.labels.iter().all(plain);
        shown.then_some(&self.labels)
    }
}

fn json(path: &Path) -> Result<Value> {
    let text = undertone_run::read_settings(path).map_err(Error::io(path))?;
    serde_json::from_str(&text).map_err(|e| Error::folder(path, format!("is not JSON: {e}")))
}
