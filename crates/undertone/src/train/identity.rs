//! The identity of a run: what must be the same for it to be resumed.
//!
//! A step that was lost in a crash is repeated with the same noise. That is the same release only
//! if everything else is the same too: with other data or another plan, the difference of two
//! releases with the same noise would reveal the difference of their sums; with another secret, the
//! repeated steps are new releases, which the ledger does not have.

use super::prepare::Prepared;
use crate::error::Result;
use crate::noise::{Secret, purpose};
use crate::plan::Plan;
use sha2::{Digest, Sha256};
use undertone_run::Identity;

/// Hashes the secret, the plan (without keys that may change on resuming), the initial weights and
/// all examples; and names what determines floating-point rounding.
pub fn identity(plan: &Plan, secret: &Secret, prepared: &Prepared) -> Result<Identity> {
    let model = &prepared.model;
    let mut file = plan.file();
    file.compute.checkpoint_every = None;
    let mut hash = Sha256::new();
    hash.update(secret.key(purpose::IDENTITY));
    hash.update(serde_json::to_vec(&file).unwrap_or_default());
    for (_, parameter) in model.parameters.iter() {
        hash.update(&parameter.name);
        let values = parameter.value.to_vec().map_err(crate::model::Error::from)?;
        hash.update(bytemuck::cast_slice::<f32, u8>(&values));
    }
    for example in prepared.datasets().flat_map(|data| &data.examples) {
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
    Ok(Identity { run, machine })
}
