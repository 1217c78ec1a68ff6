//! Central DP: a trusted curator clips each unit's gradient, sums over a Poisson sample and adds
//! Gaussian noise. The adversary sees every released update and the final weights.
//!
//! ```text
//! plan.rs        the method's part of the plan        calibrate.rs  noise for a budget
//! ledger.rs      terms and events                     relevance.rs  Rap-FT's relevance map
//! dp_sgd.rs  adaclip.rs  anadp.rs  importance/  rap_ft.rs       one allocation method each
//! adaptive_clip.rs            adaptive clipping norm of DP-SGD
//! public.rs fixed_weights.rs  weights from public gradients
//! banded.rs                   correlated noise
//! ```

mod adaclip;
mod adaptive_clip;
mod anadp;
mod banded;
mod calibrate;
mod dp_sgd;
mod evaluation;
mod fixed_weights;
mod importance;
mod ledger;
mod mask;
mod plan;
mod public;
mod rap_ft;
mod rehearsed;
mod relevance;

pub use adaclip::Adaclip;
pub use adaptive_clip::AdaptiveClipping;
pub use anadp::{Anadp, PublishedAnadp};
pub use banded::{BandedDpSgd, CyclicGroups};
pub use dp_sgd::DpSgd;
pub use evaluation::EvaluationPlan;
pub use fixed_weights::FixedWeights;
pub use importance::ImportanceSettings;
pub use mask::MaskRule;
pub use plan::{AllocationPlan, Budget, CentralPlan, MapSource, RapFtPlan};
pub use public::PublicGradients;
pub use rap_ft::{
    ClippedRelevanceSum, PublishedRapFt, RapFt, ReleasedRelevanceMap, RelevanceMap, RelevanceSum,
};
pub use undertone_run::{AdaclipSection, ImportanceForm};

use super::ledger::not_private_because;
use super::{Begin, Facts, Prepared, Procedure, Sample, TrainingEvent};
use crate::collective;
use crate::data::PoissonSampler;
use crate::error::{Error, Result};
use crate::evaluate::UnitValues;
use crate::gradient::ClippedSum;
use crate::noise::{Noise, purpose};
use crate::plan::Plan;
use crate::step::{AllocationMethod, Cost, Learner, Protection, RunLedger, Step};
use crate::synthesize;
use evaluation::RecordedMetrics;
use ledger::{claim, planned_releases, round_down, terms};
use relevance::ComputedMap;
use undertone_accounting::ledger::Terms;
use undertone_accounting::{Adjacency, Composition, Guarantee, Part};
use undertone_run::{Claim, Clip, ReleasedMetric, RelevanceCost, Resolved};

/// The terms and all releases of a whole run, computed before it starts.
pub(crate) fn planned(
    run: &Plan,
    plan: &CentralPlan,
    prepared: &Prepared,
    resolved: &Resolved,
) -> (Terms, Composition) {
    (terms(run, plan, resolved, prepared), composition(plan, resolved))
}

/// All releases of a whole run.
pub(crate) fn composition(plan: &CentralPlan, resolved: &Resolved) -> Composition {
    let mut releases = Composition::new(Adjacency::AddRemove);
    for Part { event, count } in planned_releases(plan, resolved) {
        releases.push(event, count);
    }
    releases
}

/// A central DP method during training.
pub(super) struct Central {
    plan: CentralPlan,
    resolved: Resolved,
    sampler: PoissonSampler,
    /// The units that a step may sample, if noise is correlated.
    groups: Option<CyclicGroups>,
    /// The expected number of units in a step.
    expected_units: f64,
    ledger: RunLedger,
    /// The recorded metrics on private validation data, if the run releases them.
    metrics: Option<RecordedMetrics>,
    seed: Option<u64>,
    relevance_by_parameter: Vec<(String, f64)>,
    relevance_cost: Option<RelevanceCost>,
}

