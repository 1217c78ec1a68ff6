//! A training run from a plan to a finished run folder.

use super::card::{Saved, card};
use super::checkpoint;
use super::early_stop::score;
use super::event::TrainingEvent;
use super::identity::{check_ranks, fingerprints, identity};
use super::memory::{GpuMemory, peak_memory};
use super::prepare::Prepared;
use super::steps::Run;
use super::together::{check_plan, shared};
use crate::collective::{self, Ranks};
use crate::data::Dataset;
use crate::error::{Error, Result, is_of_system};
use crate::method::{self, Begin};
use crate::model::folder::{Reading, save};
use crate::model::tuning::save_adapter;
use crate::noise::Secret;
use crate::plan::{Method, Plan};
use crate::replay::{ReleaseId, StepTape, Tape};
use crate::tensor::Device;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use undertone_run::{
    EpochsTaken, Metrics, ParameterCounts, RunFolder, Summary, Tuning, ValidationMetrics,
    read_metrics, write_atomically,
};

/// Arguments of [`train`].
#[derive(Debug)]
pub struct Start<'a> {
    pub plan: Plan,
    /// The run folder.
    pub out: &'a Path,
    /// Whether to resume the run in that folder.
    pub resume: bool,
    pub device: Device,
    /// Examples in place of the training file's: an audit leaves some out, or adds canaries.
    pub data: Option<Dataset>,
    /// The processes that train together. Rank 0 writes the run folder; the others need none.
    pub ranks: Ranks,
    /// Records what is released before noise is added, or replays another run: for tests.
    pub tape: Option<Tape>,
}

/// Fine-tunes a model, and writes the run folder.
pub fn train(start: Start, callback: &mut dyn FnMut(TrainingEvent)) -> Result<Summary> {
    train_until(&AtomicBool::new(false), start, callback)
}

