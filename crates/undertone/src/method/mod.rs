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
//! Each of the two private folders contains its part of the plan (`plan.rs`), its calibration
//! (`calibrate.rs`), its ledger terms (`ledger.rs`) and its releases.

pub mod central;
mod event;
mod ledger;
pub mod local;
mod non_private;
mod prepared;
mod schedule;

pub use event::{SpentEpsilon, TrainingEvent};
pub(crate) use ledger::unit;
pub(crate) use prepared::{Prepared, PublicData};
pub use schedule::Schedule;

use crate::collective::Ranks;
use crate::data::{Batch, Dataset, Example};
use crate::error::Result;
use crate::evaluate::{Metrics, UnitValues};
use crate::gradient::ClippedSum;
use crate::model::Model;
use crate::noise::Secret;
use crate::plan::{Method, Plan, Population};
use crate::replay::Tape;
use crate::step::{Learner, Protection, Step};
use std::path::Path;
use undertone_accounting::Guarantee;
use undertone_accounting::ledger::Ledger;
use undertone_run::{Claim, PerturbationFacts, ReleasedMetric, RelevanceCost, Resolved, RunFolder};

/// The privacy units on which a step is computed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Indices of the units.
    pub units: Vec<usize>,
    /// Divisor of the sum over units. Under Poisson sampling, this is the expected number of units,
    /// since the number of sampled units is private.
    pub divisor: f64,
}

/// A micro-batch: examples of a step that share one forward and backward pass.
#[derive(Clone, Copy, Debug)]
pub struct MicroBatch<'a> {
    /// Indices of the examples.
    pub indices: &'a [usize],
    /// All examples of the training file.
    pub examples: &'a [Example],
    /// The epoch, starting at 0.
    pub epoch: usize,
    /// Seed of the dropout masks; `None` if dropout is off.
    pub dropout_seed: Option<u64>,
}

/// Facts that a procedure adds to the run's summary.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Mean relevance of each trainable parameter, if the method has released a relevance map.
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// The cost of the relevance map.
    pub relevance_cost: Option<RelevanceCost>,
    /// Facts about the perturbed embeddings.
    pub perturbation: Option<PerturbationFacts>,
}

/// A method during training.
///
/// Implementers promise to record every release of private data in the ledger before making it, and
/// that the recorded event costs at least as much privacy as the release.
pub trait Procedure {
    /// The privacy units of a step.
    fn sample(&mut self, step: u64) -> Result<Sample>;

    /// Called before every step. `first` is set for the first step of an epoch, and for the first
    /// step of a process that resumes within an epoch.
    fn begin_epoch(
        &mut self,
        _epoch: usize,
        _first: bool,
        _learner: &mut Learner,
        _data: &Dataset,
    ) -> Result<()> {
        Ok(())
    }

    /// Fits the model in closed form. Returns false if the method trains by gradients instead.
    fn fit(&mut self, _learner: &mut Learner, _data: &Dataset) -> Result<bool> {
        Ok(false)
    }

    /// The noise multiplier that the ledger states for the steps of an epoch (starting at 0); 0 for
    /// methods that add no noise to gradients.
    fn noise_multiplier(&self, _epoch: usize) -> f64 {
        0.0
    }

    /// Adds the gradients of a micro-batch to the sum and returns the loss of each example.
    fn accumulate(
        &mut self,
        step: &Step,
        batch: &MicroBatch,
        learner: &Learner,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        let packed = Batch::pack(batch.indices.iter().map(|&i| &batch.examples[i]));
        Ok(learner.accumulate(step, &packed, batch.dropout_seed, sum)?)
    }

    /// Whether the order of a step's examples must be independent of their texts. In local DP, a
    /// step is a function of the released values, which do not reveal the length of a text.
    fn hides_lengths(&self) -> bool {
        false
    }

    /// Records the release of the sum, adds its noise and updates the weights, in this order.
    fn release(&mut self, sum: ClippedSum, step: Step, learner: &mut Learner) -> Result<()>;

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

    /// Number of examples that a step adds to the throughput. The throughput is displayed, so this
    /// number must be public.
    fn counted_examples(&self, divisor: f64, _examples: usize) -> f64 {
        divisor
    }

    /// Whether a metric on private validation data is released after this epoch, starting at 1.
    fn releases_metrics(&self, _epoch: u64) -> bool {
        false
    }

