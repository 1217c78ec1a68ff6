//! Writes a checkpoint in the safetensors format, one tensor after the other. Only the tensor being
//! written is held in memory twice.

use super::{BLANK, CODE, CheckpointKey, place_of_code};
use crate::error::{Error, Result};
use crate::model::{self, ParameterId};
use crate::step::{Kept, Learner};
use crate::tensor::{Host, Shape};
use hmac::Mac;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use undertone_run::write_atomically;

/// A tensor of a checkpoint.
struct Tensor {
    name: String,
    shape: Shape,
    source: Source,
}

/// The source of a tensor's values.
enum Source {
    Weights(ParameterId),
    /// State of which each rank holds a part.
    Shared(ParameterId, Kept),
    /// State of the noise allocation.
    Method(Host),
}

/// Saves the learner's state after `steps` steps to a file, on rank 0. All ranks must call this,
/// the others without a path.
pub fn save(path: Option<&Path>, learner: &Learner, steps: u64, key: &CheckpointKey) -> Result<()> {
    let tensors = tensors(learner);
    let Some(path) = path else {
        // Take part in gathering the state on rank 0.
        let of_all = tensors.iter().filter(|tensor| matches!(tensor.source, Source::Shared(..)));
        return of_all
            .map(|tensor| numbers(tensor, learner))
            .try_for_each(|result| result.map(drop));
    };
    let header = header(&tensors, learner, steps);
    let place = place_of_code(&header, &BLANK).ok_or_else(|| {
        Error::folder(path, "cannot be written: its header has no authentication code")
    })?;
    let mut failed = None;
    let written = write_atomically(path, |out| {
        let mut mac = key.begin().chain_update(&header);
        out.write_all(&header)?;
        for tensor in &tensors {
            let values = numbers(tensor, learner).map_err(|error| {
                failed = Some(error);
                io::Error::other("what it holds could not be collected")
            })?;
            let bytes: Vec<u8> = values.iter().flat_map(|number| number.to_le_bytes()).collect();
            mac.update(&bytes);
            out.write_all(&bytes)?;
        }
        let code = mac.finalize().into_bytes();
        let text: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        put(out, place.start, text.as_bytes())
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

/// Writes bytes at an offset in a file.
fn put(out: &mut BufWriter<File>, place: usize, bytes: &[u8]) -> io::Result<()> {
    out.seek(SeekFrom::Start(place as u64))?;
    out.write_all(bytes)
}

/// The tensors of a checkpoint, the same on every rank.
fn tensors(learner: &Learner) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let parameters = &learner.model.parameters;
    for id in learner.trainable() {
        let parameter = parameters.get(id);
        let shape = parameter.value.shape();
        let mut add = |kind: &str, source| {
            let name = format!("{kind}.{}", parameter.name);
            tensors.push(Tensor { name, shape, source });
        };
        add("weights", Source::Weights(id));
        if learner.optimizer.steps() > 0 {
            add("first", Source::Shared(id, Kept::FirstMoment));
            add("second", Source::Shared(id, Kept::SecondMoment));
        }
        if learner.average.as_ref().is_some_and(|average| average.count() > 0) {
            add("average", Source::Shared(id, Kept::Average));
        }
        if learner.filter.is_some() && learner.optimizer.steps() > 0 {
            add("filtered", Source::Shared(id, Kept::Filtered));
            add("previous", Source::Shared(id, Kept::Previous));
        }
    }
    let state = learner.method().map(|method| method.allocator().state()).unwrap_or_default();
    for (name, values) in state {
        let shape = [values.rows(), values.columns()];
        let name = format!("method.{name}");
        tensors.push(Tensor { name, shape, source: Source::Method(values) });
    }
    tensors
}

/// The values of a tensor; sharded state is only available on rank 0.
fn numbers(tensor: &Tensor, learner: &Learner) -> Result<Vec<f32>> {
    let collected = match &tensor.source {
        Source::Weights(id) => learner.model.parameters.value(*id).to_vec(),
        Source::Shared(id, kept) => return learner.collect(*kept, *id),
        Source::Method(values) => Ok(values.dense().into_owned()),
    };
    Ok(collected.map_err(model::Error::from)?)
}

/// The start of the file: the header length and its JSON, with a blank authentication code.
fn header(tensors: &[Tensor], learner: &Learner, steps: u64) -> Vec<u8> {
    let averaged = learner.average.as_ref().map_or(0, |average| average.count());
    let metadata = json!({
        "steps": steps.to_string(),
        "optimizer_steps": learner.optimizer.steps().to_string(),
        "averaged_steps": averaged.to_string(),
        CODE: String::from_utf8_lossy(&BLANK),
    });
    let mut members = serde_json::Map::from_iter([("__metadata__".to_owned(), metadata)]);
    let mut offset = 0;
    for Tensor { name, shape, .. } in tensors {
        let end = offset + size_of::<f32>() * shape[0] * shape[1];
        let about = json!({ "dtype": "F32", "shape": shape, "data_offsets": [offset, end] });
        members.insert(name.clone(), about);
        offset = end;
    }
    let mut text = serde_json::Value::Object(members).to_string().into_bytes();
    // Values start at a multiple of eight bytes.
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text].concat()
}