impl Central {
    pub(super) fn begin(plan: &CentralPlan, begin: Begin) -> Result<(Self, Protection)> {
        use AllocationMethod::{Proved, Published};
        let terms = terms(begin.plan, plan, begin.resolved, begin.prepared);
        let steps = begin.resolved.steps_per_epoch * u64::from(begin.plan.training.epochs);
        let entries = releases_before(begin.resolved) + plan.entries(steps);
        let mut ledger = super::ledger::open(&begin, terms, plan.delta, entries)?;
        ledger.plan(planned_releases(plan, begin.resolved));
        let Begin { plan: run, prepared, resolved, secret, folder, tape, callback, .. } = begin;
        if let Some(message) = &ledger.warning() {
            callback(TrainingEvent::Warning { message });
        }
        let (before, own) = (resolved.before, Some(&mut ledger));
        if let Some(statistics) = synthesize::release(prepared, before, secret, own, tape)?
            && let Some(folder) = folder
        {
            statistics.write(&folder.statistics())?;
        }
        let parameters = &prepared.model.parameters;
        let clip = &plan.clip;
        let (mut relevance_by_parameter, mut relevance_cost) = (Vec::new(), None);
        let sampling_rate = resolved.sampling_rate.unwrap_or(1.0);
        let bands = plan.bands.unwrap_or(1);
        // Based on the public number of units, which differs from the true number if it was
        // declared.
        let expected_units = sampling_rate * resolved.sampled() as f64 / bands as f64;
        let public = prepared.public.importance.as_ref().map(|examples| PublicGradients {
            model: &prepared.model,
            examples,
            clip,
            optimizer: run.optimizer(),
            learning_rate: run.training.learning_rate,
            secret,
        });
        let method = match (&plan.allocation, public) {
            (AllocationPlan::DpSgd, _) => {
                let count_std = plan.count_std(&resolved.noise_multipliers, expected_units)?;
                match (clip, count_std) {
                    (Clip::Adaptive(adaptive), Some(std)) => {
                        Proved(Box::new(AdaptiveClipping::new(*adaptive, std, parameters)))
                    }
                    _ if bands > 1 => Proved(Box::new(BandedDpSgd::new(clip, bands, parameters))),
                    _ => Proved(Box::new(DpSgd::new(clip, parameters))),
                }
            }
            (AllocationPlan::Adaclip(section), Some(public)) => {
                Proved(Box::new(public.adaclip(section, callback)?))
            }
            (AllocationPlan::Adaclip(section), None) => {
                Proved(Box::new(Adaclip::new(clip, section.clone(), parameters)))
            }
            (AllocationPlan::Anadp(settings, _), Some(public)) => {
                Proved(Box::new(public.anadp(*settings, callback)?))
            }
            (AllocationPlan::Anadp(settings, _), None) => {
                Proved(Box::new(Anadp::new(clip, *settings, parameters)))
            }
            (AllocationPlan::PublishedAnadp(settings), _) => {
                Published(Box::new(PublishedAnadp::new(clip, *settings, parameters)))
            }
            (AllocationPlan::RapFt(rap_ft), _) => {
                let before = resolved.before;
                let rule = rap_ft.mask;
                let (map, cost) =
                    relevance::map(rap_ft, prepared, before, secret, &mut ledger, tape, callback)?;
                relevance_cost = cost;
                match map {
                    ComputedMap::Released(map) => {
                        relevance_by_parameter = relevance::by_parameter(map.map(), parameters);
                        if let Some(folder) = folder {
                            relevance::save(&folder.relevance(), map.map(), parameters)?;
                        }
                        Proved(Box::new(RapFt::new(clip, &map, rule, parameters)))
                    }
                    // In paper mode, the raw map is not written to disk: it is private.
                    ComputedMap::Raw(map) => {
                        Published(Box::new(PublishedRapFt::new(clip, &map, rule, parameters)))
                    }
                }
            }
        };
        let metrics = match (resolved.evaluation, plan.evaluation) {
            (Some(event), Some(evaluation)) => {
                let recorded = ledger.record(releases_before(resolved) - 1, event, 1)?;
                Some(RecordedMetrics::new(recorded, evaluation, &run.training, secret)?)
            }
            _ => None,
        };
        let units = prepared.data.units;
        let sampler = PoissonSampler::new(units, sampling_rate, secret.key(purpose::SAMPLING))?;
        let key = secret.key(purpose::GROUPS);
        let groups = plan.bands.map(|bands| CyclicGroups::new(units, bands, key));
        let procedure = Self {
            plan: plan.clone(),
            resolved: resolved.clone(),
            sampler,
            groups,
            expected_units,
            ledger,
            metrics,
            seed: run.training.seed,
            relevance_by_parameter,
            relevance_cost,
        };
        Ok((procedure, Protection { method, noise: Noise::new(secret) }))
    }

