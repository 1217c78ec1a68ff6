//! Local DP: the owner of an example perturbs its embedding and sends it to a provider, who sees
//! each release and knows whose it is.
//!
//! # What is proved
//!
//! The owner of example x computes rows f(x) that, divided by the direction d of the noise, have
//! Frobenius norm at most C ([`Sanitizer`](crate::model::layer::sanitizer::Sanitizer)), and sends
//! f(x) + s d ⊙ N(0, I). Dividing by d is a bijection, so this is equivalent to sending f(x)/d +
//! N(0, s² I).
//!
//! - *One release.* Replacing x moves f(x)/d by at most Δ = 2C, or √2 C if it has no negative
//!   entries: ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩ ≤ 2C². So a release is a Gaussian mechanism with μ =
//!   Δ/s. **Which other examples participate, and when, does not matter**: an example's release is
//!   observed on its own, so there is no amplification by sampling, and no accountant for sampled
//!   sums applies.
//! - *Fresh* noise in each of E epochs amounts to E releases: μ² = Σ (Δ/s_e)².
//! - *Once*: with all layers below the noise frozen, f(x) is the same in every epoch. A single
//!   release is reused in every epoch and costs privacy once.
//! - *Path*: for s_1 ≥ … ≥ s_E, let release E be f + N(0, s_E²), and let release e be release e+1
//!   plus N(0, s_e² − s_{e+1}²). The standard deviations are the scheduled ones, and every release
//!   is a function of the last one and of noise independent of x, so together they cost what the
//!   last one costs, μ = Δ/s_E. After epoch e, releases 1 … e have been made and cost μ = Δ/s_e, so
//!   the ledger entry of epoch e is the difference of the squares.
//! - *Trainable parameters*: only those above the noise, whose gradients are computed from
//!   releases. Gradients of layers below the noise, or of the encoder, are functions of the example
//!   itself; in proved mode there are none. Dropout below the noise would make f(x) differ between
//!   epochs and is rejected.
//! - *Labels* go through k-ary randomized response, once, with their own ledger entry.
//! - *Lengths*: each sequence has one row, or every sequence has the same number of rows, so that
//!   the number of tokens is hidden.

mod accounting;
mod adapt;
mod adapt_privately;
mod calibrate;
mod calibration;
mod discriminant;
mod embedding_noise;
mod encoder;
mod labels;
mod learn;
mod ledger;
mod moments;
pub mod mvg;
mod plan;
mod prepare;
mod settings;
pub mod split;

pub use embedding_noise::{BatchNoise, EmbeddingNoise, predict_perturbed};
pub use labels::RandomizedLabels;
pub use plan::{LocalMethod, LocalPlan, Target};
pub use settings::LocalSettings;

use super::ledger::not_private_because;
use super::{Begin, Facts, MicroBatch, Prepared, Procedure, Sample, TrainingEvent};
use crate::collective;
use crate::data::{Dataset, ShuffledEpochs};
use crate::error::{Error, Result};
use crate::evaluate::{Limits, Meter, Metrics};
use crate::gradient::ClippedSum;
use crate::model::Model;
use crate::model::sanitized::save_sanitizer;
use crate::noise::purpose;
use crate::plan::Plan;
use crate::step::{Cost, Learner, RunLedger, Step};
use learn::Cache;
use ledger::{PlannedRelease, releases, terms};
use prepare::Perturbation;
use std::path::Path;
use undertone_accounting::ledger::Terms;
use undertone_accounting::{Adjacency, Composition, Guarantee};
use undertone_run::{Claim, LearnerKind, Resolved};

/// Noise index of the first evaluation text. It is above those of all training examples, so that no
/// two texts share noise.
const EVALUATION_INDEX: u64 = 1 << 40;

/// The terms and all releases of a whole run, computed before it starts.
pub(crate) fn planned(
    run: &Plan,
    plan: &LocalPlan,
    prepared: &Prepared,
    resolved: &Resolved,
) -> (Terms, Composition) {
    let mut all = Composition::new(Adjacency::ReplaceOne);
    let classes = prepared.model.network.head.out.outputs;
    for PlannedRelease { event, count, .. } in taken(plan, resolved, classes) {
        all.push(event, count);
    }
    (terms(run, plan, resolved, prepared), all)
}

/// The releases that a run actually makes, in ledger order: a closed-form learner is fitted once,
/// on those of the first epoch.
fn taken(plan: &LocalPlan, resolved: &Resolved, classes: usize) -> Vec<PlannedRelease> {
    let in_one_epoch = plan.settings.learn == LearnerKind::Discriminant;
    let mut all = releases(plan, resolved, classes);
    all.retain(|release| !in_one_epoch || release.epoch == 0);
    all
}

/// A local DP method during training.
pub(super) struct Local {
    plan: LocalPlan,
    perturbation: Perturbation,
    /// All releases made by owners, in ledger order.
    releases: Vec<PlannedRelease>,
    ledger: RunLedger,
    sampler: ShuffledEpochs,
    cache: Cache,
    claim: Option<Claim>,
    seed: Option<u64>,
}

