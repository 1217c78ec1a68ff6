//! Checkpoints: weights, optimiser state and method state on disk, to resume from.
//!
//! A step depends on the weights that it begins with, and on resuming its noise is used again. A
//! checkpoint that was changed, or is of another run, would put the same noise on another sum. So
//! it carries a message authentication code (HMAC-SHA-256) over the whole file, keyed by the run's
//! secret, which is checked before anything in it is used.

use super::learner::Learner;
use crate::collective::Ranks;
use crate::error::{Error, Result};
use crate::noise::{Secret, purpose};
use crate::tensor::{Host, Matrix};
use hmac::{Hmac, KeyInit, Mac};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use sha2::Sha256;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use undertone_run::write_atomically;

/// Key of the authentication code in the header, and its value while the code is computed.
const CODE: &str = "authentication";
const BLANK: [u8; 64] = [b'0'; 64];

/// Authenticates checkpoints with a key that is derived from the run's secret.
pub struct CheckpointKey(Hmac<Sha256>);

impl CheckpointKey {
    pub fn new(secret: &Secret) -> Self {
        let key = secret.key(purpose::CHECKPOINT);
        Self(Hmac::new_from_slice(&key).expect("HMAC takes keys of any length"))
    }

    /// Writes the authentication code into a serialised checkpoint that has a blank one.
    fn seal(&self, file: &mut [u8]) -> Option<()> {
        let place = place_of_code(file, &BLANK)?;
        let code = self.0.clone().chain_update(&*file).finalize().into_bytes();
        let text: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        file[place].copy_from_slice(text.as_bytes());
        Some(())
    }

    /// Whether the file carries the right authentication code.
    fn verifies(&self, file: &[u8], said: &str) -> bool {
        let Some(place) = place_of_code(file, said.as_bytes()) else { return false };
        let code: Option<Vec<u8>> = said
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let mac = self.0.clone().chain_update(&file[..place.start]).chain_update(BLANK);
        let mac = mac.chain_update(&file[place.end..]);
        code.is_some_and(|code| mac.verify_slice(&code).is_ok())
    }
}

/// Where the value of the authentication code stands in the file.
fn place_of_code(file: &[u8], value: &[u8]) -> Option<std::ops::Range<usize>> {
    let header = u64::from_le_bytes(*file.first_chunk::<8>()?);
    let header = file.get(8..8_usize.checked_add(usize::try_from(header).ok()?)?)?;
    let member = [b"\"", CODE.as_bytes(), b"\":\"", value, b"\""].concat();
    let found = header.windows(member.len()).position(|window| window == member)?;
    let start = 8 + found + CODE.len() + 4;
    (value.len() == BLANK.len()).then(|| start..start + value.len())
}

/// Saves the learner's state after `steps` steps.
pub fn save(path: &Path, learner: &Learner, steps: u64, key: &CheckpointKey) -> Result<()> {
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
                bytes(&first.to_vec().map_err(crate::model::Error::from)?),
            ));
            tensors.push((
                format!("second.{}", parameter.name),
                shape,
                bytes(&second.to_vec().map_err(crate::model::Error::from)?),
            ));
        }
    }
    for (id, average) in learner.average.iter().flat_map(|average| average.values()) {
        tensors.push((
            format!("average.{}", learner.model.parameters.get(*id).name),
            vec![average.rows(), average.columns()],
            bytes(&average.to_vec().map_err(crate::model::Error::from)?),
        ));
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
        (
            "averaged_steps".to_owned(),
            learner.average.as_ref().map_or(0, |average| average.count()).to_string(),
        ),
        (CODE.to_owned(), String::from_utf8_lossy(&BLANK).into_owned()),
    ]);
    let mut file = safetensors::serialize(views, Some(metadata)).map_err(failed)?;
    key.seal(&mut file).ok_or_else(|| {
        Error::folder(path, "cannot be written: its header has no authentication code")
    })?;
    Ok(write_atomically(path, |out| out.write_all(&file))?)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(view: &TensorView) -> Vec<f32> {
    view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Restores a learner from a checkpoint that this run wrote; returns the number of steps that it
/// had taken. Rank 0 reads the file, and gives it to all ranks.
pub fn load(path: &Path, learner: &mut Learner, key: &CheckpointKey, ranks: &Ranks) -> Result<u64> {
    let file = match ranks.is_first() {
        true => undertone_run::read_bytes(path, u64::MAX).map_err(Error::io(path))?,
        false => Vec::new(),
    };
    let file = ranks.broadcast(file)?;
    let damaged = |e: safetensors::SafeTensorError| {
        Error::folder(path, format!("is damaged ({e}); start a new run"))
    };
    let (_, header) = SafeTensors::read_metadata(&file).map_err(damaged)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let get = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    if !key.verifies(&file, &get(CODE)) {
        return Err(Error::folder(
            path,
            "was changed, or is of another run; bring back the one that this run wrote, or remove \
             it to repeat the steps from the start",
        ));
    }
    let tensors = SafeTensors::deserialize(&file).map_err(damaged)?;
    let number = |key: &str| {
        get(key)
            .parse::<u64>()
            .map_err(|_| Error::folder(path, format!("is damaged: no {key}; start a new run")))
    };
    let (steps, optimiser_steps) = (number("steps")?, number("optimiser_steps")?);
    let device = learner.model.device().clone();
    let mut moments = Vec::new();
    let mut averages = Vec::new();
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
        if let Some(average) = read("average")? {
            let average = Matrix::Host(average).to_device(&device);
            averages.push((id, average.map_err(crate::model::Error::from)?));
        }
        parameter.value =
            Matrix::Host(weights).to_device(&device).map_err(crate::model::Error::from)?;
    }
    learner.optimiser.restore(optimiser_steps, moments);
    if let Some(average) = &mut learner.average {
        average.restore(number("averaged_steps")?, averages);
    }
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
