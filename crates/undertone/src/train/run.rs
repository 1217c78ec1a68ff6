//! A run from beginning to end.

use super::checkpoint::{self, Identity};
use super::error::{Error, Result};
use super::folder::RunFolder;
use super::learner::{Learner, Step};
use super::plan::{Plan, Resolved};
use super::record::{Record, Records};
use super::summary::{Counts, Measured, Summary, Throughput, peak_memory};
use crate::data::{
    Batch, Dataset, Format, Labels, Members, Options, PoissonSampler, ShuffledEpochs, Tokeniser, Unit,
    micro_batches,
};
use crate::evaluate::{Limits, Meter, Metrics, predict};
use crate::gradient::ClippedSum;
use crate::mechanism::{Noise, Secret};
use crate::model::folder::{Config, LoadOptions, load, locate, save, write_atomically, write_json};
use crate::model::tuning::{Tuning, save_adapter};
use crate::model::{Origin, Purpose};
use crate::tensor::Place;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{Adjacency, Event, Guarantee, Mode, Part, Threat};

/// Keys of the run's secret; the noise has 1.
mod purpose {
    pub const SAMPLING: u64 = 2;
    pub const INITIAL_VALUES: u64 = 3;
    pub const DROPOUT: u64 = 4;
}

/// What is told to whoever watches.
#[derive(Debug)]
pub enum News<'a> {
    /// Everything is loaded and calibrated.
    Ready {
        /// What the plan came to.
        resolved: &'a Resolved,
        /// Examples in the training file.
        examples: usize,
        /// Numbers trained, and all.
        parameters: Counts,
        /// Steps already taken by the run that is resumed.
        done: u64,
        /// Steps in all.
        steps: u64,
    },
    /// A step was taken.
    Step {
        /// What was written down about it.
        record: &'a Record,
        /// Examples computed since the start, and for how long.
        throughput: Throughput,
        /// ε spent so far, when it was last computed.
        epsilon: Option<f64>,
    },
}

/// How a run is started.
#[derive(Debug)]
pub struct Start<'a> {
    /// What it is.
    pub plan: Plan,
    /// Where it is kept.
    pub out: &'a Path,
    /// Whether it goes on with what is there.
    pub resume: bool,
    /// Where it computes.
    pub place: Place,
}

/// How often ε is computed for those who watch.
const EPSILON_EVERY: Duration = Duration::from_secs(10);
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// Trains, and leaves the run's folder behind.
pub fn train(start: Start, watch: &mut dyn FnMut(News)) -> Result<Summary> {
    let folder = if start.resume { RunFolder::open(start.out)? } else { RunFolder::create(start.out)? };
    if folder.summary().exists() {
        return Err(Error::folder(start.out, "is finished; there is nothing to resume"));
    }
    let plan = start.plan;
    let begun = start.resume && (folder.ledger().exists() || folder.checkpoint().exists());
    let secret = match plan.training.seed {
        Some(seed) => Secret::from_seed(seed),
        None if begun => folder.secret()?,
        None => Secret::from_system()?,
    };
    let prepared = Prepared::load(&plan, &secret, &start.place)?;
    let resolved = plan.resolve(prepared.data.units)?;
    // Before the ledger: a run that breaks off here is begun anew by --resume, and has released nothing.
    if !begun {
        if plan.training.seed.is_none() {
            folder.keep_secret(&secret)?;
        }
        write_plan(&folder, &plan, &resolved)?;
    }
    let ledger =
        if plan.is_private() { Some(open_ledger(&folder, &plan, &resolved, &prepared)?) } else { None };
    let mut run = Run::new(folder, plan, resolved, prepared, secret, ledger)?;
    if start.resume && run.folder.checkpoint().exists() {
        run.done = checkpoint::load(&run.folder.checkpoint(), &mut run.learner, &run.identity)?;
    }
    run.all_steps(watch)?;
    run.finish()
}

/// Model and data, ready to begin.
struct Prepared {
    learner: Learner,
    data: Dataset,
    validation: Option<Dataset>,
    origin: PathBuf,
    labels_were_found: bool,
}

