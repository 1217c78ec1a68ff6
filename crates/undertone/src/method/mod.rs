//! Methods: how examples are protected while a model is fine-tuned on them.
//!
//! The training loop calls a [`Procedure`] and does not know which method it runs.
//!
//! ```text
//! non_private.rs   shuffled batches, no noise
//! central/         a trusted curator clips, sums and perturbs gradients: DP-SGD, ANADP, Rap-FT, …
//! local/           local DP: owners perturb their embeddings: DP-Forward, EW-FT, MVG
//! ```
//!
//! Each of the two private folders has its part of the plan (`plan.rs`), its calibration
//! (`calibrate.rs`), its ledger terms (`ledger.rs`) and its releases.

pub mod central;
mod ledger;
pub mod local;
mod non_private;
mod release;
mod schedule;

pub use release::{Coordinates, GradientRelease, Released};
pub use schedule::Schedule;

use crate::collective::Ranks;
use crate::data::{Batch, Dataset, Example};
use crate::error::Result;
use crate::evaluate::Metrics;
use crate::gradient::ClippedSum;
use crate::model::Model;
use crate::noise::Secret;
use crate::plan::{Method, Plan};
use crate::replay::Tape;
use crate::train::{Learner, Prepared, Protection, TrainingEvent};
use std::path::Path;
use undertone_accounting::Guarantee;
use undertone_run::{Claim, PerturbationFacts, RelevanceCost, Resolved, RunFolder};

/// The privacy units that a step is computed on.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Indices of the units.
    pub units: Vec<usize>,
    /// Divisor of the sum over units. Under Poisson sampling it is the expected number of units,
    /// since the number that was drawn is private.
    pub divisor: f64,
}

/// A micro-batch: examples of a step that share one forward and backward pass.
#[derive(Clone, Copy, Debug)]
pub struct MicroBatch<'a> {
    /// Indices of the examples.
    pub indices: &'a [usize],
    /// All examples of the training file.
    pub examples: &'a [Example],
    /// The epoch, from 0.
    pub epoch: usize,
    /// Seed of the dropout masks; none if dropout is off.
    pub dropout_seed: Option<u64>,
}

/// Arguments of [`Procedure::release`] besides the sum.
#[derive(Clone, Copy, Debug)]
pub struct StepInfo {
    /// Index of the step, from 0; its noise is a function of it.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: usize,
    /// Divisor of the sum.
    pub divisor: f64,
    pub learning_rate: f64,
}

/// Facts that a procedure adds to the run's summary.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Mean relevance of each trainable parameter, where the method has released a relevance map.
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// What a relevance map cost.
    pub relevance_cost: Option<RelevanceCost>,
    /// About the perturbed embeddings.
    pub perturbation: Option<PerturbationFacts>,
}

/// A method during training.
///
/// Implementers promise that every release about private data is recorded in the ledger before it
/// is made, and that the recorded event costs at least as much privacy as the release.
pub trait Procedure {
    /// The privacy units of a step.
    fn sample(&mut self, step: u64) -> Result<Sample>;

    /// Called before every step. `first` is set for the first step of an epoch, and for the first
    /// of a process that resumes within one.
    fn begin_epoch(
        &mut self,
        _epoch: usize,
        _first: bool,
        _learner: &mut Learner,
        _data: &Dataset,
    ) -> Result<()> {
        Ok(())
    }

    /// Fits the model in closed form; returns false if the method trains by gradients instead.
    fn fit(&mut self, _learner: &mut Learner, _data: &Dataset) -> Result<bool> {
        Ok(false)
    }

    /// Adds the gradients of a micro-batch to the sum; returns the loss of each example.
    fn accumulate(
        &mut self,
        batch: &MicroBatch,
        learner: &Learner,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        let packed = Batch::pack(batch.indices.iter().map(|&i| &batch.examples[i]));
        Ok(learner.accumulate(&packed, batch.dropout_seed, sum)?)
    }

    /// Whether the order of a step's examples must not depend on their texts: in local DP the step is
    /// a function of what was released, which does not show how long a text is.
    fn hides_lengths(&self) -> bool {
        false
    }

    /// Records the release of the sum, adds its noise and updates the weights, in this order.
    fn release(&mut self, sum: ClippedSum, step: &StepInfo, learner: &mut Learner) -> Result<()>;

