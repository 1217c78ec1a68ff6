//! Predictions divided among ranks.

use super::{Limits, Prediction, in_batches, predict_batch};
use crate::collective::{self, Ranks};
use crate::data::Example;
use crate::error::Result;
use crate::model::Model;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A prediction in transferable form: floats are stored as bits, which JSON preserves.
#[derive(Serialize, Deserialize)]
struct Carried {
    /// Index of the example.
    example: usize,
    loss: Option<u32>,
    predictions: usize,
    logits: Vec<u32>,
}

/// A rank's predictions, and a hash of all examples that it was given.
#[derive(Serialize, Deserialize)]
struct Part {
    examples: [u8; 32],
    carried: Vec<Carried>,
}

/// Like [`predict`](super::predict), but each rank computes some of the batches. The batches are
/// the same as in a single process, so on the same kind of machine every prediction is
/// bit-identical. All ranks get all predictions.
pub fn predict_on_ranks(
    ranks: &Ranks,
    model: &Model,
    examples: &[Example],
    limits: Limits,
    want_logits: bool,
) -> Result<Vec<Prediction>> {
    let is_own = |batch: usize| batch % ranks.size() == ranks.rank();
    let predicted =
        in_batches(examples, limits, is_own, |_, batch| predict_batch(model, batch, want_logits))?;
    if ranks.are_one() {
        return Ok(predicted.into_iter().flatten().collect());
    }
    let damaged = |_| collective::Error::out_of_step();
    let own = Part {
        examples: hash(examples),
        carried: predicted
            .iter()
            .enumerate()
            .filter_map(|(i, prediction)| Some(carried(i, prediction.as_ref()?)))
            .collect(),
    };
    let mut all: Vec<Option<Prediction>> = vec![None; examples.len()];
    let parts = ranks.all_gather(&serde_json::to_vec(&own).map_err(damaged)?)?;
    for (rank, bytes) in parts.iter().enumerate() {
        let part: Part = serde_json::from_slice(bytes).map_err(damaged)?;
        if part.examples != own.examples {
            return Err(collective::Error::Refused(format!(
                "rank {rank} has different rows than rank {}: start all ranks with the same files",
                ranks.rank()
            ))
            .into());
        }
        for Carried { example, loss, predictions, logits } in part.carried {
            let slot = all.get_mut(example).ok_or_else(collective::Error::out_of_step)?;
            let logits = logits.into_iter().map(f32::from_bits).collect();
            *slot = Some(Prediction { loss: loss.map(f32::from_bits), predictions, logits });
        }
    }
    let all: Option<Vec<Prediction>> = all.into_iter().collect();
    Ok(all.ok_or_else(collective::Error::out_of_step)?)
}

fn carried(example: usize, prediction: &Prediction) -> Carried {
    Carried {
        example,
        loss: prediction.loss.map(f32::to_bits),
        predictions: prediction.predictions,
        logits: prediction.logits.iter().map(|logit| logit.to_bits()).collect(),
    }
}

fn hash(examples: &[Example]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for Example { tokens, segments, target, unit: _ } in examples {
        hash.update((tokens.len() as u64).to_le_bytes());
        hash.update(bytemuck::cast_slice::<u32, u8>(tokens));
        hash.update(bytemuck::cast_slice::<u32, u8>(segments));
        hash.update(format!("{target:?}").as_bytes());
    }
    hash.finalize().into()
}
