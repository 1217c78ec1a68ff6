//! The identity of a run: what must be the same for it to be resumed.
//!
//! A step that was lost in a crash is repeated with the same noise. That is the same release only
//! if everything else is the same too: with other data, another architecture or another plan, the
//! difference of two releases with the same noise would reveal the difference of their sums; with
//! another secret, the repeated steps are new releases, which the ledger does not have.
//!
//! Types are taken apart field by field, without `..`: a new field does not compile before it is
//! decided here whether a step depends on it.

use super::prepare::{Prepared, PublicData};
use crate::data::{Dataset, Example};
use crate::error::Result;
use crate::model::{Model, Parameter};
use crate::noise::{Secret, purpose};
use crate::plan::Plan;
use sha2::{Digest, Sha256};
use std::fmt::Debug;
use undertone_run::{Identity, Resolved};

/// The identity of a run: a hash, keyed by the secret, of everything that its releases are a
/// function of, and a description of what determines floating-point rounding.
pub fn identity(
    plan: &Plan,
    secret: &Secret,
    resolved: &Resolved,
    prepared: &Prepared,
) -> Result<Identity> {
    let mut hash = Fingerprint(Sha256::new());
    hash.add(&secret.key(purpose::IDENTITY));
    hash.add_debug(&env!("CARGO_PKG_VERSION"));
    hash.add_plan(plan);
    hash.add_debug(resolved);
    // The folder of the model is what was read from it.
    let Prepared { model, data, validation, public, origin: _, labels_were_found } = prepared;
    // Without early stopping the validation file is used to report metrics only.
    if let (Some(_), Some(validation)) = (plan.training.stop_early, validation) {
        hash.add_data(validation);
    }
    hash.add_debug(labels_were_found);
    hash.add_model(model)?;
    let PublicData { relevance, importance, text, adaptation } = public;
    let public = [relevance, importance, text, adaptation].map(Option::as_ref);
    for data in [Some(data)].into_iter().chain(public) {
        match data {
            None => hash.add(b"no data"),
            Some(data) => hash.add_data(data),
        }
    }
    let run = hash.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = format!(
        "undertone {}, {}, {} threads, {}",
        env!("CARGO_PKG_VERSION"),
        model.device().machine(),
        rayon::current_num_threads(),
        crate::tensor::kernels()
    );
    Ok(Identity { run, machine })
}

/// A hash of a list of parts; each is preceded by its length, so that no two lists are alike.
struct Fingerprint(Sha256);

impl Fingerprint {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// A value whose derived `Debug` shows every field, with floats to their last digit.
    fn add_debug(&mut self, value: &impl Debug) {
        self.add(format!("{value:?}").as_bytes());
    }

    /// Everything of a plan but what is written beside the run, and how often. Micro-batches count:
    /// they decide dropout masks and rounding.
    fn add_plan(&mut self, plan: &Plan) {
        let mut plan = plan.clone();
        plan.compute.checkpoint_every = None;
        plan.compute.tensorboard = false;
        self.add_debug(&plan);
    }

    fn add_model(&mut self, model: &Model) -> Result<()> {
        self.add(model.structure().as_bytes());
        for (_, parameter) in model.parameters.iter() {
            let Parameter { name, shape, value, trainable, origin } = parameter;
            self.add_debug(&(name, shape, trainable, origin));
            let values = value.to_vec().map_err(crate::model::Error::from)?;
            self.add(bytemuck::cast_slice::<f32, u8>(&values));
        }
        Ok(())
    }

    fn add_data(&mut self, data: &Dataset) {
        // What was left out is not trained on.
        let Dataset { examples, labels, units, most_per_unit, masking, skipped: _, tally: _ } =
            data;
        self.add_debug(&(labels, units, most_per_unit, examples.len()));
        if let Some(masking) = masking {
            self.add_debug(masking);
        }
        for example in examples {
            let Example { tokens, segments, target, unit } = example;
            self.add(bytemuck::cast_slice::<u32, u8>(tokens));
            self.add(bytemuck::cast_slice::<u32, u8>(segments));
            self.add_debug(&(target, unit));
        }
    }
}
