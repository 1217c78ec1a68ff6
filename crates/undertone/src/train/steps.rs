//! The steps of a run, one after the other.

use super::checkpoint;
use super::error::{Error, Result};
use super::folder::RunFolder;
use super::forward::{Cache, Perturbing};
use super::learner::{Learner, Protection, Step};
use super::news::News;
use super::plan::{Learn, ModeName, Plan, Resolved};
use super::prepare::Prepared;
use super::record::{Record, Records};
use super::spending::{releases, rounded_down, step_event};
use super::summary::{Claim, Counts, Throughput};
use crate::data::{Batch, Dataset, Members, PoissonSampler, ShuffledEpochs, micro_batches};
use crate::evaluate::{Limits, Meter, Metrics, predict, predict_perturbed};
use crate::gradient::ClippedSum;
use crate::method::central::Method;
use crate::noise::{Noise, Secret, purpose};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Accountant, Adjacency, Composition, Guarantee, epsilon};

/// How often ε is computed for those who watch.
const EPSILON_EVERY: Duration = Duration::from_secs(10);
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// Which units a step takes.
enum Sampler {
    Poisson(PoissonSampler),
    Shuffled(ShuffledEpochs),
}

/// A run under way.
pub struct Run {
    pub(super) folder: RunFolder,
    pub(super) plan: Plan,
    pub(super) resolved: Resolved,
    pub(super) learner: Learner,
    data: Dataset,
    members: Members,
    validation: Option<Dataset>,
    pub(super) origin: PathBuf,
    sampler: Sampler,
    dropout_key: u64,
    pub(super) ledger: Option<Ledger>,
    /// Steps taken.
    pub(super) done: u64,
    /// Steps in which there was something to learn, of this process.
    learnt: u64,
    examples: f64,
    time: Duration,
    pub(super) last_validation: Option<Metrics>,
    /// For the summary.
    pub(super) relevance: Vec<(String, f64)>,
    /// What perturbs the records, if they are.
    pub(super) perturbing: Option<Perturbing>,
    cache: Cache,
}

impl Run {
    pub(super) fn new(
        folder: RunFolder,
        plan: Plan,
        resolved: Resolved,
        prepared: Prepared,
        method: Option<Method>,
        secret: Secret,
        ledger: Option<Ledger>,
    ) -> Result<Self> {
        let Prepared { model, data, validation, origin, .. } = prepared;
        let protection = method.map(|method| Protection { method, noise: Noise::new(&secret) });
        let learner = Learner::new(model, plan.optimiser(), protection);
        let key = secret.key(purpose::SAMPLING);
        let sampler = match resolved.sampling_rate {
            Some(rate) => Sampler::Poisson(PoissonSampler::new(data.units, rate, key)?),
            None => Sampler::Shuffled(ShuffledEpochs::new(
                data.units,
                plan.training.batch as usize,
                key,
            )?),
        };
        let dropout_key = secret.number(purpose::DROPOUT);
        let members = data.members();
        Ok(Self {
            folder,
            plan,
            resolved,
            learner,
            data,
            members,
            validation,
            origin,
            sampler,
            dropout_key,
            ledger,
            done: 0,
            learnt: 0,
            examples: 0.0,
            time: Duration::ZERO,
            last_validation: None,
            relevance: Vec::new(),
            perturbing: None,
            cache: Cache::default(),
        })
    }

    pub(super) fn steps(&self) -> u64 {
        self.resolved.steps_per_epoch * u64::from(self.plan.training.epochs)
    }

    pub(super) fn counts(&self) -> Counts {
        let (trainable, total) = self.learner.model.parameters.count();
        Counts { trainable, total }
    }

    pub(super) fn throughput(&self) -> Throughput {
        let seconds = self.time.as_secs_f64();
        Throughput { examples_per_second: self.examples / seconds.max(1e-9), seconds }
    }

