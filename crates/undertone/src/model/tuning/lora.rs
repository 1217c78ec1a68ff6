//! LoRA, low-rank adaptation: W + s · B A, where A and B are trainable and W is frozen.

use super::linear_layers;
use crate::model::architecture::Architecture;
use crate::model::folder::Random;
use crate::model::layer::linear::Lora;
use crate::model::parameters::{Origin, Parameter};
use crate::model::{Error, Model, Result};
use crate::tensor::{Matrix, Output};
use undertone_run::LoraSettings;

pub(super) fn check(settings: &LoraSettings) -> Result<()> {
    if settings.rank == 0 || settings.rank > 4096 {
        return Err(Error::Tuning(format!(
            "lora.rank is {}, but must be from 1 to 4096",
            settings.rank
        )));
    }
    if !settings.alpha.is_finite() || settings.alpha <= 0.0 {
        return Err(Error::Tuning(format!(
            "lora.alpha is {}, but must be positive",
            settings.alpha
        )));
    }
    if !(0.0..1.0).contains(&settings.dropout) {
        return Err(Error::Tuning(format!(
            "lora.dropout is {}, but must be at least 0 and below 1",
            settings.dropout
        )));
    }
    Ok(())
}

/// Whether a module path is the target, or ends with it after a dot.
pub(super) fn matches(path: &str, target: &str) -> bool {
    path.strip_suffix(target).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Attaches LoRA to the target modules; B is zero, so that the model's outputs do not change.
pub(super) fn attach(model: &mut Model, settings: &mut LoraSettings, seed: u64) -> Result<()> {
    check(settings)?;
    if settings.targets.is_empty() {
        let architecture = Architecture::of(&model.config)?;
        settings.targets = architecture.lora_targets().iter().map(ToString::to_string).collect();
    }
    let names: Vec<String> = linear_layers(model).map(|layer| layer.name.clone()).collect();
    for target in &settings.targets {
        if !names.iter().any(|name| matches(name, target)) {
            let mut known: Vec<&str> =
                names.iter().filter_map(|name| name.rsplit('.').next()).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Error::Tuning(format!(
                "lora.targets names {target:?}, but the model's linear layers end in {}",
                known.join(", ")
            )));
        }
    }
    let chosen = |name: &str| settings.targets.iter().any(|target| matches(name, target));
    let mut random = Random::new(seed, 0.02);
    for name in names.iter().filter(|name| chosen(name)) {
        let (inputs, outputs) = sizes(model, name);
        let a = random.uniform_within(settings.rank * inputs, 1.0 / (inputs as f32).sqrt());
        let b = vec![0.0; outputs * settings.rank];
        attach_to(model, settings, name, a, b)?;
    }
    Ok(())
}

fn sizes(model: &Model, name: &str) -> (usize, usize) {
    linear_layers(model)
        .find(|layer| layer.name == name)
        .map_or((0, 0), |layer| (layer.inputs, layer.outputs))
}

/// Attaches LoRA with these A and B to one linear layer.
pub(super) fn attach_to(
    model: &mut Model,
    settings: &LoraSettings,
    name: &str,
    a: Vec<f32>,
    b: Vec<f32>,
) -> Result<()> {
    let device = model.device().clone();
    let Model { network, parameters, .. } = model;
    let rank = settings.rank;
    let mut site = 1 << 32;
    for block in &mut network.blocks {
        for layer in block.linear_layers_mut() {
            site += 1;
            if layer.name != name {
                continue;
            }
            let mut add = |which: &str, rows: usize, columns: usize, values: Vec<f32>| {
                Ok::<_, Error>(parameters.push(Parameter {
                    name: format!("{name}.{which}.weight"),
                    shape: vec![rows, columns],
                    value: Matrix::from_vec(rows, columns, values).to_device(&device)?,
                    trainable: true,
                    origin: Origin::Adapter,
                }))
            };
            layer.lora = Some(Lora {
                a: add("lora_A", rank, layer.inputs, a)?,
                b: add("lora_B", layer.outputs, rank, b)?,
                scale: settings.scale(),
                dropout: settings.dropout,
                site,
            });
            return Ok(());
        }
    }
    Err(Error::Tuning(format!("the model has no linear layer {name}")))
}

/// Merges LoRA into the weights: W ← W + s · B A.
pub(super) fn merge(model: &mut Model) -> Result<()> {
    let Model { network, parameters, .. } = model;
    for layer in network.blocks.iter_mut().flat_map(|block| block.linear_layers_mut()) {
        let Some(lora) = layer.lora.take() else { continue };
        let weight = parameters.value(layer.weight);
        let (a, b) = (parameters.value(lora.a), parameters.value(lora.b));
        let mut merged = Output::new(&weight.device(), weight.rows(), weight.columns());
        merged.copy(weight)?;
        let columns = 0..weight.columns();
        if layer.inputs_first {
            merged.add_product(columns, lora.scale, a.transposed(), b.transposed())?;
        } else {
            merged.add_product(columns, lora.scale, b.plain(), a.plain())?;
        }
        parameters.get_mut(layer.weight).value = merged.finish()?;
    }
    Ok(())
}
