//! Methods: how examples are protected while a model is fine-tuned on them.
//!
//! A [`Procedure`] is what the training loop asks; the loop does not know which one it has.
//!
//! ```text
//! non_private.rs   shuffled batches, no noise
//! central/         a trusted curator clips, sums and perturbs gradients: DP-SGD, ANADP, Rap-FT, …
//! local/           owners perturb their own embeddings: DP-Forward, EW-FT, per-attribute MVG
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

use crate::data::{Dataset, Example};
use crate::error::Result;
use crate::evaluate::Metrics;
use crate::gradient::ClippedSum;
use crate::model::Model;
use crate::noise::Secret;
use crate::plan::{Method, Plan};
use crate::train::{Learner, Prepared, Protection, TrainingEvent};
use std::path::Path;
use undertone_accounting::Guarantee;
use undertone_run::{Claim, PerturbationFacts, Resolved, RunFolder};

/// The privacy units of a step.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Indices of the units.
    pub units: Vec<usize>,
    /// What the sum over units is divided by: under Poisson sampling the expected number of units,
    /// since the drawn number is private.
    pub divisor: f64,
}

/// Some of a step's examples, which are computed together.
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

/// What the update of a step needs besides the sum.
#[derive(Clone, Copy, Debug)]
pub struct StepInfo {
    /// The step, from 0, which names its noise.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: usize,
    /// What the sum is divided by.
    pub divisor: f64,
    /// The learning rate.
    pub learning_rate: f64,
}

/// What a procedure adds to the summary.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Mean relevance of each trainable parameter, where the method has a map that may be shown.
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// About the perturbed embeddings.
    pub perturbation: Option<PerturbationFacts>,
}

/// A method while it trains.
///
/// Implementers promise that every release about private data is recorded in the ledger before it
/// is made, and that the recorded event is no better than what is released.
pub trait Procedure {
    /// The units of a step.
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

    /// Trains in closed form, where the method does; whether it did.
    fn fit(&mut self, _learner: &mut Learner, _data: &Dataset) -> Result<bool> {
        Ok(false)
    }

    /// Adds the gradients of a micro-batch to the sum; the loss of each example.
    fn accumulate(
        &mut self,
        batch: &MicroBatch,
        learner: &Learner,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>>;

    /// Records the release of the sum, adds its noise and updates the weights, in this order.
    fn release(&mut self, sum: ClippedSum, step: &StepInfo, learner: &mut Learner) -> Result<()>;

    /// Names of trainable parameters that a sum over at least one unit does not move; `first` is
    /// set for the first such sum. Whether a private run stops here must not depend on its
    /// examples, so what is private asks only which parameters take part.
    fn unmoved(&self, learner: &Learner, sum: &ClippedSum, _first: bool) -> Result<Vec<String>> {
        Ok(learner.left_out(sum).into_iter().map(str::to_owned).collect())
    }

    /// Examples that a step counts for throughput, which is shown: a public number.
    fn counted_examples(&self, divisor: f64, _examples: usize) -> f64 {
        divisor
    }

    /// Refuses a checkpoint whose steps the ledger does not hold.
    fn check_checkpoint(&self, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// What the ledger proves so far; none without a ledger.
    fn guarantee(&self) -> Result<Option<Guarantee>>;

    /// The hash of the ledger's last line.
    fn ledger_hash(&self) -> Option<String>;

    /// What the method's own paper would claim for the whole run, in paper mode.
    fn claim(&self) -> Result<Option<Claim>>;

    /// Why the ledger's guarantee does not cover the run, if it does not.
    fn not_private_because(&self) -> Option<String>;

    /// For the summary.
    fn facts(&self) -> Facts;

    /// Whether parameters other than the trainable ones have changed, so that the whole model must
    /// be saved.
    fn changes_frozen_parameters(&self) -> bool {
        false
    }

    /// Saves what the method adds to the model.
    fn save(&self, _model: &Model, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// Metrics on texts whose embeddings are perturbed as those of the training examples.
    fn evaluate_perturbed(&self, _model: &Model, _data: &Dataset) -> Result<Option<Metrics>> {
        Ok(None)
    }
}

/// Steps and calibrated noise for so many units and classes.
pub fn calibrate(plan: &Plan, units: usize, classes: usize) -> Result<Resolved> {
    match &plan.method {
        Method::NonPrivate => Ok(non_private::calibrate(&plan.training, units)),
        Method::Central(central) => central.calibrate(&plan.training, units),
        Method::Local(local) => local.calibrate(&plan.training, units, classes),
    }
}

/// What a procedure is begun with.
pub(crate) struct Begin<'a> {
    pub plan: &'a Plan,
    /// Model and data; local methods change the model.
    pub prepared: &'a mut Prepared,
    /// Of MVG as published the noise is known only now.
    pub resolved: &'a mut Resolved,
    pub secret: &'a Secret,
    pub folder: &'a RunFolder,
    pub callback: &'a mut dyn FnMut(TrainingEvent),
}

/// Opens the ledger, makes what the method needs before its first step, and begins. The second
/// part is for the learner: what protects its gradients.
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
