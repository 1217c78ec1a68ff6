//! LoRA, low-rank adaptation: W + s · B A, where A and B are trainable and W is frozen. With DoRA,
//! each output also has a trainable magnitude.

use super::singular::right_vectors;
use super::{InitialA, linear_layers, linear_layers_mut};
use crate::architecture::Architecture;
use crate::folder::Random;
use crate::layer::dora::{Dora, squared_norms};
use crate::layer::linear::{Linear, Lora};
use crate::parameters::{Origin, Parameter};
use crate::{Error, Model, Result};
use std::ops::Range;
use undertone_settings::LoraSettings;
use undertone_tensor::{self as tensor, Matrix, Output};

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

/// Whether a module path equals the target or ends with it after a dot.
pub(super) fn matches(path: &str, target: &str) -> bool {
    path.strip_suffix(target).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Attaches LoRA to the target modules; B is zero, so the model's outputs do not change.
pub(super) fn attach(model: &mut Model, settings: &mut LoraSettings, seed: u64) -> Result<()> {
    check(settings)?;
    if settings.targets.is_empty() {
        let architecture = Architecture::of(&model.config)?;
        settings.targets = architecture.lora_targets().iter().map(ToString::to_string).collect();
    }
    if settings.targets.iter().any(|target| target == ALL_LINEAR) {
        if settings.targets.len() > 1 {
            return Err(Error::Tuning(format!(
                "lora.targets is {ALL_LINEAR:?} or a list of layers, not both"
            )));
        }
        settings.targets = ends_in_blocks(model);
    }
    let names: Vec<String> = linear_layers(model).flat_map(places).collect();
    for target in &settings.targets {
        if !names.iter().any(|name| matches(name, target)) {
            let mut known: Vec<&str> = linear_layers(model).flat_map(ends).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Error::Tuning(format!(
                "lora.targets names {target:?}, but the model's linear layers end in {}",
                known.join(", ")
            )));
        }
    }
    let prefixes = chosen_blocks(model, settings)?;
    let inside = |name: &str| match &prefixes {
        Some(prefixes) => prefixes.iter().any(|prefix| name.starts_with(prefix)),
        None => true,
    };
    let chosen =
        |name: &str| inside(name) && settings.targets.iter().any(|target| matches(name, target));
    for layer in linear_layers(model).filter(|layer| chosen(&layer.name)) {
        if let Some(part) = places(layer).skip(1).find(|part| chosen(part)) {
            return Err(Error::Tuning(format!(
                "lora.targets names both {} and its part {part}; name one of them",
                layer.name
            )));
        }
    }
    if !names.iter().any(|name| chosen(name)) {
        return Err(Error::Tuning("lora.layers leaves none of the lora.targets".into()));
    }
    if settings.embeddings {
        let table = model.network.embeddings.tokens;
        model.parameters.get_mut(table).trainable = true;
    }
    let mut random = Random::new(seed, 0.02);
    for name in names.iter().filter(|name| chosen(name)) {
        let (inputs, outputs) = sizes(model, name);
        let a = match settings.init {
            InitialA::Uniform => {
                random.uniform_within(settings.rank * inputs, 1.0 / (inputs as f32).sqrt())
            }
            InitialA::Singular => singular(model, settings.rank, name, &mut random)?,
        };
        let b = vec![0.0; outputs * settings.rank];
        attach_to(model, settings, name, a, b)?;
    }
    check_magnitudes(model)
}

/// The leading right singular vectors of a layer or a part of it, with the mean squared norm of the
/// random values that peft initializes A with.
fn singular(model: &Model, rank: usize, path: &str, random: &mut Random) -> Result<Vec<f32>> {
    let mut found = Vec::new();
    for layer in linear_layers(model) {
        let Some(range) = outputs_at(layer, path) else { continue };
        let most = layer.inputs.min(range.len());
        if rank > most {
            return Err(Error::Tuning(format!(
                "lora.init = \"singular\" needs a rank of at most {most}, the number of singular \
                 vectors of {path}, but lora.rank is {rank}"
            )));
        }
        // A model of shapes alone has no values, and needs none.
        if model.parameters.value(layer.weight).rows() == 0 {
            return Ok(vec![0.0; rank * layer.inputs]);
        }
        let factor = layer.factor(&model.parameters);
        found = right_vectors(factor, [layer.inputs, layer.outputs], &range, rank, random)?;
        break;
    }
    let scale = 1.0 / 3.0_f32.sqrt();
    Ok(found.into_iter().map(|x| scale * x).collect())
}

