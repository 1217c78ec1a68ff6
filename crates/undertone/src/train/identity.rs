//! The identity of a run: what must stay the same for it to be resumed.
//!
//! A step lost in a crash is repeated with the same noise. It is the same release only if
//! everything else is the same too. With different data, a different architecture or a different
//! plan, the difference of two releases with the same noise would reveal the difference of their
//! sums; with a different secret, the repeated steps are new releases that are missing from the
//! ledger.
//!
//! Types are destructured field by field, without `..`: code with a new field does not compile
//! until someone decides here whether a step depends on it.

use crate::collective::{self, Ranks};
use crate::data::{Dataset, Example};
use crate::error::Result;
use crate::method::{Prepared, PublicData};
use crate::model::{Model, Parameter};
use crate::noise::{Secret, purpose};
use crate::plan::Plan;
use sha2::{Digest, Sha256};
use std::fmt::Debug;
use undertone_run::{Identity, Resolved};

/// The identity of a run: a hash, keyed by the secret, of everything that determines its releases,
/// and a description of what determines floating-point rounding.
pub fn identity(
    plan: &Plan,
    secret: &Secret,
    resolved: &Resolved,
    prepared: &Prepared,
    ranks: usize,
) -> Result<Identity> {
    let mut hash = Fingerprint(Sha256::new());
    hash.add(&secret.key(purpose::IDENTITY));
    hash.add_debug(&env!("CARGO_PKG_VERSION"));
    hash.add_plan(plan);
    hash.add_debug(resolved);
    // The model's folder is covered by its contents.
    let Prepared {
        model,
        data,
        validation,
        public,
        classes,
        origin: _,
        labels_were_found,
        labels_are_private: _,
    } = prepared;
    // Otherwise, the validation file is only used to report metrics.
    let decides = plan.training.stop_early.is_some() || plan.evaluation.epsilon.is_some();
    if let Some(validation) = validation.as_ref().filter(|_| decides) {
        hash.add_data(validation);
    }
    hash.add_debug(labels_were_found);
    hash.add_debug(classes);
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
    Ok(Identity { run, machine, ranks, most_ranks: ranks })
}

/// Hashes of everything that all ranks of a run must have in common, each with a message for a rank
/// that differs. They are keyed by the run's secret.
pub fn fingerprints(
    plan: &Plan,
    secret: &Secret,
    resolved: &Resolved,
    prepared: &Prepared,
    machine: &str,
) -> Result<Vec<(&'static str, [u8; 32])>> {
    let mut fingerprints = Vec::new();
    let mut add = |what, fill: &mut dyn FnMut(&mut Fingerprint) -> Result<()>| {
        let mut hash = Fingerprint(Sha256::new());
        hash.add(&secret.key(purpose::IDENTITY));
        fill(&mut hash)?;
        fingerprints.push((what, hash.0.finalize().into()));
        Ok::<(), crate::error::Error>(())
    };
    add("is another version of the program", &mut |hash| {
        hash.add_debug(&env!("CARGO_PKG_VERSION"));
        // The program itself, if it can be read: two builds of the same version may differ.
        let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
        hash.add(&program);
        Ok(())
    })?;
    add("has another plan", &mut |hash| {
        hash.add_plan(plan);
        Ok(())
    })?;
    // Not part of a run's identity, but all ranks must exchange the same data at the same time.
    add("has another compute.checkpoint_every", &mut |hash| {
        hash.add_debug(&plan.compute.checkpoint_every);
        Ok(())
    })?;
    add("has another compute.nccl", &mut |hash| {
        hash.add_debug(&plan.compute.nccl);
        Ok(())
    })?;
    let Prepared {
        model,
        data,
        validation,
        public,
        classes,
        origin: _,
        labels_were_found,
        labels_are_private: _,
    } = prepared;
    add("has another base model", &mut |hash| hash.add_model(model))?;
    add("has other training data", &mut |hash| {
        hash.add_debug(&(labels_were_found, classes, resolved));
        hash.add_data(data);
        Ok(())
    })?;
    let PublicData { relevance, importance, text, adaptation } = public;
    add("has another validation or public file", &mut |hash| {
        for data in [validation, relevance, importance, text, adaptation] {
            match data {
                None => hash.add(b"no data"),
                Some(data) => hash.add_data(data),
            }
        }
        Ok(())
    })?;
    // Every rank updates its own copy of the weights, and all copies must stay the same.
    add("uses another kind of processor or GPU, or another number of threads", &mut |hash| {
        hash.add(machine.as_bytes());
        Ok(())
    })?;
    Ok(fingerprints)
}

/// Rejects ranks that differ from rank 0 in anything that determines the run.
pub fn check_ranks(ranks: &Ranks, own: &[(&'static str, [u8; 32])]) -> Result<()> {
    let bytes: Vec<u8> = own.iter().flat_map(|(_, hash)| *hash).collect();
    let all = ranks.all_gather(&bytes)?;
    for (rank, theirs) in all.iter().enumerate() {
        let hashes = theirs.chunks(32).zip(all[0].chunks(32)).zip(own);
        let differs = |&((theirs, first), _): &((&[u8], &[u8]), _)| theirs != first;
        if let Some((_, (what, _))) = hashes.into_iter().find(differs) {
            return Err(collective::Error::Refused(format!(
                "rank {rank} {what} than rank 0: start all ranks with the same program, files and \
                 number of threads"
            ))
            .into());
        }
    }
    Ok(())
}

/// A hash of a list of parts. Each part is preceded by its length, so that different lists have
/// different encodings.
struct Fingerprint(Sha256);

impl Fingerprint {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds a value whose derived `Debug` shows every field, with floats to their last digit.
    fn add_debug(&mut self, value: &impl Debug) {
        self.add(format!("{value:?}").as_bytes());
    }

    /// Adds everything in a plan except additional outputs, how often they are written, the way in
    /// which sums are exchanged, which gives the same bits, and the budget's reservation.
    /// Micro-batches are included: they determine dropout masks and rounding.
    fn add_plan(&mut self, plan: &Plan) {
        let mut plan = plan.clone();
        plan.compute.checkpoint_every = None;
        plan.compute.tensorboard = false;
        plan.compute.nccl = undertone_run::NcclUse::Auto;
        plan.registered = None;
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
        // Skipped rows are not used for training.
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
