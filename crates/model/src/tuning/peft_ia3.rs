//! (IA)³ in the layout of Hugging Face PEFT.

use super::ia3;
use super::peft::{
    PREFIX, check_shape, load_saved_module, modules_to_save, target_modules, task_type,
};
use super::{Ia3Settings, Tuning, linear_layers, train_head};
use crate::folder::Weights;
use crate::layer::linear::Linear;
use crate::{Error, Model, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Suffix of the names of the factors.
const FACTORS: &str = ".ia3_l";

/// adapter_config.json as written by PEFT.
pub(super) fn config(model: &Model, settings: &Ia3Settings, base: &str) -> Value {
    let rescaled = |of_inputs: bool| -> Vec<&Linear> {
        let has = |layer: &&Linear| {
            layer.rescaling.as_ref().is_some_and(|rescaling| rescaling.of_inputs == of_inputs)
        };
        linear_layers(model).filter(has).collect()
    };
    let names = |layers: &[&Linear]| -> Vec<String> {
        layers.iter().map(|layer| layer.name.clone()).collect()
    };
    let (outputs, inputs) = (names(&rescaled(false)), names(&rescaled(true)));
    let feed_forward = target_modules(model, &settings.feed_forward, &inputs);
    let mut targets = target_modules(model, &settings.targets, &outputs);
    targets.extend(feed_forward.iter().cloned());
    let fan_in_fan_out =
        linear_layers(model).any(|layer| layer.rescaling.is_some() && layer.inputs_first);
    json!({
        "peft_type": "IA3",
        "task_type": task_type(model.network.head.task_head),
        "base_model_name_or_path": base,
        "target_modules": targets,
        "feedforward_modules": feed_forward,
        "modules_to_save": modules_to_save(model),
        "fan_in_fan_out": fan_in_fan_out,
        "inference_mode": true,
        "init_ia3_weights": true,
    })
}

/// Loads (IA)³ from PEFT's layout into a model.
pub(super) fn load(
    model: &mut Model,
    folder: &Path,
    config: &Map<String, Value>,
    weights: &Weights,
) -> Result<()> {
    let path = folder.join("adapter_config.json");
    let wrong = |problem: String| Error::Config { path: path.clone(), problem };
    if config.get("exclude_modules").is_some_and(|value| !value.is_null()) {
        return Err(wrong("exclude_modules is not supported; save the adapter without it".into()));
    }
    let mut settings = Ia3Settings::default();
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = false;
    }
    let mut keys: Vec<String> = weights.names().map(str::to_owned).collect();
    keys.sort();
    for key in &keys {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return Err(wrong(format!(
                "tensor {key} does not begin with {PREFIX}, so this is not a PEFT adapter"
            )));
        };
        let Some(layer) = name.strip_suffix(FACTORS) else {
            load_saved_module(model, weights, key, name)?;
            continue;
        };
        let Some(known) = linear_layers(model).find(|known| known.name == layer) else {
            return Err(wrong(format!(
                "the adapter is for a layer {layer}, which the model does not have"
            )));
        };
        // Factors of inputs are a row, factors of outputs a column.
        let of_inputs = weights.shape(key).and_then(<[usize]>::first) == Some(&1);
        check_shape(weights, key, &ia3::shape(known, of_inputs))?;
        ia3::attach_to(model, layer, of_inputs, Some(weights.read(key)?))?;
        let list = if of_inputs { &mut settings.feed_forward } else { &mut settings.targets };
        let end = layer.rsplit('.').next().unwrap_or(layer);
        if !list.iter().any(|known| known == end) {
            list.push(end.to_owned());
        }
    }
    if settings.targets.is_empty() && settings.feed_forward.is_empty() {
        return Err(wrong("the adapter has no ia3_l tensors".into()));
    }
    train_head(model);
    model.tuning = Some(Tuning::Ia3(settings));
    Ok(())
}
