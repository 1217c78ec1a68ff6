//! Reads a checkpoint.

use super::super::together::shared;
use super::{CODE, CheckpointKey};
use crate::collective::{self, Ranks};
use crate::error::{Error, Result};
use crate::model;
use crate::step::Learner;
use crate::tensor::{Matrix, Shape};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use std::collections::HashMap;
use std::path::Path;

/// Step counts stored in a checkpoint.
#[derive(serde::Serialize, serde::Deserialize)]
struct Steps {
    taken: u64,
    of_optimizer: u64,
    averaged: u64,
}

/// Restores a learner from a checkpoint written by this run, and returns the number of steps taken.
/// Rank 0 reads the file and sends its contents to all ranks.
pub fn load(path: &Path, learner: &mut Learner, key: &CheckpointKey, ranks: &Ranks) -> Result<u64> {
    let file = match ranks.is_first() {
        true => undertone_run::read_bytes(path, u64::MAX).map_err(Error::io(path))?,
        false => Vec::new(),
    };
    let checked = ranks.is_first().then(|| check(path, &file, key)).transpose()?;
    let (tensors, own) = checked.unzip();
    let steps = shared(ranks, || own.ok_or_else(|| collective::Error::out_of_step().into()))?;
    let reader = Reader { path, ranks, tensors };
    learner.optimizer.restore(steps.of_optimizer);
    let device = learner.model.device().clone();
    let (mut averages, mut filtered, mut previous) = (Vec::new(), Vec::new(), Vec::new());
    let on_device = |values| -> Result<Matrix> {
        Ok(Matrix::Host(values).to_device(&device).map_err(model::Error::from)?)
    };
    for id in learner.trainable() {
        let parameter = learner.model.parameters.get(id);
        let (name, shape) = (parameter.name.clone(), parameter.value.shape());
        let read = |kind: &str| reader.tensor(&format!("{kind}.{name}"), Some(shape));
        let Some(weights) = read("weights")? else {
            return Err(Error::folder(
                path,
                format!("is damaged: {name} is missing; start a new run"),
            ));
        };
        let weights = Matrix::from_vec(shape[0], shape[1], weights).to_device(&device);
        learner.model.parameters.get_mut(id).value = weights.map_err(model::Error::from)?;
        if let (Some(first), Some(second)) = (read("first")?, read("second")?) {
            learner.restore_moments(id, &first, &second);
        }
        if let Some(average) = read("average")? {
            for (_, slice) in learner.own_slices(id, &average) {
                averages.push(on_device(slice)?);
            }
        }
        if let (Some(gradient), Some(before)) = (read("filtered")?, read("previous")?) {
            for (_, slice) in learner.own_slices(id, &gradient) {
                filtered.push(on_device(slice)?);
            }
            let before = Matrix::from_vec(shape[0], shape[1], before).to_device(&device);
            previous.push((id, before.map_err(model::Error::from)?));
        }
    }
    if let Some(filter) = &mut learner.filter {
        filter.restore(filtered, previous);
    }
    if let Some(average) = &mut learner.average {
        average.restore(steps.averaged, averages);
    }
    let state = reader.all("method.")?;
    let restored = learner.restore_method(&|name| state.get(name).cloned());
    if steps.taken > 0 && !restored {
        return Err(Error::folder(
            path,
            "is damaged: the state of the noise allocation is missing; start a new run",
        ));
    }
    Ok(steps.taken)
}

/// Verifies that a file belongs to this run and returns its contents.
fn check<'f>(path: &Path, file: &'f [u8], key: &CheckpointKey) -> Result<(SafeTensors<'f>, Steps)> {
    let damaged = |e: safetensors::SafeTensorError| {
        Error::folder(path, format!("is damaged ({e}); start a new run"))
    };
    let (_, header) = SafeTensors::read_metadata(file).map_err(damaged)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let get = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    if !key.verifies(file, &get(CODE)) {
        return Err(Error::folder(
            path,
            "was changed, or belongs to another run; restore the one that this run wrote, or \
             remove it to repeat the steps from the start",
        ));
    }
    let tensors = SafeTensors::deserialize(file).map_err(damaged)?;
    let number = |key: &str| {
        get(key)
            .parse::<u64>()
            .map_err(|_| Error::folder(path, format!("is damaged: no {key}; start a new run")))
    };
    let (taken, of_optimizer) = (number("steps")?, number("optimizer_steps")?);
    Ok((tensors, Steps { taken, of_optimizer, averaged: number("averaged_steps")? }))
}

/// Distributes the tensors of a file, which rank 0 holds.
struct Reader<'f> {
    path: &'f Path,
    ranks: &'f Ranks,
    tensors: Option<SafeTensors<'f>>,
}

impl Reader<'_> {
    /// The values of a tensor, which must have the expected shape; `None` if it is not in the file.
    fn tensor(&self, name: &str, expected: Option<Shape>) -> Result<Option<Vec<f32>>> {
        let mut bytes = Vec::new();
        if let Some(view) = self.tensors.as_ref().and_then(|all| all.tensor(name).ok()) {
            let is_other = expected.is_some_and(|shape| view.shape() != shape);
            if is_other || view.dtype() != Dtype::F32 {
                return Err(Error::folder(
                    self.path,
                    format!("is damaged: {name} has another shape; start a new run"),
                ));
            }
            if self.ranks.are_one() {
                return Ok(Some(numbers(view.data())));
            }
            // One extra byte after the values, which may be empty, indicates that the tensor
            // exists.
            bytes.reserve_exact(view.data().len() + 1);
            bytes.extend(view.data());
            bytes.push(1);
        }
        let bytes = self.ranks.broadcast(bytes)?;
        Ok(bytes.split_last().map(|(_, data)| numbers(data)))
    }

    /// All tensors whose name starts with `prefix`, by the rest of their name.
    fn all(&self, prefix: &str) -> Result<HashMap<String, Vec<f32>>> {
        let names: Vec<String> = shared(self.ranks, || {
            let names = self.tensors.iter().flat_map(|all| all.names());
            Ok(names.filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned())).collect())
        })?;
        let mut tensors = HashMap::new();
        for name in names {
            if let Some(numbers) = self.tensor(&format!("{prefix}{name}"), None)? {
                tensors.insert(name, numbers);
            }
        }
        Ok(tensors)
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}