    /// Releases the metric of an epoch, which the ledger already has.
    fn release_metric(
        &mut self,
        _epoch: u64,
        _values: &UnitValues,
    ) -> Result<Option<ReleasedMetric>> {
        Ok(None)
    }

    /// Records all remaining planned releases, although they are not made, before a run stops
    /// early: see `train/early_stop.rs`.
    fn record_rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// Rejects a checkpoint taken after more steps than the ledger has recorded.
    fn check_checkpoint(&self, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// Refuses to resume after `steps` steps with a different number of ranks if a release would be
    /// repeated. A different number of ranks rounds sums differently; with the same noise on a
    /// different sum, the two releases together would cost more than the one that is recorded.
    fn check_other_ranks(&self, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// The guarantee for all releases so far; `None` without a ledger, and on ranks other than 0.
    fn guarantee(&self) -> Result<Option<Guarantee>>;

    /// The guarantee after the last planned release; `None` if all releases have been made, without
    /// a ledger, and on ranks other than 0.
    fn guarantee_of_plan(&self) -> Result<Option<Guarantee>> {
        Ok(None)
    }

    /// An upper bound on ε for all releases so far, requested after every step: at least the
    /// ledger's ε, and at most 2 % above it. `None` without a ledger, and if the noise of a step is
    /// known only when the step is taken (paper mode): ε must then be computed from the ledger,
    /// which takes time.
    fn spent(&mut self) -> Result<Option<f64>>;

    /// The hash of the ledger's last line.
    fn ledger_hash(&self) -> Option<String>;

    /// The (ε, δ) that the method's paper would claim for the whole run, in paper mode.
    fn claim(&self) -> Result<Option<Claim>>;

    /// The reason why the ledger's guarantee does not cover the run, if there is one.
    fn not_private_because(&self) -> Option<String>;

    /// Facts for the run's summary.
    fn facts(&self) -> Facts;

    /// Whether frozen parameters have changed, so that the whole model must be saved.
    fn changes_frozen_parameters(&self) -> bool {
        false
    }

    /// Saves the method's additions to the model, such as the sanitizer, in the model's folder.
    fn save(&self, _model: &Model, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// In local DP, metrics on perturbed embeddings of `data`, with the noise of training.
    fn evaluate_perturbed(&self, _model: &Model, _data: &Dataset) -> Result<Option<Metrics>> {
        Ok(None)
    }
}

/// Steps and calibrated noise multipliers for given numbers of privacy units, examples and
/// classes.
pub fn calibrate(
    plan: &Plan,
    population: impl Into<Population>,
    classes: usize,
) -> Result<Resolved> {
    let population = population.into();
    let units = population.units;
    match &plan.method {
        Method::NonPrivate => Ok(non_private::calibrate(&plan.training, units)),
        Method::Central(central) => central.calibrate(&plan.training, population),
        Method::Local(local) => local.calibrate(&plan.training, units, classes),
    }
}

/// The ledger that a run will have after its last release. `None` for a non-private run, and in
/// paper mode, where the noise of a step is known only when the step is taken.
pub(crate) fn planned(plan: &Plan, prepared: &Prepared, resolved: &Resolved) -> Option<Ledger> {
    let (terms, releases) = match &plan.method {
        Method::Central(central) if !central.is_published() => {
            central::planned(plan, central, prepared, resolved)
        }
        Method::Local(local) if !local.is_published() => {
            local::planned(plan, local, prepared, resolved)
        }
        _ => return None,
    };
    Some(Ledger::of_plan("this run", terms, releases))
}

/// Arguments of [`begin`].
pub(crate) struct Begin<'a> {
    pub plan: &'a Plan,
    /// Model and data; local methods modify the model.
    pub prepared: &'a mut Prepared,
    /// Modified by MVG as published, whose noise depends on the model.
    pub resolved: &'a mut Resolved,
    pub secret: &'a Secret,
    /// The run folder, on rank 0.
    pub folder: Option<&'a RunFolder>,
    pub ranks: &'a Ranks,
    /// Records releases before noise is added, or replays another run.
    pub tape: Option<&'a Tape>,
    pub callback: &'a mut dyn FnMut(TrainingEvent),
}

/// Opens the ledger, makes the releases that precede the first step, and returns the procedure. The
/// [`Protection`] (clipping and noise) is for the learner of methods that perturb gradients.
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
