//! A training run from a plan to a finished run folder.

use super::card::card;
use super::checkpoint;
use super::early_stop::score;
use super::identity::{check_ranks, fingerprints, identity};
use super::load::{device_of, load};
use super::steps::Run;
use super::together::{check_plan, shared};
use crate::collective::{self, Ranks};
use crate::data::Dataset;
use crate::error::{Error, Result, is_of_full_disk, is_of_system};
use crate::memory::{GpuMemory, peak_memory};
use crate::method::{self, Begin, TrainingEvent};
use crate::model::folder::{BaseModel, Reading, copy_tokenizer, save};
use crate::model::tuning::save_adapter;
use crate::noise::Secret;
use crate::plan::Plan;
use crate::replay::{ReleaseId, StepTape, Tape};
use crate::tensor::Device;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use undertone_run::{
    EpochsTaken, EventLog, Metrics, OptimizerKind, Registered, ReleasedMetric, RunFile, RunFolder,
    Stopped, Summary, Tuning, ValidationMetrics, read_metrics, write_atomically,
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
    /// Examples that replace those of the training file: an audit leaves some out or adds canaries.
    pub data: Option<Dataset>,
    /// The processes that train together. Rank 0 writes the run folder; the others do not need one.
    pub ranks: Ranks,
    /// Records what is released before noise is added, or replays another run. Used in tests.
    pub tape: Option<Tape>,
}

/// Fine-tunes a model and writes the run folder.
pub fn train(start: Start, callback: &mut dyn FnMut(TrainingEvent)) -> Result<Summary> {
    train_until(&AtomicBool::new(false), start, callback)
}

