//! LoRA in the layout of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors.
//!
//! PEFT does not support LoRA on a part of a layer, such as the queries and values of GPT-2's fused
//! c_attn. Such updates are saved as a single LoRA of the whole layer with a multiple of the rank,
//! in which A = [A_q; A_v], and B has B_q and B_v as blocks and is 0 elsewhere. The product B A is
//! the same matrix, and alpha is increased so that its scale is the same too. As PEFT uses one rank
//! for all layers, the others are padded with zeros.

use super::lora::{self, MAGNITUDE};
use super::{LoraSettings, Tuning, linear_layers, train_head};
use crate::folder::Weights;
use crate::layer::linear::Linear;
use crate::{Error, Model, Origin, Parameter, Result, TaskHead};
use serde_json::{Map, Value, json};
use std::path::Path;
use undertone_tensor::Matrix;

/// Prefix of every tensor name in the file.
pub(super) const PREFIX: &str = "base_model.model.";

/// PEFT's `task_type` of each task head.
const TASKS: [(TaskHead, &str); 3] = [
    (TaskHead::SequenceClassification, "SEQ_CLS"),
    (TaskHead::TokenClassification, "TOKEN_CLS"),
    (TaskHead::CausalLanguageModel, "CAUSAL_LM"),
];

pub(super) fn task_type(task_head: TaskHead) -> Value {
    TASKS.iter().find(|task| task.0 == task_head).map_or(Value::Null, |task| json!(task.1))
}

pub(super) fn task_head(task_type: &str) -> Option<TaskHead> {
    TASKS.iter().find(|task| task.1 == task_type).map(|task| task.0)
}

/// Maximum number of LoRA updates in one layer; above 1 if they apply to parts.
fn updates_per_layer(model: &Model) -> usize {
    linear_layers(model).map(|layer| layer.lora.len()).max().unwrap_or(1).max(1)
}

/// Whether a layer has LoRA on its parts.
fn has_parts(model: &Model) -> bool {
    let part = |layer: &Linear| layer.lora.iter().any(|lora| lora.range != (0..layer.outputs));
    linear_layers(model).any(part)
}

/// The settings with which PEFT computes the same as the model.
fn settings_for_peft(model: &Model, settings: &LoraSettings) -> LoraSettings {
    let mut settings = settings.clone();
    let times = updates_per_layer(model);
    settings.rank *= times;
    settings.alpha *= match settings.rank_stabilized {
        true => (times as f64).sqrt(),
        false => times as f64,
    };
    let mut targets: Vec<String> = Vec::new();
    for target in &settings.targets {
        let target = linear_layers(model).find_map(|layer| of_layer(layer, target));
        targets.extend(target.filter(|target| !targets.contains(target)));
    }
    let adapted = linear_layers(model).filter(|layer| !layer.lora.is_empty());
    let adapted: Vec<String> = adapted.map(|layer| layer.name.clone()).collect();
    settings.targets = target_modules(model, &targets, &adapted);
    settings
}

/// `target_modules` that PEFT matches to the adapted layers only: the suffixes of their paths if
/// those match no other linear layer of the model, otherwise the full paths.
pub(super) fn target_modules(model: &Model, ends: &[String], adapted: &[String]) -> Vec<String> {
    let mut ends = ends.to_vec();
    if ends.is_empty() {
        ends =
            adapted.iter().filter_map(|path| path.rsplit('.').next()).map(str::to_owned).collect();
        ends.sort();
        ends.dedup();
    }
    let head = &model.network.head;
    let of_head = head.dense.iter().map(|dense| &dense.0).chain([&head.out]);
    let of_blocks = model.network.blocks.iter().flat_map(|block| block.linear_layers());
    let exact = of_blocks.chain(of_head).all(|layer| {
        ends.iter().any(|end| lora::matches(&layer.name, end)) == adapted.contains(&layer.name)
    });
    if exact { ends } else { adapted.to_vec() }
}

/// The target that names the whole layer, if this one names the layer or a part of it.
fn of_layer(layer: &Linear, target: &str) -> Option<String> {
    if lora::matches(&layer.name, target) {
        return Some(target.to_owned());
    }
    let part = layer.parts.iter().find(|part| {
        let path = format!("{}.{part}", layer.name);
        lora::matches(&path, target)
    })?;
    match target.strip_suffix(part)?.strip_suffix('.') {
        Some(path) => Some(path.to_owned()),
        None => layer.name.rsplit('.').next().map(str::to_owned),
    }
}

/// adapter_config.json as written by PEFT.
pub(super) fn config(model: &Model, settings: &LoraSettings, base: &str) -> Value {
    let settings = settings_for_peft(model, settings);
    let fan_in_fan_out =
        linear_layers(model).any(|layer| !layer.lora.is_empty() && layer.inputs_first);
    json!({
        "peft_type": "LORA",
        "task_type": task_type(model.network.head.task_head),
        "base_model_name_or_path": base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": settings.targets,
        "modules_to_save": modules_to_save(model),
        "fan_in_fan_out": fan_in_fan_out,
        "use_rslora": settings.rank_stabilized,
        "use_dora": settings.dora,
        "bias": "none",
        "inference_mode": true,
        "init_lora_weights": true,
    })
}

