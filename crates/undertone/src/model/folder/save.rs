//! Saving a model as a folder that transformers loads.

use crate::data::MOST_OF_TOKENIZER;
use crate::model::{Error, Model, Origin, Parameter, Result};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use undertone_run::{read_bytes, write_atomically, write_json};

/// Tokenizer and generation files, which are copied from the base model's folder.
const COMPANIONS: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "generation_config.json",
];

/// Saves the model without adapters; `origin` is the folder whose tokenizer is copied.
pub fn save(model: &Model, folder: &Path, origin: Option<&Path>) -> Result<()> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let base = model.parameters.iter().map(|(_, p)| p).filter(|p| p.origin == Origin::Base);
    save_tensors(&folder.join("model.safetensors"), base.map(|p| (p.name.clone(), p)))?;
    for name in COMPANIONS {
        let Some(from) = origin.map(|origin| origin.join(name)).filter(|from| from.is_file())
        else {
            continue;
        };
        let bytes = read_bytes(&from, MOST_OF_TOKENIZER).map_err(failed(&from))?;
        write_atomically(&folder.join(name), |out| out.write_all(&bytes))?;
    }
    // The configuration comes last: a folder that has one is complete.
    Ok(write_json(&folder.join("config.json"), model.config.as_map())?)
}

/// Writes parameters under the given names as one safetensors file.
pub fn save_tensors<'a>(
    path: &Path,
    parameters: impl Iterator<Item = (String, &'a Parameter)>,
) -> Result<()> {
    let mut tensors = Vec::new();
    for (name, parameter) in parameters {
        let values = parameter.value.to_vec()?;
        let bytes: Vec<u8> = if cfg!(target_endian = "little") {
            bytemuck::cast_slice(&values).to_vec()
        } else {
            values.iter().flat_map(|v| v.to_le_bytes()).collect()
        };
        tensors.push((name, parameter.shape.clone(), bytes));
    }
    let wrong = |e: safetensors::SafeTensorError| Error::Weights {
        path: path.to_owned(),
        problem: format!("cannot be written: {e}"),
    };
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| {
            Ok((name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(wrong)?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(wrong)?;
    Ok(write_atomically(path, |out| out.write_all(&bytes))?)
}
