//! Central DP: a trusted curator clips each unit's gradient, sums over a Poisson sample and adds
//! Gaussian noise. The adversary sees every released update and the final weights.
//!
//! ```text
//! plan.rs        the method's part of the plan        calibrate.rs  noise for a budget
//! ledger.rs      terms and events                     relevance.rs  Rap-FT's relevance map
//! allocation.rs  the lemma with weights, and the trait that every allocation implements
//! dp_sgd.rs  adaclip.rs  anadp.rs  importance/  rap_ft.rs       one allocation each
//! ```

mod adaclip;
mod allocation;
mod anadp;
mod calibrate;
mod dp_sgd;
mod importance;
mod ledger;
mod plan;
mod rap_ft;
mod relevance;

pub use adaclip::Adaclip;
pub(crate) use allocation::no_less;
pub use allocation::{Allocation, AllocationMethod, Allocator, NoiseWeights, Published};
pub use anadp::{Anadp, PublishedAnadp};
pub use dp_sgd::DpSgd;
pub use importance::ImportanceSettings;
pub use plan::{AllocationPlan, Budget, CentralPlan, MapSource, RapFtPlan};
pub use rap_ft::{Map, MapSum, Paid, PublishedRapFt, RapFt, SeenMap};
pub use undertone_run::{AdaclipSection, ImportanceForm};

use super::ledger::{RunLedger, not_private_because};
use super::{Begin, Facts, MicroBatch, Procedure, Sample, StepInfo};
use crate::data::{Batch, PoissonSampler};
use crate::error::Result;
use crate::gradient::ClippedSum;
use crate::noise::{Noise, purpose};
use crate::train::{Learner, Protection, Step};
use ledger::{claim, round_down, step_event, terms};
use relevance::RelevanceMap;
use undertone_accounting::Guarantee;
use undertone_run::{Claim, Resolved, RunPaths};

/// A method of central DP during training.
pub(super) struct Central {
    plan: CentralPlan,
    resolved: Resolved,
    sampler: PoissonSampler,
    /// The expected number of units of a step.
    expected_units: f64,
    ledger: RunLedger,
    paths: RunPaths,
    seed: Option<u64>,
    relevance_by_parameter: Vec<(String, f64)>,
}

impl Central {
    pub(super) fn begin(plan: &CentralPlan, begin: Begin) -> Result<(Self, Protection)> {
        let Begin { plan: run, prepared, resolved, secret, folder, callback } = begin;
        let terms = terms(run, plan, resolved, prepared);
        let mut ledger = RunLedger::open(folder, terms, plan.delta)?;
        let map = match &plan.allocation {
            AllocationPlan::RapFt(rap_ft) => Some(relevance::map(
                rap_ft,
                prepared,
                resolved.before,
                secret,
                &mut ledger,
                callback,
            )?),
            _ => None,
        };
        let parameters = &prepared.model.parameters;
        let mut relevance_by_parameter = Vec::new();
        // A raw map, in paper mode, is not written: it is private.
        if let Some(RelevanceMap::Seen(map)) = &map {
            relevance_by_parameter = relevance::by_parameter(map.map(), parameters);
            relevance::save(&folder.relevance(), map.map(), parameters)?;
        }
        let method = plan.allocator(parameters, map.as_ref());
        let sampling_rate = resolved.sampling_rate.unwrap_or(1.0);
        let units = prepared.data.units;
        let sampler = PoissonSampler::new(units, sampling_rate, secret.key(purpose::SAMPLING))?;
        let procedure = Self {
            plan: plan.clone(),
            resolved: resolved.clone(),
            sampler,
            expected_units: sampling_rate * units as f64,
            ledger,
            paths: RunPaths::new(folder.folder()),
            seed: run.training.seed,
            relevance_by_parameter,
        };
        Ok((procedure, Protection { method, noise: Noise::new(secret) }))
    }

    /// Number of releases before the first step: 1 with a noisy relevance map.
    fn releases_before(&self) -> u64 {
        u64::from(self.resolved.before.is_some())
    }
}

impl CentralPlan {
    fn allocator(
        &self,
        parameters: &crate::model::Parameters,
        map: Option<&RelevanceMap>,
    ) -> AllocationMethod {
        use AllocationMethod::{Proved, Published};
        let clip = &self.clip;
        match (&self.allocation, map) {
            (AllocationPlan::Adaclip(section), _) => {
                Proved(Box::new(Adaclip::new(clip, *section, parameters)))
            }
            (AllocationPlan::Anadp(settings), _) => {
                Proved(Box::new(Anadp::new(clip, *settings, parameters)))
            }
            (AllocationPlan::PublishedAnadp(settings), _) => {
                Published(Box::new(PublishedAnadp::new(clip, *settings, parameters)))
            }
            (AllocationPlan::RapFt(plan), Some(RelevanceMap::Seen(map))) => {
                Proved(Box::new(RapFt::new(clip, map, plan.irrelevance, parameters)))
            }
            (AllocationPlan::RapFt(plan), Some(RelevanceMap::Raw(map))) => {
                Published(Box::new(PublishedRapFt::new(clip, map, plan.irrelevance, parameters)))
            }
            (AllocationPlan::DpSgd | AllocationPlan::RapFt(_), _) => {
                Proved(Box::new(DpSgd::new(clip, parameters)))
            }
        }
    }
}

impl Procedure for Central {
    fn sample(&mut self, step: u64) -> Result<Sample> {
        Ok(Sample { units: self.sampler.step(step), divisor: self.expected_units })
    }

    fn accumulate(
        &mut self,
        batch: &MicroBatch,
        learner: &Learner,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        let packed = Batch::pack(batch.indices.iter().map(|&i| &batch.examples[i]));
        Ok(learner.accumulate(&packed, batch.dropout_seed, sum)?)
    }

    fn release(&mut self, sum: ClippedSum, step: &StepInfo, learner: &mut Learner) -> Result<()> {
        let nominal = self.resolved.noise_multipliers.get(step.epoch).copied().unwrap_or(0.0);
        let mut effective = learner.effective_noise_multiplier(&sum, nominal)?;
        if self.plan.is_published() {
            effective = round_down(effective);
        }
        let index = self.releases_before() + step.step;
        self.ledger.record(index, step_event(&self.resolved, effective), 1)?;
        Ok(learner.update(sum, &Step::of(step, nominal))?)
    }

    fn check_checkpoint(&self, steps: u64) -> Result<()> {
        self.ledger.check_that_it_holds(self.releases_before() + steps, &self.paths.ledger())
    }

    fn guarantee(&self) -> Result<Option<Guarantee>> {
        self.ledger.guarantee()
    }

    fn ledger_hash(&self) -> Option<String> {
        Some(self.ledger.hash())
    }

    fn claim(&self) -> Result<Option<Claim>> {
        self.plan.is_published().then(|| claim(&self.resolved, self.plan.delta)).transpose()
    }

    fn not_private_because(&self) -> Option<String> {
        not_private_because(self.seed, self.plan.unaccounted())
    }

    fn facts(&self) -> Facts {
        Facts { relevance_by_parameter: self.relevance_by_parameter.clone(), ..Facts::default() }
    }
}
