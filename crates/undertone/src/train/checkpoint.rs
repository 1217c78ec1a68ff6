//! Checkpoints: weights, optimiser state and method state on disk, to resume from.

use super::learner::Learner;
use crate::error::{Error, Result};
use crate::tensor::{Host, Matrix};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use undertone_run::write_atomically;

/// Saves the learner's state after `steps` steps.
pub fn save(path: &Path, learner: &Learner, steps: u64) -> Result<()> {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for id in learner.trainable() {
        let parameter = learner.model.parameters.get(id);
        let shape = vec![parameter.value.rows(), parameter.value.columns()];
        let values = parameter.value.to_vec().map_err(crate::model::Error::from)?;
        tensors.push((format!("weights.{}", parameter.name), shape.clone(), bytes(&values)));
        if let Some((first, second)) = learner.optimiser.moments(id) {
            tensors.push((
                format!("first.{}", parameter.name),
                shape.clone(),
                bytes(&first.dense()),
            ));
            tensors.push((format!("second.{}", parameter.name), shape, bytes(&second.dense())));
        }
    }
    for (name, values) in
        learner.method().map(|method| method.allocator().state()).unwrap_or_default()
    {
        tensors.push((
            format!("method.{name}"),
            vec![values.rows(), values.columns()],
            bytes(&values.dense()),
        ));
    }
    let failed =
        |e: safetensors::SafeTensorError| Error::folder(path, format!("cannot be written: {e}"));
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| {
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(failed)?;
    let metadata = HashMap::from([
        ("steps".to_owned(), steps.to_string()),
        ("optimiser_steps".to_owned(), learner.optimiser.steps().to_string()),
    ]);
    let file = safetensors::serialize(views, Some(metadata)).map_err(failed)?;
    Ok(write_atomically(path, |out| out.write_all(&file))?)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(view: &TensorView) -> Vec<f32> {
    view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Restores a learner from a checkpoint; returns the number of steps that it had taken.
pub fn load(path: &Path, learner: &mut Learner) -> Result<u64> {
    let file = std::fs::read(path).map_err(Error::io(path))?;
    let damaged = |e: safetensors::SafeTensorError| {
        Error::folder(path, format!("is damaged ({e}); start a new run"))
    };
    let (_, header) = SafeTensors::read_metadata(&file).map_err(damaged)?;
    let tensors = SafeTensors::deserialize(&file).map_err(damaged)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let get = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    let number = |key: &str| {
        get(key)
            .parse::<u64>()
            .map_err(|_| Error::folder(path, format!("is damaged: no {key}; start a new run")))
    };
    let (steps, optimiser_steps) = (number("steps")?, number("optimiser_steps")?);
    let device = learner.model.device().clone();
    let mut moments = Vec::new();
    for id in learner.trainable() {
        let parameter = learner.model.parameters.get_mut(id);
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        let read = |kind: &str| -> Result<Option<Host>> {
            let name = format!("{kind}.{}", parameter.name);
            let Ok(view) = tensors.tensor(&name) else { return Ok(None) };
            if view.shape() != [rows, columns] || view.dtype() != Dtype::F32 {
                return Err(Error::folder(
                    path,
                    format!("is damaged: {name} has another shape; start a new run"),
                ));
            }
            Ok(Some(Host::from_vec(rows, columns, numbers(&view))))
        };
        let Some(weights) = read("weights")? else {
            return Err(Error::folder(
                path,
                format!("is damaged: {} is missing; start a new run", parameter.name),
            ));
        };
        if let (Some(first), Some(second)) = (read("first")?, read("second")?) {
            moments.push((id, first, second));
        }
        parameter.value =
            Matrix::Host(weights).to_device(&device).map_err(crate::model::Error::from)?;
    }
    learner.optimiser.restore(optimiser_steps, moments);
    let find = |name: &str| Some(numbers(&tensors.tensor(&format!("method.{name}")).ok()?));
    let restored = learner.restore_method(&find);
    if steps > 0 && !restored {
        return Err(Error::folder(
            path,
            "is damaged: the state of the noise allocation is missing; start a new run",
        ));
    }
    Ok(steps)
}