    pub(super) fn guarantee(&self) -> Result<Option<Guarantee>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        Ok(Some(ledger.guarantee(self.plan.privacy.delta.unwrap_or_default())?))
    }

    /// What the method's own paper would claim for the steps taken, in paper mode.
    pub(super) fn claimed(&self) -> Result<Option<Claim>> {
        if self.plan.privacy.mode == ModeName::Proved || !self.plan.is_private() {
            return Ok(None);
        }
        let delta = self.plan.privacy.delta.unwrap_or_default();
        if self.plan.is_forward() {
            return Ok(Some(Claim {
                epsilon: self.plan.claimed_epsilon(self.resolved.units)?,
                delta,
            }));
        }
        let mut nominal = Composition::new(Adjacency::AddRemove);
        for &noise in &self.resolved.noise_multipliers {
            nominal.push(step_event(&self.resolved, noise), self.resolved.steps_per_epoch);
        }
        let epsilon = epsilon(&nominal, delta, Accountant::Auto)?.epsilon.upper;
        Ok(Some(Claim { epsilon, delta }))
    }

    pub(super) fn all_steps(&mut self, watch: &mut dyn FnMut(News)) -> Result<()> {
        let metrics = self.folder.metrics();
        let mut records = Records::open(&metrics, self.done)?;
        watch(News::Ready {
            resolved: &self.resolved,
            examples: self.data.examples.len(),
            parameters: self.counts(),
            done: self.done,
            steps: self.steps(),
        });
        if let Some(perturbing) = &self.perturbing
            && perturbing.learn == Learn::Discriminant
        {
            return self.fit();
        }
        let (mut saved, mut asked) = (Instant::now(), Instant::now());
        let mut spent = None;
        if self.done == self.steps() {
            // What only lives in memory is made again for a run that broke off while its model was
            // being written.
            self.begin_epoch(self.plan.training.epochs as usize - 1, true)?;
        }
        while self.done < self.steps() {
            let begun = Instant::now();
            let mut record = self.step()?;
            self.time += begun.elapsed();
            if self.done.is_multiple_of(self.resolved.steps_per_epoch) {
                record.validation = self.validate()?;
                record.epsilon = self.guarantee()?.map(|guarantee| guarantee.epsilon.upper);
                spent = record.epsilon;
                record.noise_by_parameter = self.uneven_noise();
            } else if asked.elapsed() > EPSILON_EVERY {
                spent = self.guarantee()?.map(|guarantee| guarantee.epsilon.upper);
                asked = Instant::now();
            }
            records.add(&metrics, &record)?;
            watch(News::Step { record: &record, throughput: self.throughput(), epsilon: spent });
            let due = match self.plan.compute.checkpoint_every {
                Some(steps) => self.done.is_multiple_of(steps),
                None => saved.elapsed() > CHECKPOINT_EVERY,
            };
            if due || self.done == self.steps() {
                checkpoint::save(&self.folder.checkpoint(), &self.learner, self.done)?;
                saved = Instant::now();
            }
        }
        Ok(())
    }

    /// Where the noise goes, unless it goes everywhere alike.
    fn uneven_noise(&self) -> Vec<(String, f64)> {
        let mut noise = self.learner.noise_by_parameter();
        if noise.iter().all(|(_, number)| (number - 1.0).abs() <= 1e-6) {
            noise.clear();
        }
        noise
    }

    /// One step: what is released is in the ledger before it is released.
    fn step(&mut self) -> Result<Record> {
        let step = self.done;
        let epoch = step / self.resolved.steps_per_epoch;
        let noise_multiplier =
            self.resolved.noise_multipliers.get(epoch as usize).copied().unwrap_or(0.0);
        let units = match &mut self.sampler {
            Sampler::Poisson(sampler) => sampler.step(step),
            Sampler::Shuffled(epochs) => epochs.step(step),
        };
        self.begin_epoch(epoch as usize, step.is_multiple_of(self.resolved.steps_per_epoch))?;
        let chosen = self.members.of_units(&units);
        let mut sum = self.learner.start();
        let mut losses = 0.0;
        let compute = &self.plan.compute;
        let pieces =
            micro_batches(&chosen, &self.data.examples, compute.micro_batch, compute.micro_tokens);
        for (i, piece) in pieces.iter().enumerate() {
            let dropout =
                self.plan.training.dropout.then(|| mix(self.dropout_key ^ mix(step) ^ i as u64));
            let found = match &self.perturbing {
                Some(perturbing) => {
                    let frozen = self.plan.privacy.mode == ModeName::Proved;
                    let cache = frozen.then_some(&mut self.cache);
                    let (model, examples) = (&self.learner.model, &self.data.examples);
                    perturbing.accumulate(
                        model,
                        piece,
                        examples,
                        (epoch as usize, dropout),
                        cache,
                        &mut sum,
                    )?
                }
                None => {
                    let batch =
                        Batch::pack(piece.iter().map(|&example| &self.data.examples[example]));
                    self.learner.accumulate(&batch, dropout, &mut sum)?
                }
            };
            losses += found.iter().map(|&loss| f64::from(loss)).sum::<f64>();
        }
        self.check_that_all_moves(&sum, chosen.len())?;
        let worth = self.learner.worth(&sum, noise_multiplier)?;
        self.enter(step, worth)?;
        let clipped = sum.clipped().clone();
        let training = &self.plan.training;
        let rate = training.learning_rate
            * training.learning_rate_schedule.share(step, self.steps(), training.warmup);
        let divisor = match self.resolved.sampling_rate {
            // The expected number of units, not the number that happened to be drawn: that one is
            // private.
            Some(rate) => rate * self.data.units as f64,
            None => units.len() as f64,
        };
        self.learner.update(sum, &Step { number: step, noise_multiplier, divisor, rate })?;
        self.done += 1;
        // Of a private run the expected number: how many were drawn is private.
        self.examples += if self.plan.is_private() { divisor } else { chosen.len() as f64 };
        let private = self.plan.is_private() && clipped.units > 0;
        let share = |number: f64| private.then(|| number / clipped.units as f64);
        Ok(Record {
            step: self.done,
            epoch: epoch + 1,
            units: units.len(),
            loss: (!chosen.is_empty()).then(|| losses / chosen.len() as f64),
            learning_rate: rate,
            gradient_norm: share(clipped.norms),
            clipped: share(clipped.shortened as f64),
            epsilon: None,
            validation: None,
            noise_by_parameter: Vec::new(),
        })
    }

    /// Writes into the ledger what records release in an epoch, before any does, and calibrates
    /// what learns to their noise.
    fn begin_epoch(&mut self, epoch: usize, at_its_start: bool) -> Result<()> {
        let (Some(perturbing), Some(ledger)) = (&self.perturbing, &mut self.ledger) else {
            return Ok(());
        };
        let classes = self.learner.model.network.head.out.outputs;
        let all = releases(&self.plan, &self.resolved, classes);
        let due = all.iter().filter(|(due, ..)| *due <= epoch).count();
        // Entries that a crash left behind are of the same releases: records and noise are the same
        // again.
        for (_, event, count) in &all[(ledger.entries() as usize).min(due)..due] {
            ledger.append(*event, *count)?;
        }
        if at_its_start || self.learnt == 0 {
            if self.plan.privacy.mode == ModeName::Paper {
                // What is below the noise has learnt since.
                self.cache = Cache::default();
            }
            let examples = &self.data.examples;
            perturbing.calibrate(&mut self.learner.model, examples, &mut self.cache, epoch)?;
        }
        Ok(())
    }

    /// Learns in closed form, from the one release of each record.
    fn fit(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.begin_epoch(0, false)?;
        if let Some(perturbing) = &self.perturbing {
            perturbing.fit(&mut self.learner.model, &self.data.examples, &mut self.cache)?;
        }
        self.examples = self.data.units as f64;
        self.time += begun.elapsed();
        self.done = self.steps();
        Ok(())
    }

    /// How good the model is on texts that are perturbed as the records were.
    pub(super) fn validate_with_noise(&self) -> Result<Option<Metrics>> {
        let (Some(perturbing), Some(validation)) = (&self.perturbing, &self.validation) else {
            return Ok(None);
        };
        let model = &self.learner.model;
        let mut meter = Meter::new(model.network.head.purpose, model.network.head.out.outputs);
        // Numbers that no record has.
        let found = predict_perturbed(
            model,
            &validation.examples,
            Limits::default(),
            &perturbing.noise,
            1 << 40,
        )?;
        validation.examples.iter().zip(&found).for_each(|(example, said)| meter.add(example, said));
        Ok(Some(meter.metrics()))
    }

    /// Writes into the ledger what is about to be released.
    fn enter(&mut self, step: u64, worth: f64) -> Result<()> {
        if self.perturbing.is_some() {
            return Ok(());
        }
        let worth =
            if self.plan.privacy.mode == ModeName::Paper { rounded_down(worth) } else { worth };
        let before = u64::from(self.resolved.before.is_some());
        match &mut self.ledger {
            // A step that a crash lost after its entry was written is taken again with the same
            // sample and the same noise: it is the same release, and nobody has seen it.
            Some(ledger) if ledger.entries() <= before + step => {
                Ok(ledger.append(step_event(&self.resolved, worth), 1)?)
            }
            _ => Ok(()),
        }
    }

    /// A checkpoint came after the entries of its steps. With fewer of them the ledger is not this
    /// run's, or an older copy of it, and would prove too much.
    pub(super) fn check_that_all_is_entered(&self) -> Result<()> {
        let Some(ledger) = self.ledger.as_ref().filter(|_| self.perturbing.is_none()) else {
            return Ok(());
        };
        let steps = u64::from(self.resolved.before.is_some()) + self.done;
        if ledger.entries() < steps {
            return Err(Error::folder(
                &self.folder.ledger(),
                format!(
                    "has {} entries, but the checkpoint is {steps} releases old: bring back the \
                     ledger that belongs to it",
                    ledger.entries()
                ),
            ));
        }
        Ok(())
    }

    /// Stops a run in which something that should be trained is not, in its first two steps that
    /// have examples. Whether a private run stops must not depend on its examples: of one,
    /// everything has to take part, whatever the numbers are.
    fn check_that_all_moves(&mut self, sum: &ClippedSum, examples: usize) -> Result<()> {
        if examples == 0 || self.learnt > 1 {
            return Ok(());
        }
        self.learnt += 1;
        let unmoved = if self.plan.is_private() {
            self.learner.left_out(sum)
        } else {
            self.learner.unmoved(sum, self.learnt == 1)?
        };
        if unmoved.is_empty() { Ok(()) } else { Err(Error::NotMoved(unmoved.join(", "))) }
    }

    pub(super) fn validate(&mut self) -> Result<Option<Metrics>> {
        let Some(validation) = &self.validation else { return Ok(None) };
        let model = &self.learner.model;
        let mut meter = Meter::new(model.network.head.purpose, model.network.head.out.outputs);
        for examples in validation.examples.chunks(1024) {
            let found = predict(model, examples, Limits::default(), false)?;
            examples
                .iter()
                .zip(&found)
                .for_each(|(example, prediction)| meter.add(example, prediction));
        }
        self.last_validation = Some(meter.metrics());
        Ok(self.last_validation.clone())
    }
}

/// Scatters the bits of a number.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