/// As [`train`]. If `stop` becomes true, a checkpoint is written after the step in progress, and
/// the run ends with [`Error::Stopped`], to be resumed.
///
/// Every rank returns the summary that rank 0 has written. If one of them fails, all do.
pub fn train_until(
    stop: &AtomicBool,
    start: Start,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<Summary> {
    let ranks = start.ranks.clone();
    let result = train_rank(stop, start, callback);
    match &result {
        Ok(_) | Err(Error::Stopped { .. }) => ranks.leave(),
        Err(Error::Ranks(error)) => ranks.abort(error),
        Err(other) if is_of_system(other) => {
            ranks.abort(&collective::Error::System(other.to_string()));
        }
        Err(other) => ranks.abort(&collective::Error::Refused(other.to_string())),
    }
    result
}

fn train_rank(
    stop: &AtomicBool,
    start: Start,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<Summary> {
    let mut ranks = start.ranks;
    check_plan(&start.plan, &ranks)?;
    let device = match start.plan.compute.precision {
        Some(precision) => start.device.with_precision(precision),
        None => Ok(start.device),
    };
    let device = device.map_err(crate::model::Error::from)?;
    let folder = match (ranks.is_first(), start.resume) {
        (true, true) => Some(RunFolder::open(start.out)?),
        (true, false) => Some(RunFolder::create(start.out)?),
        (false, _) => None,
    };
    if let Some(folder) = folder.as_ref().filter(|folder| folder.is_finished()) {
        folder.forget_secrets()?;
        return Err(Error::folder(start.out, "is finished; there is nothing to resume"));
    }
    if let Some(folder) = folder.as_ref().filter(|_| start.resume) {
        check_ledger_is_there(folder)?;
    }
    let plan = start.plan;
    let begun = start.resume && folder.as_ref().is_some_and(RunFolder::has_begun);
    let secret = match (plan.training.seed, &folder) {
        (Some(seed), _) => Secret::from_seed(seed),
        (None, Some(folder)) if begun => Secret::from_bytes(folder.read_secret()?),
        (None, _) => Secret::from_system().map_err(Error::NoRandomness)?,
    };
    let secret = Secret::from_bytes(ranks.share_secret(*secret.bytes())?);
    let gpu_memory = GpuMemory::begin(&device);
    let mut prepared = Prepared::load(&plan, &secret, &device, start.data)?;
    let classes = prepared.model.network.head.out.outputs;
    let units = plan.units(prepared.data.units);
    check_batch(&plan, units)?;
    let mut resolved = method::calibrate(&plan, units, classes)?;
    let (trainable, total) = prepared.model.parameters.count();
    callback(TrainingEvent::Loaded {
        plan: &plan,
        resolved: &resolved,
        data: &prepared.data,
        labels_were_found: prepared.labels_were_found,
        parameters: ParameterCounts { trainable, total },
    });
    // Before the ledger: a run that is interrupted here has released nothing, and --resume starts
    // it again.
    let mut identity = identity(&plan, &secret, &resolved, &prepared, ranks.size())?;
    if !ranks.are_one() {
        let machine = &identity.machine;
        check_ranks(&ranks, &fingerprints(&plan, &secret, &resolved, &prepared, machine)?)?;
    }
    let (with_gpus, sums) = ranks.with_gpus(plan.compute.nccl, &device)?;
    ranks = with_gpus;
    if let Some(sums) = &sums {
        callback(TrainingEvent::Sums { told: sums });
    }
    let mut as_many_ranks = true;
    if let (Some(folder), true) = (&folder, begun) {
        let before = folder.check_identity(&identity)?;
        as_many_ranks = before.ranks == identity.ranks;
        identity.most_ranks = identity.ranks.max(before.most_ranks).max(before.ranks);
    } else if let Some(folder) = &folder {
        // The plan first: a folder that holds anything else of the run can be resumed. What an
        // interrupted start has left behind is made anew.
        plan.file().write_plan(&folder.plan(), &resolved)?;
        folder.forget_secrets()?;
        folder.keep_identity(&identity)?;
        if plan.training.seed.is_none() {
            folder.keep_secret(secret.bytes())?;
        }
    }
    let begin = Begin {
        plan: &plan,
        prepared: &mut prepared,
        resolved: &mut resolved,
        secret: &secret,
        folder: folder.as_ref(),
        ranks: &ranks,
        tape: start.tape.as_ref(),
        callback,
    };
    let procedure = method::begin(begin)?;
    let mut run = Run::new((folder, ranks), plan, resolved, prepared, procedure, &secret);
    run.gpu_memory = gpu_memory;
    run.learner.tape = start.tape.map(|tape| StepTape { tape, release: ReleaseId::Step });
    run.most_ranks = identity.most_ranks;
    let path = run.folder.as_ref().map(|folder| folder.checkpoint()).unwrap_or_default();
    if start.resume && shared(&run.ranks, || Ok(path.exists()))? {
        let (learner, key) = (&mut run.learner, &run.checkpoint_key);
        run.done = checkpoint::load(&path, learner, key, &run.ranks)?;
        run.procedure.check_checkpoint(run.done)?;
    }
    if let (Some(folder), false) = (&run.folder, as_many_ranks) {
        run.procedure.check_other_ranks(run.done)?;
        folder.keep_identity(&identity)?;
    }
    run.all_steps(stop, callback)?;
    run.finish()
}

/// Refuses to resume a run that has a ledger no more: what it released would cost nothing.
fn check_ledger_is_there(folder: &RunFolder) -> Result<()> {
    if !folder.is_marked_begun()? || folder.ledger().exists() {
        return Ok(());
    }
    Err(Error::folder(
        &folder.ledger(),
        "is missing, and plan.toml says that the run has begun; bring back the ledger and the \
         other files of the run, or start a new run in another folder",
    ))
}

/// Refuses a batch of more users than there are: the accountant would speak of examples.
fn check_batch(plan: &Plan, units: usize) -> Result<()> {
    let batch = plan.training.batch;
    let of_users = plan.data.author.is_some() && matches!(plan.method, Method::Central(_));
    if of_users && batch > units as u64 {
        return Err(Error::plan(format!(
            "training.batch is {batch}, but must be at most the number of users, {units}: with \
             data.author, a batch consists of users"
        )));
    }
    Ok(())
}

impl Run {
    /// The metrics of the best epoch, by accuracy or by loss; none if the last is as good.
    fn best_validation(&self, folder: &RunFolder) -> Result<Option<Metrics>> {
        let Some(last) = &self.last_validation else { return Ok(None) };
        let epochs = read_metrics(&folder.metrics())?;
        let epochs = epochs.into_iter().filter_map(|record| record.validation);
        let best = epochs.max_by(|one, other| score(one).total_cmp(&score(other)));
        Ok(best.filter(|best| score(best) > score(last)))
    }

    /// Writes the model and, last, the summary, on rank 0; gives the summary to all ranks.
    fn finish(mut self) -> Result<Summary> {
        if self.last_validation.is_none() {
            self.validate()?;
        }
        self.learner.swap_average()?;
        let ranks = self.ranks.clone();
        shared(&ranks, || match &self.folder {
            Some(folder) => self.write(folder),
            None => Err(collective::Error::out_of_step().into()),
        })
    }

    fn write(&self, run_folder: &RunFolder) -> Result<Summary> {
        let model = &self.learner.model;
        if let Some(name) = model.parameters.not_finite().map_err(crate::model::Error::from)? {
            return Err(Error::NotFinite(name.to_owned()));
        }
        let whole = match self.plan.model.tuning {
            Tuning::Full => true,
            Tuning::Head => self.procedure.changes_frozen_parameters(),
            _ => false,
        };
        let folder = if whole { run_folder.model() } else { run_folder.adapter() };
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        // Before the model: a folder with a configuration is complete.
        self.procedure.save(model, &folder)?;
        Reading { max_tokens: self.plan.data.max_tokens }.save(&folder)?;
        if let (Some(labels), true) = (&self.data.labels, self.labels_are_private) {
            run_folder.keep_labels(labels.names())?;
        }
        if whole {
            save(model, &folder, Some(&self.origin))?;
        } else {
            save_adapter(model, &folder, &self.origin.display().to_string())?;
        }
        let validation_with_noise = match &self.validation {
            Some(validation) => self.procedure.evaluate_perturbed(model, validation)?,
            None => None,
        };
        let not_private_because = self.procedure.not_private_because();
        let facts = self.procedure.facts();
        // Both depend on the lengths of private texts, which the guarantee of a private run covers.
        let shown = not_private_because.is_some();
        let largest_micro_batch =
            (shown && self.largest_micro_batch > 0).then_some(self.largest_micro_batch as u64);
        let peak_gpu_memory_bytes = self.gpu_memory.peak.filter(|_| shown);
        let summary = Summary {
            format: Summary::FORMAT,
            private: not_private_because.is_none(),
            not_private_because,
            guarantee: self.procedure.guarantee()?,
            claimed: self.procedure.claim()?,
            metrics: ValidationMetrics {
                validation: self.last_validation.clone(),
                best_validation: self.best_validation(run_folder)?,
                validation_with_noise,
            },
            records: facts.perturbation,
            selection: self.selection(),
            throughput: Some(self.throughput()),
            ranks: self.most_ranks,
            peak_memory_bytes: peak_memory(),
            peak_gpu_memory_bytes,
            largest_micro_batch,
            steps: self.done,
            early_stop: self.epochs_taken(),
            skipped_rows: self.data.skipped,
            parameters: self.counts(),
            noise_by_parameter: self.learner.noise_by_parameter(),
            relevance_by_parameter: facts.relevance_by_parameter,
            relevance_cost: facts.relevance_cost,
            resolved: self.resolved.clone(),
            ledger_hash: self.procedure.ledger_hash(),
            plan: self.plan.file(),
        };
        let saved = Saved { whole, classes: model.network.head.out.outputs };
        let card = card(&summary, saved);
        write_atomically(&folder.join("README.md"), |out| out.write_all(card.as_bytes()))?;
        // In this order: a run that is interrupted between the two is finished, and its secret is
        // removed when the folder is opened next.
        run_folder.write_summary(&summary)?;
        run_folder.forget_secrets()?;
        Ok(summary)
    }

    /// Epochs of a run that may stop early.
    fn epochs_taken(&self) -> Option<EpochsTaken> {
        let stop = self.early_stop.as_ref()?;
        let epochs = self.done / self.resolved.steps_per_epoch;
        Some(EpochsTaken { epochs, kept: stop.kept() })
    }

    /// What the validation file was used for.
    fn selection(&self) -> String {
        let (data, all) = (&self.plan.data, self.plan.training.epochs);
        let public = if data.validation_is_public { ", declared to be public," } else { "" };
        match (&data.validation, self.epochs_taken()) {
            (Some(path), Some(EpochsTaken { epochs, kept })) => format!(
                "{}{public} was used to stop after epoch {epochs} of {all} and to keep the \
                 weights of epoch {kept}, and to report metrics{}",
                path.display(),
                match self.plan.is_private() {
                    true => "; ε is that of all planned steps",
                    false => "",
                }
            ),
            (Some(path), None) if data.validation_is_public => format!(
                "{}{public} was used to report metrics, not to select hyperparameters; these \
                 metrics tell no more of the training file than the weights do",
                path.display()
            ),
            (Some(path), None) => format!(
                "{} was used to report metrics, not to select hyperparameters; if it is private, \
                 the guarantee does not cover these metrics",
                path.display()
            ),
            (None, _) => "no other data were used".to_owned(),
        }
    }
}
