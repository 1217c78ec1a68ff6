//! The training loop over the steps of a run.

use super::checkpoint::{self, CheckpointKey};
use super::early_stop::{EarlyStop, score_of};
use super::journal::Journal;
use super::tally::Tally;
use super::together::shared;
use crate::collective::{Ranks, share_of_rank};
use crate::data::{Dataset, Members, micro_batches, micro_batches_in_order};
use crate::error::{Error, Result};
use crate::evaluate::{Metrics, UnitValues};
use crate::gradient::ClippedSum;
use crate::memory::GpuMemory;
use crate::method::{MicroBatch, Prepared, Procedure, SpentEpsilon, TrainingEvent};
use crate::noise::{Secret, purpose};
use crate::plan::Plan;
use crate::step::{AveragedWeights, GradientFilter, Learner, Protection, Step, StepSettings};
use crate::{model, tensor};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use undertone_run::{
    ParameterCounts, Record, ReleasedMetric, Resolved, RunFolder, RunPaths, Throughput,
    read_metrics,
};

/// Interval at which ε is computed from the ledger, if the plan does not determine it.
const EPSILON_EVERY: Duration = Duration::from_secs(10);
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// Requests that a rank makes to all ranks.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Stop after this step.
    to_stop: bool,
    /// Write a checkpoint after this step.
    to_save: bool,
}

/// A run during training.
pub struct Run {
    /// The run folder; `None` on ranks other than 0, which write nothing.
    pub(super) folder: Option<RunFolder>,
    pub(super) ranks: Ranks,
    pub(super) plan: Plan,
    pub(super) resolved: Resolved,
    pub(super) learner: Learner,
    pub(super) procedure: Box<dyn Procedure>,
    pub(super) data: Dataset,
    members: Members,
    pub(super) validation: Option<Dataset>,
    pub(super) origin: PathBuf,
    /// Whether the class names come from private rows and must not be published.
    pub(super) labels_are_private: bool,
    dropout_key: u64,
    mask_key: [u8; 32],
    pub(super) checkpoint_key: CheckpointKey,
    /// Number of steps taken.
    pub(super) done: u64,
    /// Number of this process's steps on non-empty batches, counted up to two.
    steps_with_examples: u64,
    examples: f64,
    time: Duration,
    pub(super) gpu_memory: GpuMemory,
    /// The largest number of ranks used so far, including before the run was resumed.
    pub(super) most_ranks: usize,
    /// The largest number of examples in a micro-batch.
    pub(super) largest_micro_batch: usize,
    pub(super) last_validation: Option<Metrics>,
    /// Values of the validation file's units, from which a metric may be released.
    last_values: Option<UnitValues>,
    /// The state of early stopping, if the run may stop early.
    pub(super) early_stop: Option<EarlyStop>,
}