impl Local {
    pub(super) fn begin(plan: &LocalPlan, begin: Begin) -> Result<Self> {
        let terms = terms(begin.plan, plan, begin.resolved, begin.prepared);
        let classes = begin.prepared.model.network.head.out.outputs;
        let entries = taken(plan, begin.resolved, classes).len() as u64;
        let mut ledger = super::ledger::open(&begin, terms, plan.delta, entries)?;
        let Begin { plan: run, prepared, resolved, secret, tape, callback, .. } = begin;
        if let Some(message) = &ledger.warning() {
            callback(TrainingEvent::Warning { message });
        }
        let parts = prepare::Parts {
            run,
            prepared: &mut *prepared,
            resolved: &mut *resolved,
            secret,
            ledger: Some(&mut ledger),
            tape,
            callback,
        };
        let perturbation = prepare::prepare(plan, parts)?;
        let units = prepared.data.units;
        let batch = run.training.batch as usize;
        let claim = match plan.is_published() {
            false => None,
            true => plan
                .claimed_epsilon(&run.training, units)?
                .map(|epsilon| Claim { epsilon, delta: plan.delta }),
        };
        Ok(Self {
            plan: plan.clone(),
            perturbation,
            releases: releases(plan, resolved, classes),
            ledger,
            sampler: ShuffledEpochs::new(units, batch, secret.key(purpose::SAMPLING))?,
            cache: Cache::default(),
            claim,
            seed: run.training.seed,
        })
    }

    /// Records the releases up to an epoch, before any of them is made. Entries from before a crash
    /// refer to the same releases: embeddings and noise are reproduced exactly.
    fn record_until(&mut self, epoch: usize) -> Result<()> {
        for (index, release) in self.releases.iter().enumerate() {
            if release.epoch <= epoch {
                self.ledger.record(index as u64, release.event, release.count)?;
            }
        }
        Ok(())
    }
}

impl Procedure for Local {
    fn sample(&mut self, step: u64) -> Result<Sample> {
        let units = self.sampler.step(step);
        Ok(Sample { divisor: units.len() as f64, units })
    }

    fn begin_epoch(
        &mut self,
        epoch: usize,
        first: bool,
        learner: &mut Learner,
        data: &Dataset,
    ) -> Result<()> {
        self.record_until(epoch)?;
        if first {
            if self.plan.is_published() {
                // Layers below the noise have been trained since the cache was filled.
                self.cache = Cache::default();
            }
            let (model, examples) = (&mut learner.model, &data.examples);
            self.perturbation.calibrate(model, examples, &mut self.cache, epoch)?;
        }
        Ok(())
    }

    fn fit(&mut self, learner: &mut Learner, data: &Dataset) -> Result<bool> {
        if self.perturbation.learn != LearnerKind::Discriminant {
            return Ok(false);
        }
        self.begin_epoch(0, true, learner, data)?;
        self.perturbation.fit(&mut learner.model, &data.examples, &mut self.cache)?;
        Ok(true)
    }

    fn accumulate(
        &mut self,
        _step: &Step,
        batch: &MicroBatch,
        learner: &Learner,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        // With all layers below the noise frozen, embeddings do not change and can be cached.
        let cache = (!self.plan.is_published()).then_some(&mut self.cache);
        Ok(self.perturbation.accumulate(&learner.model, batch, cache, sum)?)
    }

    fn hides_lengths(&self) -> bool {
        !self.plan.is_published()
    }

    /// Nothing is released here: the update is post-processing of perturbed embeddings.
    fn release(&mut self, sum: ClippedSum, step: Step, learner: &mut Learner) -> Result<()> {
        let cost = match self.plan.is_published() {
            true => Cost::NonPrivate,
            false => Cost::PostProcessing,
        };
        learner.release(sum, step, cost)
    }

    fn record_rest(&mut self) -> Result<()> {
        self.record_until(usize::MAX)
    }

    fn check_other_ranks(&self, _steps: u64) -> Result<()> {
        Err(Error::Ranks(collective::Error::Refused(
            "perturbed embeddings were already released, and repeating them gives the same \
             releases only with the same number of ranks: resume with that number"
                .to_owned(),
        )))
    }

    fn guarantee(&self) -> Result<Option<Guarantee>> {
        self.ledger.guarantee()
    }

    fn guarantee_of_plan(&self) -> Result<Option<Guarantee>> {
        self.ledger.guarantee_of_plan()
    }

    fn spent(&mut self) -> Result<Option<f64>> {
        // The ledger grows at most once per epoch.
        self.ledger.spent()
    }

    fn ledger_hash(&self) -> Option<String> {
        self.ledger.hash()
    }

    fn claim(&self) -> Result<Option<Claim>> {
        Ok(self.claim)
    }

    fn not_private_because(&self) -> Option<String> {
        not_private_because(self.seed, self.plan.unaccounted())
    }

    fn facts(&self) -> Facts {
        Facts { perturbation: Some(self.perturbation.facts.clone()), ..Facts::default() }
    }

    fn changes_frozen_parameters(&self) -> bool {
        self.plan.adapt.is_some()
    }

    fn save(&self, model: &Model, folder: &Path) -> Result<()> {
        Ok(save_sanitizer(model, &self.perturbation.config, folder)?)
    }

    fn evaluate_perturbed(&self, model: &Model, data: &Dataset) -> Result<Option<Metrics>> {
        let head = &model.network.head;
        let mut meter = Meter::new(head.task_head, head.out.outputs);
        let (limits, noise) = (Limits::default(), &self.perturbation.noise);
        let predictions =
            predict_perturbed(model, &data.examples, limits, noise, EVALUATION_INDEX)?;
        data.examples.iter().zip(&predictions).for_each(|(example, said)| meter.add(example, said));
        Ok(Some(meter.metrics()))
    }
}
