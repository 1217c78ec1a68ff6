//! `config.json` of a model folder, with errors that name the key.

use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Largest plausible size; a larger value is an error in the file.
const LARGEST_SIZE: u64 = 1 << 24;

/// All keys of `config.json`, so that unknown keys survive loading and saving.
#[derive(Clone, Debug)]
pub struct Config {
    keys: Map<String, Value>,
    path: PathBuf,
}

impl Config {
    /// Reads `config.json` of a folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text =
            undertone_settings::read_settings(&path).map_err(|source| match source.kind() {
                std::io::ErrorKind::NotFound => Error::MissingFile {
                    path: path.clone(),
                    what_to_do: "give a Hugging Face model folder, which has one".into(),
                },
                std::io::ErrorKind::InvalidData => {
                    Error::Config { path: path.clone(), problem: "is not UTF-8 text".into() }
                }
                _ => Error::Io { path: path.clone(), source },
            })?;
        match serde_json::from_str(&text) {
            Ok(Value::Object(keys)) => Ok(Self { keys, path }),
            Ok(_) => Err(Error::Config { path, problem: "must be a JSON object".into() }),
            Err(e) => Err(Error::Config { path, problem: format!("is not JSON: {e}") }),
        }
    }

    /// Creates a configuration from its keys, for models without a folder.
    pub fn from_value(value: Value) -> Self {
        let keys = if let Value::Object(keys) = value { keys } else { Map::new() };
        Self { keys, path: PathBuf::from("config.json") }
    }

    pub fn as_map(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// Creates an error about this file.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::Config { path: self.path.clone(), problem: problem.into() }
    }

    fn present(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// A size: an integer of at least 1.
    pub fn size(&self, key: &str) -> Result<usize> {
        let value = self.present(key).ok_or_else(|| self.error(format!("has no {key}")))?;
        match value.as_u64() {
            Some(size) if (1..=LARGEST_SIZE).contains(&size) => Ok(size as usize),
            _ => Err(self.error(format!(
                "{key} is {value}, but must be a whole number from 1 to {LARGEST_SIZE}"
            ))),
        }
    }

    /// A size, or a default if the key is absent.
    pub fn size_or(&self, key: &str, other: usize) -> Result<usize> {
        if self.present(key).is_none() { Ok(other) } else { self.size(key) }
    }

    /// An integer of at least 0, or a default if the key is absent.
    pub fn index_or(&self, key: &str, other: u32) -> Result<u32> {
        match self.present(key) {
            None => Ok(other),
            Some(value) => value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| self.error(format!("{key} is {value}, but must be a whole number"))),
        }
    }

    /// A finite number, or a default if the key is absent.
    pub fn number_or(&self, key: &str, other: f64) -> Result<f64> {
        match self.present(key) {
            None => Ok(other),
            Some(value) => value
                .as_f64()
                .filter(|n| n.is_finite())
                .ok_or_else(|| self.error(format!("{key} is {value}, but must be a number"))),
        }
    }

    /// A dropout probability in \[0, 1), 0 if the key is absent.
    pub fn dropout_or_zero(&self, key: &str) -> Result<f32> {
        let dropout = self.number_or(key, 0.0)?;
        if (0.0..1.0).contains(&dropout) {
            return Ok(dropout as f32);
        }
        Err(self.error(format!(
            "{key} is {dropout}, but a dropout probability must be at least 0 and below 1"
        )))
    }

    /// ε of a normalization, in (0, 1), or a default if the key is absent.
    pub fn epsilon_or(&self, key: &str, other: f64) -> Result<f32> {
        let epsilon = self.number_or(key, other)?;
        if epsilon > 0.0 && epsilon < 1.0 {
            return Ok(epsilon as f32);
        }
        Err(self.error(format!("{key} is {epsilon}, but must lie between 0 and 1")))
    }

    /// A Boolean, or a default if the key is absent.
    pub fn flag_or(&self, key: &str, other: bool) -> Result<bool> {
        match self.present(key) {
            None => Ok(other),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.error(format!("{key} is {value}, but must be true or false"))),
        }
    }

    /// A string, if the key is present.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.present(key) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.error(format!("{key} is {value}, but must be a string"))),
        }
    }

    /// An activation function by its Hugging Face name.
    pub fn activation(&self, key: &str, other: &str) -> Result<undertone_tensor::Activation> {
        let name = self.text(key)?.unwrap_or(other);
        undertone_tensor::Activation::from_name(name).ok_or_else(|| {
            self.error(format!(
                "{key} is {name:?}; known are gelu, gelu_new, gelu_pytorch_tanh, silu, relu and \
                 tanh"
            ))
        })
    }

    /// Class name in transformers, such as `BertForSequenceClassification`.
    pub fn architecture(&self) -> Option<&str> {
        self.keys.get("architectures")?.as_array()?.first()?.as_str()
    }

    /// Label names, in order; `LABEL_0`, `LABEL_1`, … if only their number is known.
    pub fn labels(&self) -> Result<Option<Vec<String>>> {
        if let Some(Value::Object(map)) = self.present("id2label") {
            let mut names: Vec<(usize, String)> = Vec::new();
            for (id, name) in map {
                let id = id.parse().map_err(|_| {
                    self.error(format!("id2label has the key {id:?}, not a number"))
                })?;
                let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
                names.push((id, name));
            }
            names.sort();
            if names.iter().enumerate().any(|(i, (id, _))| i != *id) {
                return Err(self.error("id2label must number the classes 0, 1, 2, …"));
            }
            return Ok(Some(names.into_iter().map(|(_, name)| name).collect()));
        }
        match self.present("num_labels") {
            None => Ok(None),
            Some(_) => {
                let count = self.size("num_labels")?;
                if count > 100_000 {
                    return Err(
                        self.error(format!("num_labels is {count}, which is more than 100000"))
                    );
                }
                Ok(Some((0..count).map(|i| format!("LABEL_{i}")).collect()))
            }
        }
    }

    /// Sets the label names (`id2label`, `label2id`), as transformers stores them.
    pub fn set_labels(&mut self, names: &[String]) {
        let by_id: Map<String, Value> =
            names.iter().enumerate().map(|(i, name)| (i.to_string(), json!(name))).collect();
        let by_name: Map<String, Value> =
            names.iter().enumerate().map(|(i, name)| (name.clone(), json!(i))).collect();
        self.keys.insert("id2label".into(), Value::Object(by_id));
        self.keys.insert("label2id".into(), Value::Object(by_name));
        self.keys.remove("num_labels");
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.keys.insert(key.to_owned(), value);
    }
}