    fn releases_before(&self) -> u64 {
        releases_before(&self.resolved)
    }
}

/// Number of entries before the first step: 1 with a noisy relevance map or the statistics of
/// synthetic rows, and 1 with metrics on private validation data.
fn releases_before(resolved: &Resolved) -> u64 {
    u64::from(resolved.before.is_some()) + u64::from(resolved.evaluation.is_some())
}

impl Procedure for Central {
    fn sample(&mut self, step: u64) -> Result<Sample> {
        let drawn = self.sampler.step(step);
        let units = match &self.groups {
            Some(groups) => groups.keep(step, drawn),
            None => drawn,
        };
        Ok(Sample { units, divisor: self.expected_units })
    }

    fn noise_multiplier(&self, epoch: usize) -> f64 {
        self.resolved.noise_multipliers.get(epoch).copied().unwrap_or(0.0)
    }

    fn release(&mut self, sum: ClippedSum, mut step: Step, learner: &mut Learner) -> Result<()> {
        learner.observe_raw(&sum, &mut step)?;
        // In proved mode, a step that has begun has at least the requested noise.
        let noise_multiplier = match self.plan.is_published() {
            true => round_down(step.noise_multiplier()),
            false => step.settings().noise_multiplier,
        };
        // The entry of the block that contains the step; without correlated noise, that of the step
        // itself.
        let index = self.releases_before() + self.plan.entries(step.settings().number + 1) - 1;
        let event = self.resolved.step(noise_multiplier);
        let recorded = self.ledger.record(index, event, 1)?;
        learner.release(sum, step, Cost::Recorded(recorded))
    }

    fn releases_metrics(&self, epoch: u64) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| metrics.are_due(epoch))
    }

    fn release_metric(
        &mut self,
        epoch: u64,
        values: &UnitValues,
    ) -> Result<Option<ReleasedMetric>> {
        match &self.metrics {
            Some(metrics) => metrics.release(epoch, values),
            None => Ok(None),
        }
    }

    fn record_rest(&mut self) -> Result<()> {
        let mut index = 0;
        for Part { event, count } in planned_releases(&self.plan, &self.resolved) {
            for _ in 0..count {
                self.ledger.record(index, event, 1)?;
                index += 1;
            }
        }
        Ok(())
    }

    fn check_checkpoint(&self, steps: u64) -> Result<()> {
        self.ledger.check_that_it_holds(self.releases_before() + self.plan.entries(steps))
    }

    fn check_other_ranks(&self, steps: u64) -> Result<()> {
        // With correlated noise, an entry covers many steps and does not show which of them were
        // taken.
        let releases = self.releases_before() + self.plan.entries(steps);
        if self.groups.is_none() && !self.ledger.holds_more_than(releases) {
            return Ok(());
        }
        Err(Error::Ranks(collective::Error::Refused(format!(
            "steps after the last checkpoint (step {steps}) may already have been released, and \
             repeating them gives the same releases only with the same number of ranks: resume \
             with that number"
        ))))
    }

    fn guarantee(&self) -> Result<Option<Guarantee>> {
        self.ledger.guarantee()
    }

    fn guarantee_of_plan(&self) -> Result<Option<Guarantee>> {
        self.ledger.guarantee_of_plan()
    }

    fn spent(&mut self) -> Result<Option<f64>> {
        if self.plan.is_published() {
            return Ok(None);
        }
        self.ledger.spent()
    }

    fn ledger_hash(&self) -> Option<String> {
        self.ledger.hash()
    }

    fn claim(&self) -> Result<Option<Claim>> {
        self.plan.is_published().then(|| claim(&self.resolved, self.plan.delta)).transpose()
    }

    fn not_private_because(&self) -> Option<String> {
        not_private_because(self.seed, self.plan.unaccounted())
    }

    fn facts(&self) -> Facts {
        Facts {
            relevance_by_parameter: self.relevance_by_parameter.clone(),
            relevance_cost: self.relevance_cost,
            ..Facts::default()
        }
    }
}