/// Modules of the task head that are saved with LoRA.
pub(super) fn modules_to_save(model: &Model) -> Value {
    let head = &model.network.head;
    let mut names: Vec<&str> = Vec::new();
    let table = model.parameters.get(model.network.embeddings.tokens);
    if table.trainable {
        names.extend(table.name.rsplit('.').nth(1));
        // PEFT unties the modules it saves, so the head is listed separately and has the same
        // values.
        names.extend(tied_head(model).map(|head| head.name.as_str()));
    }
    if !head.task_head.has_labels() {
        return if names.is_empty() { Value::Null } else { json!(names) };
    }
    for layer in head.dense.iter().map(|dense| &dense.0).chain([&head.out]) {
        // The module is the part of the path that is missing in the model without a task head:
        // bert.pooler.dense → pooler, classifier.out_proj → classifier.
        let parts: Vec<&str> = layer.name.split('.').collect();
        let name = if parts.len() == 3 { parts[1] } else { parts[0] };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    json!(names)
}

/// The output layer, if it is a separate module that shares the weight of the token embeddings.
fn tied_head(model: &Model) -> Option<&Linear> {
    let table = model.network.embeddings.tokens;
    let same = |head: &Linear| model.parameters.get(table).name == format!("{}.weight", head.name);
    Some(&model.network.head.out).filter(|head| head.weight == table && !same(head))
}

/// The parameters in adapter_model.safetensors, under PEFT's names.
pub(super) fn parameters(model: &Model) -> Result<Vec<(String, Parameter)>> {
    let parts = has_parts(model);
    // The sanitizer has its own files, which PEFT does not know.
    let own = |p: &Parameter| p.origin == Origin::Adapter && !p.name.starts_with("sanitizer.");
    let added = model.parameters.iter().filter(|(_, p)| own(p) && !parts).map(|(id, _)| id);
    let head =
        model.network.head.parameters().filter(|_| model.network.head.task_head.has_labels());
    let mut all: Vec<Parameter> =
        added.chain(head).map(|id| model.parameters.get(id).clone()).collect();
    if parts {
        let times = updates_per_layer(model);
        for layer in linear_layers(model).filter(|layer| !layer.lora.is_empty()) {
            all.extend(whole(model, layer, times)?);
        }
    }
    let table = model.parameters.get(model.network.embeddings.tokens);
    if table.trainable {
        all.push(table.clone());
        if let Some(head) = tied_head(model) {
            // As in PEFT's module: its weight, and its bias if it has one.
            let renamed = |which: &str, p: &Parameter| Parameter {
                name: format!("{}.{which}", head.name),
                ..p.clone()
            };
            all.push(renamed("weight", table));
            all.extend(head.bias.map(|bias| renamed("bias", model.parameters.get(bias))));
        }
    }
    Ok(all.into_iter().map(|p| (format!("{PREFIX}{}", p.name), p)).collect())
}

/// A and B of a single LoRA equal to the sum of a layer's updates, with `times` the rank.
fn whole(model: &Model, layer: &Linear, times: usize) -> Result<[Parameter; 2]> {
    let rank = model.parameters.value(layer.lora[0].a).rows();
    let all = times * rank;
    let mut a = vec![0.0; all * layer.inputs];
    let mut b = vec![0.0; layer.outputs * all];
    for (i, lora) in layer.lora.iter().enumerate() {
        let (own_a, own_b) = (model.parameters.value(lora.a), model.parameters.value(lora.b));
        a[i * rank * layer.inputs..][..rank * layer.inputs].copy_from_slice(&own_a.to_vec()?);
        for (row, values) in lora.range.clone().zip(own_b.to_vec()?.chunks_exact(rank)) {
            b[row * all + i * rank..][..rank].copy_from_slice(values);
        }
    }
    let of = |which: &str, rows: usize, columns: usize, values: Vec<f32>| Parameter {
        name: format!("{}.{which}.weight", layer.name),
        shape: vec![rows, columns],
        value: Matrix::from_vec(rows, columns, values),
        trainable: true,
        origin: Origin::Adapter,
    };
    Ok([of("lora_A", all, layer.inputs, a), of("lora_B", layer.outputs, all, b)])
}

/// Loads LoRA from PEFT's layout into a model.
pub(super) fn load(
    model: &mut Model,
    folder: &Path,
    config: &Map<String, Value>,
    weights: &Weights,
) -> Result<()> {
    let path = folder.join("adapter_config.json");
    let wrong = |problem: String| Error::Config { path: path.clone(), problem };
    let absent = |key: &str| match config.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Object(map)) => map.is_empty(),
        _ => false,
    };
    for key in ["rank_pattern", "alpha_pattern", "lora_bias", "layer_replication"] {
        if !absent(key) {
            return Err(wrong(format!(
                "{key} is not supported; save the adapter without it, or merge it in Python"
            )));
        }
    }
    if config.get("bias").and_then(Value::as_str).is_some_and(|bias| bias != "none") {
        return Err(wrong(
            "bias must be \"none\"; save the adapter that way, or merge it in Python".into(),
        ));
    }
    let number = |key: &str| {
        config
            .get(key)
            .and_then(Value::as_f64)
            .ok_or_else(|| wrong(format!("{key} must be a number")))
    };
    let mut settings = LoraSettings {
        rank: number("r")? as usize,
        alpha: number("lora_alpha")?,
        dropout: config.get("lora_dropout").and_then(Value::as_f64).unwrap_or(0.0) as f32,
        rank_stabilized: config.get("use_rslora").and_then(Value::as_bool).unwrap_or(false),
        dora: config.get("use_dora").and_then(Value::as_bool).unwrap_or(false),
        ..LoraSettings::default()
    };
    super::lora::check(&settings)?;
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = false;
    }
    let mut names: Vec<String> = weights.names().map(str::to_owned).collect();
    names.sort();
    for key in &names {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return Err(wrong(format!(
                "tensor {key} does not begin with {PREFIX}, so this is not a PEFT adapter"
            )));
        };
        if let Some(layer) = name.strip_suffix(".lora_A.weight") {
            let other = format!("{PREFIX}{layer}.lora_B.weight");
            let Some((inputs, outputs)) = linear_layers(model)
                .find(|known| known.name == layer)
                .map(|known| (known.inputs, known.outputs))
            else {
                return Err(wrong(format!(
                    "the adapter is for a layer {layer}, which the model does not have"
                )));
            };
            check_shape(weights, key, &[settings.rank, inputs])?;
            check_shape(weights, &other, &[outputs, settings.rank])?;
            lora::attach_to(model, &settings, layer, weights.read(key)?, weights.read(&other)?)?;
            if settings.dora {
                let name = format!("{layer}.{MAGNITUDE}");
                load_saved_module(model, weights, &format!("{PREFIX}{name}"), &name)?;
            }
            if let Some(end) =
                layer.rsplit('.').next().filter(|end| !settings.targets.iter().any(|t| t == end))
            {
                settings.targets.push(end.to_owned());
            }
        } else if !(name.ends_with(".lora_B.weight") || settings.dora && name.ends_with(MAGNITUDE))
        {
            settings.embeddings |= load_embeddings(model, weights, key, name)?;
        }
    }
    if settings.targets.is_empty() {
        return Err(wrong("the adapter has no lora_A tensors".into()));
    }
    lora::check_magnitudes(model)?;
    train_head(model);
    model.tuning = Some(Tuning::Lora(settings));
    Ok(())
}

