//! What must be the same for a run to go on as if it had never stopped.
//!
//! A step that a crash lost is taken again with the noise that it had. That is the same release
//! only if everything else is the same too: with other data or another plan, two different sums
//! under one noise could be told apart by their difference; with another secret, the steps are
//! other ones, which the ledger does not have.

use super::error::Result;
use super::plan::Plan;
use crate::data::Dataset;
use crate::mechanism::{Secret, purpose};
use crate::model::Model;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Kept in the run's folder while the run lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// A hash of the secret, of the plan, of the weights it begins from and of the tokens it trains
    /// on.
    pub run: String,
    /// What decides the order of additions: version, device, threads, kernels.
    pub machine: String,
}

impl Identity {
    /// Of the secret, the plan without what may change on the way, the tokens that are trained on
    /// or explained, and what decides the last digits.
    pub fn of<'a>(
        plan: &Plan,
        secret: &Secret,
        model: &Model,
        data: impl IntoIterator<Item = Option<&'a Dataset>>,
    ) -> Result<Self> {
        let mut plan = plan.clone();
        plan.compute.checkpoint_every = None;
        let mut hash = Sha256::new();
        hash.update(secret.key(purpose::IDENTITY));
        hash.update(serde_json::to_vec(&plan).unwrap_or_default());
        for (_, parameter) in model.parameters.iter() {
            hash.update(&parameter.name);
            let values = parameter.value.to_vec().map_err(crate::model::Error::from)?;
            hash.update(bytemuck::cast_slice::<f32, u8>(&values));
        }
        for example in data.into_iter().flatten().flat_map(|data| &data.examples) {
            hash.update(example.unit.to_le_bytes());
            hash.update((example.tokens.len() as u64).to_le_bytes());
            example.tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
            hash.update(format!("{:?}", example.target));
        }
        let run = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let machine = format!(
            "undertone {}, {}, {} threads, {}",
            env!("CARGO_PKG_VERSION"),
            model.device().machine(),
            rayon::current_num_threads(),
            crate::tensor::kernels()
        );
        Ok(Self { run, machine })
    }
}