/// Like [`train`]. If `stop` becomes true, a checkpoint is written after the step in progress, and
/// the run ends with [`Error::Stopped`] and can be resumed.
///
/// Every rank returns the summary that rank 0 has written. If one rank fails, all ranks fail.
pub fn train_until(
    stop: &AtomicBool,
    start: Start,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<Summary> {
    run_on_ranks(Until::End(stop), start, callback)
}

/// Writes the model of a stopped run as it is after the last step in its checkpoint, without
/// training further. The folder is then finished; its guarantee is that of every release in the
/// ledger.
pub fn finish_stopped(start: Start, callback: &mut dyn FnMut(TrainingEvent)) -> Result<Summary> {
    run_on_ranks(Until::Checkpoint, Start { resume: true, ..start }, callback)
}

/// How far a run is trained.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// To the last step, or until the flag is set.
    End(&'a AtomicBool),
    /// No further than its checkpoint.
    Checkpoint,
}

fn run_on_ranks(
    until: Until,
    start: Start,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<Summary> {
    let ranks = start.ranks.clone();
    let result = train_rank(until, start, callback);
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
    until: Until,
    start: Start,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<Summary> {
    let mut ranks = start.ranks;
    check_plan(&start.plan, &ranks)?;
    let device = device_of(&start.plan, start.device)?;
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
        if matches!(until, Until::Checkpoint) {
            check_checkpoint_is_there(folder)?;
        }
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
    let (mut prepared, mut resolved) = load(&plan, &secret, &device, start.data, callback)?;
    // This happens before the ledger is created: a run that is interrupted here has released
    // nothing, and --resume starts it again.
    let mut identity = identity(&plan, &secret, &resolved, &prepared, ranks.size())?;
    if !ranks.are_one() {
        let machine = &identity.machine;
        check_ranks(&ranks, &fingerprints(&plan, &secret, &resolved, &prepared, machine)?)?;
    }
    let (with_gpus, sums) = ranks.with_gpus(plan.compute.nccl, &device)?;
    ranks = with_gpus;
    if let Some(sums) = &sums {
        callback(TrainingEvent::Sums { message: sums });
    }
    let mut as_many_ranks = true;
    if let (Some(folder), true) = (&folder, begun) {
        let before = folder.check_identity(&identity)?;
        resolved.registered = RunFile::read_resolved(&folder.plan())?.registered;
        as_many_ranks = before.ranks == identity.ranks;
        identity.most_ranks = identity.ranks.max(before.most_ranks).max(before.ranks);
    } else if let Some(folder) = &folder {
        // Write the plan first: a folder that holds any other file of the run can then be resumed.
        // Files left behind by an interrupted start are created anew.
        resolved.registered = reservation(&plan, folder, start.resume)?;
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
    let bytes = run.bytes_on_disk();
    let needs = |error| match is_of_full_disk(&error) {
        true => Error::FullDisk { source: Box::new(error), megabytes: bytes.div_ceil(1_000_000) },
        false => error,
    };
    match until {
        Until::End(stop) => run.all_steps(stop, callback).map_err(needs)?,
        Until::Checkpoint => {
            run.end_here()?;
            if run.learner.average.as_ref().is_some_and(|average| average.count() == 0) {
                let message = "warning: the average of the weights had not begun when the run was \
                               stopped, so the model has the weights of the last step";
                callback(TrainingEvent::Warning { message });
            }
        }
    }
    run.finish().map_err(needs)
}

/// The reservation that plan.toml names: that of the run, or of an interrupted start.
fn reservation(plan: &Plan, folder: &RunFolder, resume: bool) -> Result<Option<Registered>> {
    if plan.registered.is_some() || !resume {
        return Ok(plan.registered.clone());
    }
    Ok(RunFile::read_resolved(&folder.plan())?.registered)
}

/// Refuses to finish a run without a checkpoint: no step is complete.
fn check_checkpoint_is_there(folder: &RunFolder) -> Result<()> {
    if folder.checkpoint().exists() {
        return Ok(());
    }
    Err(Error::folder(
        folder.folder(),
        "has no checkpoint, so there is no trained model to write; continue the run with --resume",
    ))
}

/// Refuses to resume a run whose ledger is missing: its earlier releases would go unaccounted.
fn check_ledger_is_there(folder: &RunFolder) -> Result<()> {
    if !folder.is_marked_begun()? || folder.ledger().exists() {
        return Ok(());
    }
    Err(Error::folder(
        &folder.ledger(),
        "is missing, but plan.toml says that the run has started; restore the ledger and the other \
         files of the run, or start a new run in another folder",
    ))
}

impl Run {
    /// Upper bound on the free space that the rest of the run needs: a checkpoint written beside
    /// the last one, another one of the best epoch, and the model.
    fn bytes_on_disk(&self) -> u64 {
        let (trainable, total) = self.learner.model.parameters.count();
        let moments = match self.plan.training.optimizer {
            OptimizerKind::Sgd => 1,
            OptimizerKind::Adamw | OptimizerKind::AdamCorrected => 2,
        };
        let average = usize::from(self.plan.training.average.is_some());
        // Methods that learn store one number per coordinate.
        let filter = 2 * usize::from(self.plan.training.filter_gain.is_some());
        let checkpoint = (1 + moments + average + filter + 1) * trainable;
        let checkpoints = 1 + usize::from(self.plan.training.stop_early.is_some());
        let saved = if self.saves_whole_model() { total } else { trainable };
        4 * (checkpoints * checkpoint + saved) as u64 + (1 << 20)
    }

    /// Whether the whole model is saved; otherwise, an adapter is.
    fn saves_whole_model(&self) -> bool {
        match self.plan.model.tuning {
            Tuning::Full => true,
            Tuning::Head => self.procedure.changes_frozen_parameters(),
            _ => false,
        }
    }

    /// The metrics of the best epoch, by accuracy or loss; `None` if the last epoch is as good.
    fn best_validation(&self, folder: &RunFolder) -> Result<Option<Metrics>> {
        let Some(last) = &self.last_validation else { return Ok(None) };
        let epochs = read_metrics(&folder.metrics())?;
        let epochs = epochs.into_iter().filter_map(|record| record.validation);
        let best = epochs.max_by(|left, right| score(left).total_cmp(&score(right)));
        Ok(best.filter(|best| score(best) > score(last)))
    }

    /// The metrics on private validation data that were released up to the last step.
    fn released_metrics(&self, folder: &RunFolder) -> Result<Vec<ReleasedMetric>> {
        if self.plan.evaluation.epsilon.is_none() {
            return Ok(Vec::new());
        }
        let records = read_metrics(&folder.metrics())?;
        Ok(records.into_iter().filter_map(|record| record.released).collect())
    }

    /// Writes the model and then the summary, on rank 0, and sends the summary to all ranks.
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
        let whole = self.saves_whole_model();
        let folder = if whole { run_folder.model() } else { run_folder.adapter() };
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        // Written before the model: a folder with a configuration is complete.
        self.procedure.save(model, &folder)?;
        Reading::of_run(&self.plan.data).save(&folder)?;
        if let (Some(labels), true) = (&self.data.labels, self.labels_are_private) {
            run_folder.keep_labels(labels.names())?;
        }
        if whole {
            save(model, &folder, Some(&self.origin))?;
        } else {
            let base = BaseModel::named(&self.plan.model.name());
            save_adapter(model, &folder, &base)?;
            copy_tokenizer(&self.origin, &folder)?;
        }
        let validation_with_noise = match &self.validation {
            Some(validation) => self.procedure.evaluate_perturbed(model, validation)?,
            None => None,
        };
        let not_private_because = self.procedure.not_private_because();
        let facts = self.procedure.facts();
        // It depends on the lengths of private texts, which the guarantee of a private run covers.
        let shown = not_private_because.is_some();
        let largest_micro_batch =
            (shown && self.largest_micro_batch > 0).then_some(self.largest_micro_batch as u64);
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
            released_metrics: self.released_metrics(run_folder)?,
            records: facts.perturbation,
            selection: self.selection(),
            throughput: Some(self.throughput()),
            ranks: self.most_ranks,
            peak_memory_bytes: peak_memory(),
            peak_gpu_memory_bytes: self.gpu_memory.peak,
            largest_micro_batch,
            steps: self.done,
            early_stop: self.epochs_taken(),
            stopped: self.stopped()?,
            skipped_rows: self.data.skipped,
            parameters: self.counts(),
            noise_by_parameter: self.learner.noise_by_parameter(),
            relevance_by_parameter: facts.relevance_by_parameter,
            relevance_cost: facts.relevance_cost,
            resolved: self.resolved.clone(),
            ledger_hash: self.procedure.ledger_hash(),
            plan: self.plan.file(),
        };
        let card = card(&summary, &folder)?;
        write_atomically(&folder.join("README.md"), |out| out.write_all(card.as_bytes()))?;
        EventLog::end(run_folder, &summary)?;
        // In this order: a run that is interrupted between the two is finished, and its secret is
        // removed the next time the folder is opened.
        run_folder.write_summary(&summary)?;
        run_folder.forget_secrets()?;
        Ok(summary)
    }

    /// The guarantee of the whole plan, if not all of its steps were taken.
    fn stopped(&self) -> Result<Option<Stopped>> {
        if self.done == self.steps() || self.early_stop.is_some() {
            return Ok(None);
        }
        let guarantee_of_plan = self.procedure.guarantee_of_plan()?;
        Ok(Some(Stopped { planned_steps: self.steps(), guarantee_of_plan }))
    }

    /// The epochs taken by a run that may stop early.
    fn epochs_taken(&self) -> Option<EpochsTaken> {
        let stop = self.early_stop.as_ref()?;
        let epochs = self.done / self.resolved.steps_per_epoch;
        Some(EpochsTaken { epochs, kept: stop.kept() })
    }

    /// A sentence on how the validation file was used.
    fn selection(&self) -> String {
        let (data, all) = (&self.plan.data, self.plan.training.epochs);
        let public = match (data.validation_is_public, self.plan.evaluation.epsilon) {
            (true, _) => ", declared to be public,",
            (_, Some(_)) => ", by metrics that were released with noise,",
            _ => "",
        };
        if self.done < self.steps() && self.early_stop.is_none() {
            let shown = match &data.validation {
                Some(path) => format!("{}{public} was used to report metrics", path.display()),
                None => "no other data were used".to_owned(),
            };
            return format!(
                "{shown}; the run was stopped by hand after step {} of {}, for reasons that \
                 are not recorded",
                self.done,
                self.steps()
            );
        }
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
            (Some(path), None) if self.plan.evaluation.epsilon.is_some() => format!(
                "metrics on {} were released with noise; the ledger has them, and ε covers them",
                path.display()
            ),
            (Some(path), None) if data.validation_is_public => format!(
                "{}{public} was used to report metrics, not to select hyperparameters; these \
                 metrics reveal no more about the training file than the weights do",
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