/// Loads a saved module; returns whether it is the token embedding table or the head tied to it.
fn load_embeddings(model: &mut Model, weights: &Weights, key: &str, name: &str) -> Result<bool> {
    let table = model.network.embeddings.tokens;
    // A tied head is saved next to the table; its values must equal the model's.
    let shared = tied_head(model).and_then(|head| {
        match name.strip_prefix(head.name.as_str())?.strip_prefix('.')? {
            "weight" => Some(table),
            "bias" => head.bias,
            _ => None,
        }
    });
    let Some(shared) = shared.filter(|id| model.parameters.get(*id).name != name) else {
        load_saved_module(model, weights, key, name)?;
        let is_table = model.parameters.get(table).name == name;
        if is_table {
            model.parameters.get_mut(table).trainable = true;
        }
        return Ok(is_table);
    };
    let own = format!("{PREFIX}{}", model.parameters.get(shared).name);
    let expected = match weights.has(&own) {
        true => weights.read(&own)?,
        false => model.parameters.value(shared).to_vec()?,
    };
    if weights.read(key)? != expected {
        return Err(Error::Tuning(format!(
            "the adapter has {name} of its own, but the model's output layer is tied to its token \
             embeddings"
        )));
    }
    Ok(shared == table)
}

pub(super) fn check_shape(weights: &Weights, name: &str, expected: &[usize]) -> Result<()> {
    match weights.shape(name) {
        Some(actual) if actual == expected => Ok(()),
        Some(actual) => Err(Error::Shape {
            name: name.to_owned(),
            expected: expected.to_vec(),
            found: actual.to_vec(),
        }),
        None => {
            Err(Error::MissingTensor { name: name.to_owned(), path: weights.folder().to_owned() })
        }
    }
}

/// Replaces a parameter of the base model with the adapter's.
pub(super) fn load_saved_module(
    model: &mut Model,
    weights: &Weights,
    key: &str,
    name: &str,
) -> Result<()> {
    let Some(id) = model.parameters.find(name) else {
        return Err(Error::Tuning(format!(
            "the adapter has a tensor {name}, which the model does not; load the model for the \
             adapter's task"
        )));
    };
    let device = model.device().clone();
    let parameter = model.parameters.get_mut(id);
    check_shape(weights, key, &parameter.shape)?;
    let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
    parameter.value = Matrix::from_vec(rows, columns, weights.read(key)?).to_device(&device)?;
    model.fresh.retain(|fresh| fresh != name);
    Ok(())
}
