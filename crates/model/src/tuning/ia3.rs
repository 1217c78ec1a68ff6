//! (IA)³: learned scaling factors for the keys, the values and the inputs of the feed-forward
//! network's down-projection; the weights are frozen.
//!
//! A factor of output j, y_j = l_j (x Wᵀ + b)_j, has for each example the gradient Σ_t (x_t Wᵀ +
//! b)_j e_tj, which has the form of a normalization weight's gradient, so per-example norms are
//! exact. The same holds for a factor of an input.

use super::linear_layers;
use super::lora::matches;
use crate::layer::attention::Projections;
use crate::layer::linear::{Linear, Rescaling};
use crate::parameters::{Origin, Parameter};
use crate::{Error, Model, Result};
use undertone_settings::Ia3Settings;
use undertone_tensor::{self as tensor, Matrix};

/// Attaches factors of 1, so the model's outputs do not change.
pub(super) fn attach(model: &mut Model, settings: &Ia3Settings) -> Result<()> {
    let (outputs, inputs) = match settings.targets.is_empty() && settings.feed_forward.is_empty() {
        true => usual(model),
        false => (named(model, &settings.targets)?, named(model, &settings.feed_forward)?),
    };
    if let Some(both) = outputs.iter().find(|name| inputs.contains(name)) {
        return Err(Error::Tuning(format!(
            "ia3.targets and ia3.feed_forward both name {both}; name it in one of them"
        )));
    }
    for (names, of_inputs) in [(outputs, false), (inputs, true)] {
        for name in names {
            attach_to(model, &name, of_inputs, None)?;
        }
    }
    Ok(())
}

/// Keys and values, and the down-projections of feed-forward networks. A fused query, key and value
/// layer is scaled as a whole.
fn usual(model: &Model) -> (Vec<String>, Vec<String>) {
    let blocks = &model.network.blocks;
    let attention = blocks.iter().flat_map(|block| match &block.attention.projections {
        Projections::Split(three) => vec![three[1].name.clone(), three[2].name.clone()],
        Projections::Fused(layer) => vec![layer.name.clone()],
    });
    let down = blocks.iter().map(|block| block.feed_forward.down.name.clone());
    (attention.collect(), down.collect())
}

fn named(model: &Model, targets: &[String]) -> Result<Vec<String>> {
    let names = || linear_layers(model).map(|layer| layer.name.as_str());
    for target in targets {
        if !names().any(|name| matches(name, target)) {
            let mut known: Vec<&str> = names().filter_map(|name| name.rsplit('.').next()).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Error::Tuning(format!(
                "model.tuning.ia3 names {target:?}, but the model's linear layers end in {}",
                known.join(", ")
            )));
        }
    }
    let chosen = |name: &&str| targets.iter().any(|target| matches(name, target));
    Ok(names().filter(chosen).map(str::to_owned).collect())
}

/// Attaches factors to the outputs or inputs of one layer: the given values, or all ones.
pub(super) fn attach_to(
    model: &mut Model,
    name: &str,
    of_inputs: bool,
    factors: Option<Vec<f32>>,
) -> Result<()> {
    let device = model.device().clone();
    let Model { network, parameters, .. } = model;
    let Some(layer) = super::linear_layers_mut(network).find(|layer| layer.name == name) else {
        return Err(Error::Tuning(format!("the model has no linear layer {name}")));
    };
    let shape = shape(layer, of_inputs);
    let count = shape[0] * shape[1];
    let factors = factors.unwrap_or_else(|| vec![1.0; count]);
    let factors = parameters.push(Parameter {
        name: format!("{name}.ia3_l"),
        value: Matrix::from_vec(1, count, factors).to_device(&device)?,
        shape: shape.to_vec(),
        trainable: true,
        origin: Origin::Adapter,
    });
    layer.rescaling = Some(Rescaling { factors, of_inputs });
    Ok(())
}

/// The shape of a layer's factors in a file: a column for outputs, a row for inputs.
pub(super) fn shape(layer: &Linear, of_inputs: bool) -> [usize; 2] {
    if of_inputs { [1, layer.inputs] } else { [layer.outputs, 1] }
}

/// Merges the factors into weights and biases.
pub(super) fn merge(model: &mut Model) -> Result<()> {
    let Model { network, parameters, .. } = model;
    for layer in super::linear_layers_mut(network) {
        let Some(Rescaling { factors, of_inputs }) = layer.rescaling.take() else { continue };
        let factors = parameters.value(factors).to_vec()?;
        let weight = parameters.get_mut(layer.weight);
        // Rows of the weight are outputs, unless it is stored as `[inputs, outputs]`.
        weight.value = match of_inputs == layer.inputs_first {
            true => tensor::scale_rows(&weight.value, &factors)?,
            false => tensor::scale_columns(&weight.value, &factors)?,
        };
        if let Some(bias) = layer.bias.filter(|_| !of_inputs) {
            let bias = parameters.get_mut(bias);
            bias.value = tensor::scale_columns(&bias.value, &factors)?;
        }
    }
    Ok(())
}