impl Prepared {
    fn load(plan: &Plan, secret: &Secret, place: &Place) -> Result<Self> {
        let name = plan.model.path.as_deref().or(plan.model.hub.as_deref()).unwrap_or_default();
        let origin = locate(name)?;
        let (labels, labels_were_found) = labels(plan, &origin)?;
        let seed = u64::from_le_bytes(std::array::from_fn(|i| secret.key(purpose::INITIAL_VALUES)[i]));
        let options = LoadOptions {
            purpose: Some(plan.purpose()),
            labels: labels.as_ref().map(|labels| labels.names().to_vec()),
            seed,
        };
        let mut model = load(&origin, &options)?;
        plan.model.tuning.apply(&mut model, seed)?;
        model.to_place(place)?;
        let tokeniser = model.tokeniser(&origin, plan.data.max_tokens)?;
        let read = |path: &Path, unit: Unit, tokeniser: &Tokeniser| -> Result<Dataset> {
            let options =
                Options { format: plan.data.format, unit, long_texts: plan.data.long_texts, progress: true };
            Ok(Dataset::load(path, &plan.task(), tokeniser, labels.clone(), &options)?)
        };
        let data = read(&plan.data.train, plan.unit(), &tokeniser)?;
        let validation =
            plan.data.validation.as_ref().map(|path| read(path, Unit::Row, &tokeniser)).transpose()?;
        let protection = plan.is_private().then(|| (plan.privacy.clip, Noise::new(secret)));
        let learner = Learner::new(model, plan.optimiser(), protection);
        Ok(Self { learner, data, validation, origin, labels_were_found })
    }
}

/// The labels that are given, that a finished classifier has, or that the training file holds; and whether they were found there.
fn labels(plan: &Plan, origin: &Path) -> Result<(Option<Labels>, bool)> {
    if plan.purpose() != Purpose::SequenceClassification {
        return Ok((None, false));
    }
    if let Some(names) = &plan.data.labels {
        return Ok((Some(Labels::given(names.clone())?), false));
    }
    let config = Config::read(origin)?;
    let classifies = config.architecture().is_some_and(|class| class.ends_with("ForSequenceClassification"));
    if let Some(names) = config.labels()?.filter(|_| classifies) {
        return Ok((Some(Labels::given(names)?), false));
    }
    let path = &plan.data.train;
    let found = Labels::from_file(path, Format::of(path, plan.data.format)?, &plan.data.label)?;
    Ok((Some(found), true))
}

fn event(resolved: &Resolved, noise_multiplier: f64) -> Event {
    Event::PoissonGaussian { noise_multiplier, sampling_rate: resolved.sampling_rate.unwrap_or(1.0) }
}

fn open_ledger(folder: &RunFolder, plan: &Plan, resolved: &Resolved, prepared: &Prepared) -> Result<Ledger> {
    let least = resolved.noise_multipliers.iter().copied().fold(f64::INFINITY, f64::min);
    let mut assumptions = vec![
        format!("the number of units in the training file ({}) is public", resolved.units),
        "the model that the run began from does not depend on the training file".to_owned(),
        "metrics.jsonl, secret.key and the progress that was shown are not released: they are computed from the data without noise".to_owned(),
    ];
    if prepared.labels_were_found {
        let names = prepared.data.labels.as_ref().map(|labels| labels.names().join(", ")).unwrap_or_default();
        assumptions.push(format!("the labels ({names}), which were found in the training file, are public"));
    }
    if let Some(seed) = plan.training.seed {
        assumptions.insert(0, format!("NOT PRIVATE: nobody knows the seed of the noise; but it is {seed}"));
    }
    let terms = Terms {
        unit: if plan.data.author.is_some() {
            undertone_accounting::Unit::User
        } else {
            undertone_accounting::Unit::Example
        },
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: Mode::Proved,
        assumptions,
        announced: vec![Part { event: event(resolved, least), count: 1 }],
    };
    let path = folder.ledger();
    if !path.exists() {
        return Ok(Ledger::create(&path, terms)?);
    }
    let ledger = Ledger::open(&path)?;
    if *ledger.terms() != terms {
        return Err(Error::folder(
            &path,
            "was begun with another plan or other data; resume with what the run began with",
        ));
    }
    Ok(ledger)
}

fn write_plan(folder: &RunFolder, plan: &Plan, resolved: &Resolved) -> Result<()> {
    #[derive(serde::Serialize)]
    struct Answer<'a> {
        resolved: &'a Resolved,
    }
    let unwritable = |e: toml::ser::Error| Error::folder(&folder.plan(), format!("cannot be written: {e}"));
    let text = toml::to_string(plan).map_err(unwritable)?;
    let answer = toml::to_string(&Answer { resolved }).map_err(unwritable)?;
    Ok(write_atomically(&folder.plan(), |out| {
        write!(out, "{text}\n# What it came to on the data; read by nobody.\n{answer}")
    })?)
}

/// Which units a step takes.
enum Sampler {
    Poisson(PoissonSampler),
    Shuffled(ShuffledEpochs),
}