impl Run {
    pub(super) fn new(
        (folder, ranks): (Option<RunFolder>, Ranks),
        plan: Plan,
        resolved: Resolved,
        prepared: Prepared,
        (procedure, protection): (Box<dyn Procedure>, Option<Protection>),
        secret: &Secret,
    ) -> Self {
        let Prepared { model, data, validation, origin, labels_are_private, .. } = prepared;
        let mut learner = Learner::new(model, plan.optimizer(), protection).over(&ranks);
        learner.average = plan.training.average.map(AveragedWeights::new);
        learner.filter = plan.training.filter_gain.map(GradientFilter::new);
        Self {
            learner,
            members: data.members(),
            dropout_key: secret.number(purpose::DROPOUT),
            mask_key: secret.key(purpose::MASKING),
            checkpoint_key: CheckpointKey::new(secret),
            labels_are_private,
            folder,
            ranks,
            plan,
            resolved,
            procedure,
            data,
            validation,
            origin,
            done: 0,
            steps_with_examples: 0,
            examples: 0.0,
            time: Duration::ZERO,
            most_ranks: 1,
            gpu_memory: GpuMemory::default(),
            largest_micro_batch: 0,
            last_validation: None,
            last_values: None,
            early_stop: None,
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.resolved.steps_per_epoch * u64::from(self.plan.training.epochs)
    }

    pub(super) fn counts(&self) -> ParameterCounts {
        let (trainable, total) = self.learner.model.parameters.count();
        ParameterCounts { trainable, total }
    }

    pub(super) fn throughput(&self) -> Throughput {
        let seconds = self.time.as_secs_f64();
        Throughput { examples_per_second: self.examples / seconds.max(1e-9), seconds }
    }

    /// ε spent so far: the upper bound from the ledger's guarantee.
    fn ledger_epsilon(&self) -> Result<Option<f64>> {
        Ok(self.procedure.guarantee()?.map(|guarantee| guarantee.epsilon.upper))
    }

    /// Takes all remaining steps, or those until `stop` becomes true.
    pub(super) fn all_steps(
        &mut self,
        stop: &AtomicBool,
        callback: &mut dyn FnMut(TrainingEvent),
    ) -> Result<()> {
        let mut journal = self.open_journal()?;
        self.restore_early_stop()?;
        callback(TrainingEvent::Ready {
            resolved: &self.resolved,
            examples: self.data.examples.len(),
            skipped: self.data.skipped,
            parameters: self.counts(),
            done: self.done,
            steps: self.steps(),
        });
        if self.fit()? {
            return Ok(());
        }
        let (mut saved, mut computed) = (Instant::now(), Instant::now());
        let mut spent: Option<SpentEpsilon> = None;
        if self.is_over() {
            // The run was interrupted while its model was being written.
            self.restore_epoch()?;
        }
        while !self.is_over() {
            if let Some(folder) = &self.folder {
                folder.check_lease()?;
            }
            let begun = Instant::now();
            let is_due = saved.elapsed() > CHECKPOINT_EVERY;
            let (mut record, asked) = self.step(stop, is_due)?;
            self.time += begun.elapsed();
            self.gpu_memory.look(self.learner.model.device());
            let epoch_ends = self.done.is_multiple_of(self.resolved.steps_per_epoch);
            if epoch_ends {
                self.check_that_weights_agree()?;
                record.validation = self.validate()?;
                record.released = self.release_metric(record.epoch)?;
                record.noise_by_parameter = self.uneven_noise();
                self.note_epoch(&record)?;
                // This happens before anything is written for a run that ends here.
                if self.early_stop.is_some() && self.is_over() {
                    self.procedure.record_rest()?;
                }
            }
            record.epsilon = match epoch_ends {
                true => self.ledger_epsilon()?,
                false => self.procedure.spent()?,
            };
            let mut epsilon = record.epsilon;
            if epsilon.is_none() && computed.elapsed() > EPSILON_EVERY {
                epsilon = self.ledger_epsilon()?;
                computed = Instant::now();
            }
            let of_this_step = epsilon.map(|epsilon| SpentEpsilon { epsilon, step: self.done });
            spent = of_this_step.or(spent);
            if let (Some(journal), Some(folder)) = (&mut journal, &self.folder) {
                journal.add(folder, &record)?;
            }
            let throughput = self.throughput();
            let gpu_memory_bytes = self.gpu_memory.peak;
            callback(TrainingEvent::Step {
                record: &record,
                throughput,
                epsilon: spent,
                gpu_memory_bytes,
            });
            let due = match self.plan.compute.checkpoint_every {
                Some(steps) => self.done.is_multiple_of(steps),
                None if self.ranks.are_one() => saved.elapsed() > CHECKPOINT_EVERY,
                None => asked.to_save,
            };
            let stopped = match self.ranks.are_one() {
                true => stop.load(Ordering::SeqCst),
                false => asked.to_stop,
            };
            let stopped = stopped && !self.is_over();
            if due || stopped || self.is_over() {
                self.save_checkpoint(RunPaths::checkpoint)?;
                saved = Instant::now();
            }
            if stopped {
                return Err(Error::Stopped { step: self.done, steps: self.steps() });
            }
        }
        self.choose_epoch()
    }

    /// Ends the run with the weights of its checkpoint and drops the metrics of later steps.
    pub(super) fn end_here(&mut self) -> Result<()> {
        self.open_journal()?;
        self.restore_epoch()?;
        self.restore_early_stop()?;
        if self.is_over() {
            return self.choose_epoch();
        }
        self.early_stop = None;
        Ok(())
    }

    /// Opens the files that grow with each step, on rank 0, and drops records of later steps.
    fn open_journal(&self) -> Result<Option<Journal>> {
        let private = self.procedure.not_private_because().is_none();
        let plan = self.plan.file();
        let open =
            |folder: &RunFolder| Journal::open(folder, &plan, &self.resolved, private, self.done);
        self.folder.as_ref().map(open).transpose()
    }

    /// Restores the state of the last step's epoch that only exists in memory.
    fn restore_epoch(&mut self) -> Result<()> {
        let last = self.done.saturating_sub(1) / self.resolved.steps_per_epoch;
        self.procedure.begin_epoch(last as usize, true, &mut self.learner, &self.data)
    }

    /// Restores the state of early stopping, if the run may stop early, from its metrics.
    fn restore_early_stop(&mut self) -> Result<()> {
        let Some(settings) = self.plan.training.stop_early else { return Ok(()) };
        let records = shared(&self.ranks, || match &self.folder {
            Some(folder) => Ok(read_metrics(&folder.metrics())?),
            None => Ok(Vec::new()),
        })?;
        let releases = self.plan.evaluation.epsilon.is_some();
        self.early_stop = Some(EarlyStop::after(settings, &records, releases));
        Ok(())
    }

    /// Saves the weights and the optimizer state, on rank 0. All ranks must call this: each holds a
    /// part of the optimizer state.
    fn save_checkpoint(&self, path: impl FnOnce(&RunPaths) -> PathBuf) -> Result<()> {
        let path = self.folder.as_ref().map(|folder| path(folder));
        checkpoint::save(path.as_deref(), &self.learner, self.done, &self.checkpoint_key)
    }

    /// Whether the last step was taken, or training stops early.
    fn is_over(&self) -> bool {
        self.done == self.steps() || self.early_stop.as_ref().is_some_and(EarlyStop::is_over)
    }

    /// Records the quality of an epoch and saves its weights if it is the best so far.
    fn note_epoch(&mut self, record: &Record) -> Result<()> {
        let releases = self.plan.evaluation.epsilon.is_some();
        let (Some(stop), Some(score)) = (&mut self.early_stop, score_of(record, releases)) else {
            return Ok(());
        };
        if stop.observe(record.epoch, score) && stop.keeps_best() {
            self.save_checkpoint(RunPaths::best_checkpoint)?;
        }
        Ok(())
    }

    /// Records the releases that a stopped run does not make, and restores the weights of the epoch
    /// that is kept.
    fn choose_epoch(&mut self) -> Result<()> {
        let Some(stop) = &self.early_stop else { return Ok(()) };
        self.procedure.record_rest()?;
        let kept = stop.kept() * self.resolved.steps_per_epoch;
        if kept != self.done {
            let folder = self.folder.as_deref();
            let path = folder.map(RunPaths::best_checkpoint).unwrap_or_default();
            let (learner, key) = (&mut self.learner, &self.checkpoint_key);
            let steps = checkpoint::load(&path, learner, key, &self.ranks)?;
            if steps != kept {
                return Err(Error::folder(
                    &path,
                    format!("is of step {steps}, and the best epoch ended at step {kept}"),
                ));
            }
            self.last_validation = None;
        }
        Ok(())
    }

    /// Noise by parameter; empty if it is the same for all parameters.
    fn uneven_noise(&self) -> Vec<(String, f64)> {
        let mut noise = self.learner.noise_by_parameter();
        if noise.iter().all(|(_, number)| (number - 1.0).abs() <= 1e-6) {
            noise.clear();
        }
        noise
    }

    /// Takes one step. The procedure records the release before making it. Returns the requests
    /// that ranks made before the release; rank 0 decides whether a checkpoint is due.
    fn step(&mut self, stop: &AtomicBool, is_due: bool) -> Result<(Record, Asked)> {
        let step = self.done;
        let epoch = (step / self.resolved.steps_per_epoch) as usize;
        let sample = self.procedure.sample(step)?;
        let first =
            step.is_multiple_of(self.resolved.steps_per_epoch) || self.steps_with_examples == 0;
        self.procedure.begin_epoch(epoch, first, &mut self.learner, &self.data)?;
        let training = &self.plan.training;
        let schedule = training.learning_rate_schedule;
        let learning_rate =
            training.learning_rate * schedule.share(step, self.steps(), training.warmup);
        let begun = self.learner.begin_step(StepSettings {
            number: step,
            noise_multiplier: self.procedure.noise_multiplier(epoch),
            divisor: sample.divisor,
            learning_rate,
        })?;
        let chosen = self.members.of_units(&sample.units);
        let (mut sum, mut tally) = self.accumulate(&begun, &chosen, epoch)?;
        tally.stop = u64::from(stop.load(Ordering::SeqCst));
        tally.save = u64::from(is_due && self.ranks.is_first());
        let tally = self.add_up(&mut sum, tally, &chosen)?;
        self.check_that_all_moves(&sum, chosen.len())?;
        let clipped = sum.clipped().clone();
        let clip = begun.adaptive_bound();
        self.procedure.release(sum, begun, &mut self.learner)?;
        self.done += 1;
        let (done, steps) = (self.done, self.steps());
        self.learner.add_to_average(done, steps).map_err(model::Error::from)?;
        self.examples += self.procedure.counted_examples(sample.divisor, chosen.len());
        let share = |number: f64| (clipped.units > 0).then(|| number / clipped.units as f64);
        let record = Record {
            step: self.done,
            epoch: epoch as u64 + 1,
            units: sample.units.len(),
            loss: (!chosen.is_empty()).then(|| tally.losses / chosen.len() as f64),
            learning_rate,
            gradient_norm: share(clipped.norms),
            clipped: share(clipped.clipped as f64),
            epsilon: None,
            validation: None,
            released: None,
            noise_by_parameter: Vec::new(),
            clip,
        };
        Ok((record, Asked { to_stop: tally.stop > 0, to_save: tally.save > 0 }))
    }

    /// The clipped sum over this rank's share of the chosen examples, and a tally of the added
    /// examples.
    fn accumulate(
        &mut self,
        begun: &Step,
        chosen: &[usize],
        epoch: usize,
    ) -> Result<(ClippedSum, Tally)> {
        let mut sum = self.learner.empty_sum();
        let mut tally = Tally::default();
        let (rank, ranks) = (self.ranks.rank(), self.ranks.size());
        let hides_lengths = self.procedure.hides_lengths();
        let share = match hides_lengths {
            true => (rank..chosen.len()).step_by(ranks).collect(),
            false => share_of_rank(chosen, &self.data.examples, rank, ranks),
        };
        let chosen: Vec<usize> = share.iter().map(|&position| chosen[position]).collect();
        let compute = &self.plan.compute;
        let step = self.done;
        let masked = self
            .data
            .masking
            .as_ref()
            .map(|masking| masking.in_step(&self.data.examples, &chosen, self.mask_key, step));
        let all_masked: Vec<usize> = (0..chosen.len()).collect();
        let (chosen, examples) = match &masked {
            Some(masked) => (all_masked.as_slice(), masked),
            None => (chosen.as_slice(), &self.data.examples),
        };
        let positions: HashMap<usize, usize> = chosen.iter().copied().zip(share).collect();
        let auto = self.learner.model.micro_batch();
        let most = (compute.micro_batch.or(auto.sequences), compute.micro_tokens.or(auto.tokens));
        let pieces = match hides_lengths {
            true => {
                let longest =
                    self.plan.data.max_tokens.min(self.learner.model.network.max_positions);
                micro_batches_in_order(chosen, most.0.min(most.1 / longest.max(1)))
            }
            false => micro_batches(chosen, examples, most.0, most.1),
        };
        for (i, indices) in pieces.iter().enumerate() {
            self.largest_micro_batch = self.largest_micro_batch.max(indices.len());
            let dropout_seed =
                self.plan.training.dropout.then(|| {
                    mix(self.dropout_key ^ mix(self.done) ^ ((rank as u64) << 32 | i as u64))
                });
            let batch = MicroBatch { indices, examples, epoch, dropout_seed };
            let losses = self.procedure.accumulate(begun, &batch, &self.learner, &mut sum);
            let losses = losses.map_err(|error| {
                let tokens = indices.iter().map(|&i| examples[i].tokens.len()).sum();
                name_smaller_batch(error, tokens, auto.tokens)
            })?;
            tally.losses += losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
            indices.iter().for_each(|index| tally.count(positions[index]));
            self.ranks.check()?;
        }
        Ok((sum, tally))
    }

    /// Fits the model in closed form, if the method does so, and returns whether it did.
    fn fit(&mut self) -> Result<bool> {
        let begun = Instant::now();
        if !self.procedure.fit(&mut self.learner, &self.data)? {
            return Ok(false);
        }
        self.examples = self.data.units as f64;
        self.time += begun.elapsed();
        self.done = self.steps();
        Ok(true)
    }

    /// Stops a run in which a trainable parameter gets no gradient, during its first two steps on
    /// non-empty batches.
    fn check_that_all_moves(&mut self, sum: &ClippedSum, examples: usize) -> Result<()> {
        if examples == 0 || self.steps_with_examples > 1 {
            return Ok(());
        }
        self.steps_with_examples += 1;
        let first = self.steps_with_examples == 1;
        let without_gradient = self.procedure.without_gradient(&self.learner, sum, first)?;
        let without_gradient = self.found_by_all(without_gradient)?;
        if without_gradient.is_empty() { Ok(()) } else { Err(Error::not_moved(&without_gradient)) }
    }

    pub(super) fn validate(&mut self) -> Result<Option<Metrics>> {
        self.learner.swap_average()?;
        let metrics = self.metrics_of_validation();
        self.learner.swap_average()?;
        let (metrics, values) = metrics?.unzip();
        (self.last_validation, self.last_values) = (metrics, values);
        Ok(self.last_validation.clone())
    }

    /// Releases the metric of the epoch that was just validated, if one is due.
    fn release_metric(&mut self, epoch: u64) -> Result<Option<ReleasedMetric>> {
        match self.last_values.take().filter(|_| self.procedure.releases_metrics(epoch)) {
            Some(values) => self.procedure.release_metric(epoch, &values),
            None => Ok(None),
        }
    }
}

/// A bijective hash of a number (the finalizer of SplitMix64).
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Suggests a remedy if a micro-batch of `tokens` tokens does not fit in GPU memory.
fn name_smaller_batch(error: Error, tokens: usize, auto: usize) -> Error {
    match error {
        Error::Model(model::Error::Tensor(tensor::Error::OutOfMemory { all, .. })) => {
            let smaller = (tokens / 2).min(auto).max(1);
            Error::plan(format!(
                "the GPU's memory of {all} MiB is too small for a micro-batch of {tokens} tokens: \
                 lower compute.micro_tokens to {smaller}, or data.max_tokens if this is a single \
                 sequence"
            ))
        }
        other => other,
    }
}