/// Fails if a weight whose outputs have magnitudes is trainable: its norms would change.
pub(super) fn check_magnitudes(model: &Model) -> Result<()> {
    let with = linear_layers(model).filter(|layer| layer.lora.iter().any(|l| l.dora.is_some()));
    for layer in with {
        if model.parameters.is_trainable(layer.weight) {
            return Err(Error::Tuning(format!(
                "lora.dora is for frozen weights, but {} shares its own with the token embeddings, \
                 which lora.embeddings trains",
                layer.name
            )));
        }
    }
    Ok(())
}

/// Selects all linear layers of the blocks.
const ALL_LINEAR: &str = "all-linear";

/// Path suffixes of all linear layers of the blocks. The head is excluded, as in PEFT.
fn ends_in_blocks(model: &Model) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for layer in model.network.blocks.iter().flat_map(|block| block.linear_layers()) {
        let end = layer.name.rsplit('.').next().unwrap_or_default();
        if !all.iter().any(|known| known == end) {
            all.push(end.to_owned());
        }
    }
    all
}

/// Path prefixes of the chosen blocks; `None` if all are chosen.
fn chosen_blocks(model: &Model, settings: &LoraSettings) -> Result<Option<Vec<String>>> {
    let Some(layers) = &settings.layers else { return Ok(None) };
    let blocks = &model.network.blocks;
    if layers.is_empty() {
        return Err(Error::Tuning("lora.layers is empty; name layers, or leave it out".into()));
    }
    let mut prefixes = Vec::new();
    for &layer in layers {
        let Some(block) = blocks.get(layer) else {
            return Err(Error::Tuning(format!(
                "lora.layers names {layer}, but the model's layers are 0 to {}",
                blocks.len().saturating_sub(1)
            )));
        };
        prefixes.push(format!("{}.", block.name));
    }
    Ok(Some(prefixes))
}

/// The paths to which LoRA can be attached: the layer's and those of its parts.
fn places(layer: &Linear) -> impl Iterator<Item = String> {
    let parts = layer.parts.iter().map(|part| format!("{}.{part}", layer.name));
    std::iter::once(layer.name.clone()).chain(parts)
}

/// The suffixes of these paths, without the names of the enclosing modules.
fn ends(layer: &Linear) -> impl Iterator<Item = &str> {
    let end = layer.name.rsplit('.').next();
    end.into_iter().chain(layer.parts.iter().copied())
}

/// The layer's outputs that a path refers to, if it names the layer or a part of it.
fn outputs_at(layer: &Linear, path: &str) -> Option<Range<usize>> {
    let rest = path.strip_prefix(layer.name.as_str())?;
    if rest.is_empty() {
        return Some(0..layer.outputs);
    }
    let part = layer.parts.iter().position(|part| rest.strip_prefix('.') == Some(part))?;
    let width = layer.outputs / layer.parts.len();
    Some(part * width..(part + 1) * width)
}

fn sizes(model: &Model, path: &str) -> (usize, usize) {
    let of = |layer: &Linear| Some((layer.inputs, outputs_at(layer, path)?.len()));
    linear_layers(model).find_map(of).unwrap_or((0, 0))
}

/// Suffix of the name of a layer's magnitudes.
pub(super) const MAGNITUDE: &str = "lora_magnitude_vector";