struct Run {
    folder: RunFolder,
    plan: Plan,
    resolved: Resolved,
    learner: Learner,
    data: Dataset,
    members: Members,
    validation: Option<Dataset>,
    origin: PathBuf,
    sampler: Sampler,
    dropout_key: u64,
    ledger: Option<Ledger>,
    identity: Identity,
    /// Steps taken.
    done: u64,
    /// Steps in which there was something to learn, of this process.
    learnt: u64,
    examples: u64,
    time: Duration,
    last_validation: Option<Metrics>,
}

impl Run {
    fn new(
        folder: RunFolder,
        plan: Plan,
        resolved: Resolved,
        prepared: Prepared,
        secret: Secret,
        ledger: Option<Ledger>,
    ) -> Result<Self> {
        let Prepared { learner, data, validation, origin, .. } = prepared;
        let key = secret.key(purpose::SAMPLING);
        let sampler = match resolved.sampling_rate {
            Some(rate) => Sampler::Poisson(PoissonSampler::new(data.units, rate, key)?),
            None => Sampler::Shuffled(ShuffledEpochs::new(data.units, plan.training.batch as usize, key)?),
        };
        let dropout_key = u64::from_le_bytes(std::array::from_fn(|i| secret.key(purpose::DROPOUT)[i]));
        let identity = identity(&plan, &data);
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
            identity,
            done: 0,
            learnt: 0,
            examples: 0,
            time: Duration::ZERO,
            last_validation: None,
        })
    }

    fn steps(&self) -> u64 {
        self.resolved.steps_per_epoch * u64::from(self.plan.training.epochs)
    }

    fn counts(&self) -> Counts {
        let (trainable, total) = self.learner.model.parameters.count();
        Counts { trainable, total }
    }

    fn throughput(&self) -> Throughput {
        let seconds = self.time.as_secs_f64();
        Throughput { examples_per_second: self.examples as f64 / seconds.max(1e-9), seconds }
    }

    fn guarantee(&self) -> Result<Option<Guarantee>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        Ok(Some(ledger.guarantee(self.plan.privacy.delta.unwrap_or_default())?))
    }

    fn all_steps(&mut self, watch: &mut dyn FnMut(News)) -> Result<()> {
        let metrics = self.folder.metrics();
        let mut records = Records::open(&metrics, self.done)?;
        watch(News::Ready {
            resolved: &self.resolved,
            examples: self.data.examples.len(),
            parameters: self.counts(),
            done: self.done,
            steps: self.steps(),
        });
        let (mut saved, mut asked) = (Instant::now(), Instant::now());
        let mut spent = None;
        while self.done < self.steps() {
            let begun = Instant::now();
            let mut record = self.step()?;
            self.time += begun.elapsed();
            if self.done.is_multiple_of(self.resolved.steps_per_epoch) {
                record.validation = self.validate()?;
                record.epsilon = self.guarantee()?.map(|guarantee| guarantee.epsilon.upper);
                spent = record.epsilon;
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
                checkpoint::save(&self.folder.checkpoint(), &self.learner, self.done, &self.identity)?;
                saved = Instant::now();
            }
        }
        Ok(())
    }

    /// One step: what is released is in the ledger before anything else happens.
    fn step(&mut self) -> Result<Record> {
        let step = self.done;
        let epoch = step / self.resolved.steps_per_epoch;
        let noise_multiplier = self.resolved.noise_multipliers.get(epoch as usize).copied().unwrap_or(0.0);
        if let Some(ledger) = &mut self.ledger
            // A step that a crash lost after its entry was written is taken again with the same sample and the same noise: it is the same
            // release, and nobody has seen it.
            && ledger.entries() <= step
        {
            ledger.append(event(&self.resolved, noise_multiplier), 1)?;
        }
        let units = match &mut self.sampler {
            Sampler::Poisson(sampler) => sampler.step(step),
            Sampler::Shuffled(epochs) => epochs.step(step),
        };
        let chosen = self.members.of_units(&units);
        let mut sum = self.learner.start();
        let mut losses = 0.0;
        let compute = &self.plan.compute;
        let pieces = micro_batches(&chosen, &self.data.examples, compute.micro_batch, compute.micro_tokens);
        for (i, piece) in pieces.iter().enumerate() {
            let batch = Batch::pack(piece.iter().map(|&example| &self.data.examples[example]));
            let dropout = self.plan.training.dropout.then(|| mix(self.dropout_key ^ mix(step) ^ i as u64));
            let found = self.learner.accumulate(&batch, dropout, &mut sum)?;
            losses += found.iter().map(|&loss| f64::from(loss)).sum::<f64>();
        }
        self.check_that_all_moves(&sum, chosen.len())?;
        let clipped = sum.clipped().clone();
        let training = &self.plan.training;
        let rate = training.learning_rate
            * training.learning_rate_schedule.share(step, self.steps(), training.warmup);
        let divisor = match self.resolved.sampling_rate {
            // The expected number of units, not the number that happened to be drawn: that one is private.
            Some(rate) => rate * self.data.units as f64,
            None => units.len() as f64,
        };
        self.learner.update(sum, &Step { number: step, noise_multiplier, divisor, rate })?;
        self.done += 1;
        self.examples += chosen.len() as u64;
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
        })
    }

    /// In the first step every trainable parameter must have a gradient; those beside the model, half of which begin with none, by the second.
    fn check_that_all_moves(&mut self, sum: &ClippedSum, examples: usize) -> Result<()> {
        if examples == 0 || self.learnt > 1 {
            return Ok(());
        }
        self.learnt += 1;
        let mut still = Vec::new();
        for id in self.learner.trainable() {
            let parameter = self.learner.model.parameters.get(id);
            let excused = parameter.origin == Origin::Adapter && self.learnt == 1;
            let moves = match sum.get(id) {
                Some(sum) => sum.to_vec().map_err(crate::model::Error::from)?.iter().any(|&x| x != 0.0),
                None => false,
            };
            let excused = excused && sum.get(id).is_some();
            if !moves && !excused {
                still.push(parameter.name.clone());
            }
        }
        if still.is_empty() { Ok(()) } else { Err(Error::NotMoved(still.join(", "))) }
    }

    fn validate(&mut self) -> Result<Option<Metrics>> {
        let Some(validation) = &self.validation else { return Ok(None) };
        let model = &self.learner.model;
        let mut meter = Meter::new(model.network.head.purpose, model.network.head.out.outputs);
        for examples in validation.examples.chunks(1024) {
            let found = predict(model, examples, Limits::default(), false)?;
            examples.iter().zip(&found).for_each(|(example, prediction)| meter.add(example, prediction));
        }
        self.last_validation = Some(meter.metrics());
        Ok(self.last_validation.clone())
    }

    /// Writes the model and, last, the summary.
    fn finish(mut self) -> Result<Summary> {
        if self.last_validation.is_none() {
            self.validate()?;
        }
        let model = &self.learner.model;
        let out = self.folder.path();
        match self.plan.model.tuning {
            Tuning::Full => save(model, &out.join("model"), Some(&self.origin))?,
            _ => save_adapter(model, &out.join("adapter"), &self.origin.display().to_string())?,
        }
        let not_private_because = match (self.plan.is_private(), self.plan.training.seed) {
            (false, _) => Some("the method is \"none\": no noise was added".to_owned()),
            (true, Some(seed)) => {
                Some(format!("whoever knows the seed ({seed}) can take the noise off again"))
            }
            (true, None) => None,
        };
        let selection = match &self.plan.data.validation {
            Some(path) => format!(
                "{} was used to report, not to choose; if it is private, what is reported about it is not covered by the guarantee",
                path.display()
            ),
            None => "no other data were used".to_owned(),
        };
        let summary = Summary {
            private: not_private_because.is_none(),
            not_private_because,
            guarantee: self.guarantee()?,
            metrics: Measured { validation: self.last_validation.clone() },
            selection,
            throughput: self.throughput(),
            peak_memory_bytes: peak_memory(),
            steps: self.done,
            parameters: self.counts(),
            resolved: self.resolved.clone(),
            ledger_hash: self.ledger.as_ref().map(|ledger| ledger.hash().to_owned()),
            plan: self.plan.clone(),
        };
        self.folder.forget_secret()?;
        write_json(&self.folder.summary(), &summary)?;
        Ok(summary)
    }
}

/// Scatters the bits of a number.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The plan without what may change on the way, the tokens that are trained on, and what decides the last digits.
fn identity(plan: &Plan, data: &Dataset) -> Identity {
    let mut plan = plan.clone();
    plan.compute.checkpoint_every = None;
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(&plan).unwrap_or_default());
    for example in &data.examples {
        hash.update(example.unit.to_le_bytes());
        hash.update((example.tokens.len() as u64).to_le_bytes());
        example.tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        hash.update(format!("{:?}", example.target));
    }
    let run = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = format!(
        "undertone {}, {} threads, {}",
        env!("CARGO_PKG_VERSION"),
        rayon::current_num_threads(),
        crate::tensor::kernels()
    );
    Identity { run, machine }
}
