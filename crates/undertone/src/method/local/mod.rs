//! Local DP: the owner of an example perturbs its embedding and sends it to a provider, who sees
//! each release and knows whose it is.
//!
//! # What is proved
//!
//! The owner of example x computes rows f(x) that, divided by the direction d of the noise, have
//! Frobenius norm at most C ([`Sanitiser`](crate::model::layer::sanitiser::Sanitiser)), and sends
//! f(x) + s d ⊙ N(0, I). Dividing by d is a bijection, so this is equivalent to sending
//! f(x)/d + N(0, s² I).
//!
//! - *One release.* Replacing x moves f(x)/d by at most Δ = 2C, or √2 C if it has no negative
//!   entry: ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩ ≤ 2C². So a release is a Gaussian mechanism with μ =
//!   Δ/s. **Which other examples take part, and when, does not matter**: an example's release is
//!   seen on its own, so there is no amplification by sampling, and no accountant of sampled sums
//!   applies.
//! - *Fresh* noise in each of E epochs is E releases: μ² = Σ (Δ/s_e)².
//! - *Once*: with all layers below the noise frozen, f(x) is the same in every epoch; the one
//!   release is reused in every epoch, and costs once.
//! - *Path*: for s_1 ≥ … ≥ s_E let release E be f + N(0, s_E²), and release e be release e+1 plus
//!   N(0, s_e² − s_{e+1}²). The standard deviations are the scheduled ones, and every release is a
//!   function of the last one and of noise independent of x: together they cost what the last one
//!   costs, μ = Δ/s_E. After epoch e, with releases 1 … e made, they cost μ = Δ/s_e, so the ledger
//!   entry of epoch e is the difference of the squares.
//! - *Trainable parameters*: only those above the noise, whose gradients are computed from
//!   releases. Gradients of layers below the noise, or of the encoder, are functions of the example
//!   itself; in proved mode there are none. Dropout below the noise would make f(x) differ between
//!   epochs, and is refused.
//! - *Labels* go through k-ary randomised response, once, with a ledger entry of their own.
//! - *Lengths*: one row a sequence, or the same number of rows for every sequence, so that the
//!   number of tokens is hidden.

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

pub use embedding_noise::{BatchNoise, EmbeddingNoise};
pub use labels::RandomisedLabels;
pub use plan::{LocalMethod, LocalPlan, Target};
pub use settings::LocalSettings;

use super::ledger::{RunLedger, not_private_because};
use super::{Begin, Facts, MicroBatch, Procedure, Sample, StepInfo};
use crate::collective;
use crate::data::{Dataset, ShuffledEpochs};
use crate::error::{Error, Result};
use crate::evaluate::{Limits, Meter, Metrics, predict_perturbed};
use crate::gradient::ClippedSum;
use crate::model::Model;
use crate::model::sanitised::save_sanitiser;
use crate::noise::purpose;
use crate::train::{Learner, Step, TrainingEvent};
use learn::Cache;
use ledger::{PlannedRelease, releases, terms};
use prepare::Perturbation;
use std::path::Path;
use undertone_accounting::Guarantee;
use undertone_run::{Claim, LearnerKind};

/// Noise index of the first evaluation text: above those of all training examples, so that no two
/// share their noise.
const EVALUATION_INDEX: u64 = 1 << 40;

/// A method of local DP during training.
pub(super) struct Local {
    plan: LocalPlan,
    perturbation: Perturbation,
    /// All releases that owners make, in the order of the ledger.
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
        // In closed form the model is fitted once, on the releases of the first epoch.
        let in_one_epoch = plan.settings.learn == LearnerKind::Discriminant;
        let entries = releases(plan, begin.resolved, classes)
            .iter()
            .filter(|release| !in_one_epoch || release.epoch == 0)
            .count() as u64;
        let mut ledger = RunLedger::open(&begin, terms, plan.delta, entries)?;
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
    /// are of the same releases: embeddings and noise are the same again.
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
                // Layers below the noise have been trained since.
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
        batch: &MicroBatch,
        learner: &Learner,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        // With all layers below the noise frozen, embeddings do not change.
        let cache = (!self.plan.is_published()).then_some(&mut self.cache);
        Ok(self.perturbation.accumulate(&learner.model, batch, cache, sum)?)
    }

    fn hides_lengths(&self) -> bool {
        !self.plan.is_published()
    }

    /// Nothing is released here: the update is post-processing of perturbed embeddings.
    fn release(&mut self, sum: ClippedSum, step: &StepInfo, learner: &mut Learner) -> Result<()> {
        learner.update(sum, &Step::of(step, 0.0))
    }

    fn record_rest(&mut self) -> Result<()> {
        self.record_until(usize::MAX)
    }

    fn check_other_ranks(&self, _steps: u64) -> Result<()> {
        Err(Error::Ranks(collective::Error::Refused(
            "perturbed embeddings were released, and are the same again with as many ranks as \
             before only: resume with as many"
                .to_owned(),
        )))
    }

    fn guarantee(&self) -> Result<Option<Guarantee>> {
        self.ledger.guarantee()
    }

    fn spent(&mut self) -> Result<Option<f64>> {
        // The ledger grows once an epoch at most.
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
        Ok(save_sanitiser(model, &self.perturbation.config, folder)?)
    }

    fn evaluate_perturbed(&self, model: &Model, data: &Dataset) -> Result<Option<Metrics>> {
        let head = &model.network.head;
        let mut meter = Meter::new(head.task_head, head.out.outputs);
        let (limits, noise) = (Limits::default(), &self.perturbation.noise);
        let found = predict_perturbed(model, &data.examples, limits, noise, EVALUATION_INDEX)?;
        data.examples.iter().zip(&found).for_each(|(example, said)| meter.add(example, said));
        Ok(Some(meter.metrics()))
    }
}