    /// Names of trainable parameters that have no gradient in a sum over at least one unit; `first`
    /// is set for the first such sum. Whether a private run stops here must not depend on its
    /// examples, so private methods check only which parameters are connected to the loss.
    fn without_gradient(
        &self,
        learner: &Learner,
        sum: &ClippedSum,
        _first: bool,
    ) -> Result<Vec<String>> {
        Ok(learner.unconnected(sum).into_iter().map(str::to_owned).collect())
    }

    /// Number of examples that a step adds to the throughput, which is shown and so must be public.
    fn counted_examples(&self, divisor: f64, _examples: usize) -> f64 {
        divisor
    }

    /// Records all planned releases that are not made, before a run stops early: see
    /// `train/early_stop.rs`.
    fn record_rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// Refuses a checkpoint taken after more steps than the ledger has recorded.
    fn check_checkpoint(&self, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// Refuses to go on after `steps` steps with another number of ranks, whose sums are rounded
    /// in another way, if a release that was made would be made again: with the same noise on a
    /// sum that differs, the two together would cost more than the one that is recorded.
    fn check_other_ranks(&self, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// The guarantee of all releases so far; none without a ledger, and on other ranks than 0.
    fn guarantee(&self) -> Result<Option<Guarantee>>;

    /// An upper bound on ε of all releases so far, asked after every step: at least the ledger's,
    /// and at most 2 % above it. None without a ledger, and where the noise of a step is known only
    /// when it is taken (paper mode): the ledger must then be asked, which takes time.
    fn spent(&mut self) -> Result<Option<f64>>;

    /// The hash of the ledger's last line.
    fn ledger_hash(&self) -> Option<String>;

    /// The (ε, δ) that the method's paper would claim for the whole run, in paper mode.
    fn claim(&self) -> Result<Option<Claim>>;

    /// Why the ledger's guarantee does not cover the run, if it does not.
    fn not_private_because(&self) -> Option<String>;

    /// Facts for the run's summary.
    fn facts(&self) -> Facts;

    /// Whether parameters other than the trainable ones have changed, so that the whole model must
    /// be saved.
    fn changes_frozen_parameters(&self) -> bool {
        false
    }

    /// Saves what the method adds to the model, such as the sanitiser, to the model's folder.
    fn save(&self, _model: &Model, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// Metrics on perturbed embeddings of `data`, with the noise of training, in local DP.
    fn evaluate_perturbed(&self, _model: &Model, _data: &Dataset) -> Result<Option<Metrics>> {
        Ok(None)
    }
}

/// Steps and calibrated noise multipliers for a number of privacy units and classes.
pub fn calibrate(plan: &Plan, units: usize, classes: usize) -> Result<Resolved> {
    match &plan.method {
        Method::NonPrivate => Ok(non_private::calibrate(&plan.training, units)),
        Method::Central(central) => central.calibrate(&plan.training, units),
        Method::Local(local) => local.calibrate(&plan.training, units, classes),
    }
}

/// Arguments of [`begin`].
pub(crate) struct Begin<'a> {
    pub plan: &'a Plan,
    /// Model and data; local methods change the model.
    pub prepared: &'a mut Prepared,
    /// Changed by MVG as published, whose noise depends on the model.
    pub resolved: &'a mut Resolved,
    pub secret: &'a Secret,
    /// The run folder, on rank 0.
    pub folder: Option<&'a RunFolder>,
    pub ranks: &'a Ranks,
    /// Records releases before noise is added, or replays another run.
    pub tape: Option<&'a Tape>,
    pub callback: &'a mut dyn FnMut(TrainingEvent),
}

/// Opens the ledger, makes the releases that come before the first step, and returns the procedure.
/// The [`Protection`] (clipping and noise) is for the learner of methods that perturb gradients.
pub(crate) fn begin(begin: Begin) -> Result<(Box<dyn Procedure>, Option<Protection>)> {
    match &begin.plan.method {
        Method::NonPrivate => Ok((Box::new(non_private::NonPrivate::begin(&begin)?), None)),
        Method::Central(plan) => {
            let (procedure, protection) = central::Central::begin(plan, begin)?;
            Ok((Box::new(procedure), Some(protection)))
        }
        Method::Local(plan) => Ok((Box::new(local::Local::begin(plan, begin)?), None)),
    }
}
