//! Saves a model as a folder that transformers can load.

use super::index::INDEX;
use super::numbers::Numbers;
use super::source::FileSource;
use super::tensor_file::{self, Written};
use super::{Config, Weights};
use crate::architecture::Architecture;
use crate::{Error, Model, Origin, Parameter, Result};
use serde_json::{Map, json};
use std::io::Write;
use std::path::Path;
use undertone_data::MOST_OF_TOKENIZER;
use undertone_settings::{read_bytes, write_atomically, write_json};

/// Tokenizer and generation files copied from the base model's folder.
const COMPANIONS: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "generation_config.json",
    "chat_template.jinja",
];

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The subset copied into an adapter's folder.
const OF_TOKENIZER: [&str; 4] =
    ["tokenizer.json", TOKENIZER_CONFIG, "special_tokens_map.json", "chat_template.jinja"];

/// Maximum size of a weights file in bytes, as in transformers; larger models are sharded.
pub const SHARD_BYTES: u64 = 5_000_000_000;

/// Saves the model without adapters as a single f32 file; `origin` is the folder from which the
/// tokenizer is copied.
pub fn save(model: &Model, folder: &Path, origin: Option<&Path>) -> Result<()> {
    create(folder)?;
    let tensors = base(model).map(|p| (p.name.clone(), p));
    save_tensors(&folder.join("model.safetensors"), tensors)?;
    finish(folder, origin, &model.config)
}

/// Saves the model without adapters, using the data types of `origin`, the folder of its base
/// model. If one file is not enough, writes shards of at most `shard_bytes` and an index.
pub fn save_like(model: &Model, folder: &Path, origin: &Path, shard_bytes: u64) -> Result<()> {
    create(folder)?;
    let stored = Weights::open(origin)?;
    let architecture = Architecture::of(&model.config)?;
    let source = FileSource::new(&stored, architecture.tensor_prefix());
    let numbers = |name: &str| Numbers::of(stored.dtype(&source.stored_name(name)?)?);
    // A task head that the base model lacks uses the same type as the rest.
    let usual = base(model).find_map(|p| numbers(&p.name)).unwrap_or(Numbers::F32);
    let tensors = base(model).map(|parameter| Written {
        name: parameter.name.clone(),
        parameter,
        numbers: numbers(&parameter.name).unwrap_or(usual),
    });
    let mut shards: Vec<Vec<Written>> = vec![Vec::new()];
    let (mut total, mut room) = (0, shard_bytes);
    for tensor in tensors {
        let bytes = tensor.bytes() as u64;
        total += bytes;
        if bytes > room && shards.last().is_some_and(|shard| !shard.is_empty()) {
            shards.push(Vec::new());
            room = shard_bytes;
        }
        room = room.saturating_sub(bytes);
        if let Some(shard) = shards.last_mut() {
            shard.push(tensor);
        }
    }
    if shards.len() == 1 {
        let tensors = shards.pop().unwrap_or_default();
        tensor_file::write(&folder.join("model.safetensors"), tensors)?;
    } else {
        let count = shards.len();
        let mut files = Map::new();
        for (i, shard) in shards.into_iter().enumerate() {
            let name = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
            files.extend(shard.iter().map(|tensor| (tensor.name.clone(), json!(name))));
            tensor_file::write(&folder.join(name), shard)?;
        }
        let index = json!({ "metadata": { "total_size": total }, "weight_map": files });
        write_json(&folder.join(INDEX), &index)?;
    }
    // Loading set the data type to float32; restore that of the base model.
    let mut config = model.config.clone();
    let before = Config::read(origin)?;
    for key in ["dtype", "torch_dtype"] {
        if let Some(value) = before.as_map().get(key) {
            config.set(key, value.clone());
        }
    }
    finish(folder, Some(origin), &config)
}

fn base(model: &Model) -> impl Iterator<Item = &Parameter> {
    model.parameters.iter().map(|(_, p)| p).filter(|p| p.origin == Origin::Base)
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(failed(folder))
}

/// Copies the tokenizer and writes the configuration.
fn finish(folder: &Path, origin: Option<&Path>, config: &Config) -> Result<()> {
    if let Some(origin) = origin {
        copy(origin, folder, &COMPANIONS)?;
    }
    // The configuration is written last: a folder that has one is complete.
    Ok(write_json(&folder.join("config.json"), config.as_map())?)
}

/// Copies the files that transformers needs to tokenize like the base model. An adapter folder has
/// no configuration, so the tokenizer's class must be named.
pub fn copy_tokenizer(origin: &Path, folder: &Path) -> Result<()> {
    copy(origin, folder, &OF_TOKENIZER)?;
    let config = folder.join(TOKENIZER_CONFIG);
    if folder.join("tokenizer.json").exists() && !config.exists() {
        write_json(&config, &json!({ "tokenizer_class": "PreTrainedTokenizerFast" }))?;
    }
    Ok(())
}

/// Copies the given files, if they exist.
fn copy(origin: &Path, folder: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let from = origin.join(name);
        if from.is_file() {
            let bytes = read_bytes(&from, MOST_OF_TOKENIZER).map_err(failed(&from))?;
            write_atomically(&folder.join(name), |out| out.write_all(&bytes))?;
        }
    }
    Ok(())
}

/// Writes parameters under the given names as one safetensors file, in f32.
pub fn save_tensors<'a>(
    path: &Path,
    parameters: impl Iterator<Item = (String, &'a Parameter)>,
) -> Result<()> {
    let written = |(name, parameter)| Written { name, parameter, numbers: Numbers::F32 };
    tensor_file::write(path, parameters.map(written).collect())
}