/// Attaches LoRA with these A and B to a linear layer, or to a part of a fused one; magnitudes, if
/// any, are the norms of the weight.
pub(super) fn attach_to(
    model: &mut Model,
    settings: &LoraSettings,
    path: &str,
    a: Vec<f32>,
    b: Vec<f32>,
) -> Result<()> {
    let device = model.device().clone();
    let Model { network, parameters, .. } = model;
    let rank = settings.rank;
    // Parts of a layer share the dropout mask of their input, as one LoRA in PEFT does.
    let sites = (1_u64 << 32) + 1..;
    for (site, layer) in sites.zip(linear_layers_mut(network)) {
        let Some(range) = outputs_at(layer, path) else { continue };
        let norms = match settings.dora {
            true if range != (0..layer.outputs) => {
                return Err(Error::Tuning(format!(
                    "lora.dora is for whole layers, but {path} is a part of {}; name that",
                    layer.name
                )));
            }
            // A model of shapes alone has no values, and needs none.
            true if parameters.value(layer.weight).rows() == 0 => Some(vec![0.0; layer.outputs]),
            true => Some(squared_norms(parameters.value(layer.weight), layer.inputs_first)?),
            false => None,
        };
        let mut add = |which: &str, rows: usize, columns: usize, values: Vec<f32>| {
            let is_vector = which == MAGNITUDE;
            Ok::<_, Error>(parameters.push(Parameter {
                name: format!("{path}.{which}{}", if is_vector { "" } else { ".weight" }),
                shape: if is_vector { vec![columns] } else { vec![rows, columns] },
                value: Matrix::from_vec(rows, columns, values).to_device(&device)?,
                trainable: which != "lora_A" || !settings.freeze_a,
                origin: Origin::Adapter,
            }))
        };
        let (a, b) = (add("lora_A", rank, layer.inputs, a)?, add("lora_B", range.len(), rank, b)?);
        let dora = match norms {
            Some(squared) => {
                let first = squared.iter().map(|squared| squared.sqrt() as f32).collect();
                Some(Dora::new(add(MAGNITUDE, 1, layer.outputs, first)?, squared))
            }
            None => None,
        };
        layer.lora.push(Lora {
            a,
            b,
            dora,
            range,
            scale: settings.scale(),
            dropout: settings.dropout,
            site,
        });
        return Ok(());
    }
    Err(Error::Tuning(format!("the model has no linear layer {path}")))
}

/// Expands B of a part to all outputs, with zeros for the others.
fn whole(b: &Matrix, range: &Range<usize>, outputs: usize) -> Result<Matrix> {
    if *range == (0..outputs) {
        return Ok(b.clone());
    }
    let rank = b.columns();
    let mut all = vec![0.0; outputs * rank];
    all[range.start * rank..range.end * rank].copy_from_slice(&b.to_vec()?);
    Ok(Matrix::from_vec(outputs, rank, all).to_device(&b.device())?)
}

/// Merges LoRA into the weights: W ← W + s · B A, including the magnitudes of DoRA.
pub(super) fn merge(model: &mut Model) -> Result<()> {
    let Model { network, parameters, .. } = model;
    for layer in linear_layers_mut(network) {
        for lora in std::mem::take(&mut layer.lora) {
            let weight = parameters.value(layer.weight);
            let (a, b) = (parameters.value(lora.a), parameters.value(lora.b));
            let scales = match &lora.dora {
                Some(dora) => Some(dora.scales(parameters, &lora, layer.factor(parameters))?),
                None => None,
            };
            let mut merged = Output::new(&weight.device(), weight.rows(), weight.columns());
            merged.copy(weight)?;
            let columns = 0..weight.columns();
            let b = whole(b, &lora.range, layer.outputs)?;
            if layer.inputs_first {
                merged.add_product(columns, lora.scale, a.transposed(), b.transposed())?;
            } else {
                merged.add_product(columns, lora.scale, b.plain(), a.plain())?;
            }
            let mut merged = merged.finish()?;
            if let Some(scales) = scales {
                merged = match layer.inputs_first {
                    true => tensor::scale_columns(&merged, &scales)?,
                    false => tensor::scale_rows(&merged, &scales)?,
                };
            }
            parameters.get_mut(layer.weight).value = merged;
        }
    }
    Ok(())
}
