//! Prompt tuning in the layout of Hugging Face PEFT. A PEFT model with a soft prompt holds the base
//! model itself, so the task head's tensors have a shorter prefix than with LoRA.

use super::peft::{check_shape, load_saved_module, task_type};
use super::prompt::{self, NAME};
use super::{PromptSettings, Tuning, train_head};
use crate::folder::Weights;
use crate::{Error, Model, Parameter, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Prefix of the names of the task head's tensors.
const PREFIX: &str = "base_model.";

/// adapter_config.json as written by PEFT.
pub(super) fn config(model: &Model, settings: &PromptSettings, base: &str) -> Value {
    let network = &model.network;
    let heads = network.blocks.first().map_or(0, |block| block.attention.heads);
    json!({
        "peft_type": "PROMPT_TUNING",
        "task_type": task_type(network.head.task_head),
        "base_model_name_or_path": base,
        "num_virtual_tokens": settings.tokens,
        "token_dim": model.parameters.value(network.embeddings.tokens).columns(),
        "num_transformer_submodules": 1,
        "num_attention_heads": heads,
        "num_layers": network.blocks.len(),
        "prompt_tuning_init": "RANDOM",
        "prompt_tuning_init_text": null,
        "tokenizer_name_or_path": null,
        "tokenizer_kwargs": null,
        "inference_mode": true,
    })
}

/// The parameters in adapter_model.safetensors, under PEFT's names.
pub(super) fn parameters(model: &Model) -> Vec<(String, &Parameter)> {
    let head = &model.network.head;
    let of_head = head.parameters().filter(|_| head.task_head.has_labels());
    let of_head = of_head.map(|id| model.parameters.get(id));
    let named = of_head.map(|p| (format!("{PREFIX}{}", p.name), p));
    let table = model.network.embeddings.prompt.map(|prompt| model.parameters.get(prompt.table));
    table.map(|p| (NAME.to_owned(), p)).into_iter().chain(named).collect()
}

/// Loads a soft prompt from PEFT's layout into a model.
pub(super) fn load(
    model: &mut Model,
    folder: &Path,
    config: &Map<String, Value>,
    weights: &Weights,
) -> Result<()> {
    let path = folder.join("adapter_config.json");
    let wrong = |problem: String| Error::Config { path: path.clone(), problem };
    if config.get("num_transformer_submodules").and_then(Value::as_u64).is_some_and(|n| n != 1) {
        return Err(wrong(
            "num_transformer_submodules must be 1: encoder-decoder models are not supported".into(),
        ));
    }
    let tokens = config
        .get("num_virtual_tokens")
        .and_then(Value::as_u64)
        .ok_or_else(|| wrong("num_virtual_tokens must be a whole number".into()))?;
    let tokens = tokens as usize;
    let columns = model.parameters.value(model.network.embeddings.tokens).columns();
    check_shape(weights, NAME, &[tokens, columns])?;
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = false;
    }
    prompt::attach_values(model, tokens, weights.read(NAME)?)?;
    let mut keys: Vec<String> = weights.names().map(str::to_owned).collect();
    keys.sort();
    for key in keys.iter().filter(|key| *key != NAME) {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return Err(wrong(format!(
                "tensor {key} is neither {NAME} nor does it begin with {PREFIX}, so this is not a \
                 PEFT soft prompt"
            )));
        };
        load_saved_module(model, weights, key, name)?;
    }
    train_head(model);
    model.tuning = Some(Tuning::Prompt(PromptSettings { tokens }));
    Ok(())
}
