//! Ledger terms and events of central DP methods.

use super::plan::{AllocationPlan, CentralPlan, MapSource, RapFtPlan};
use crate::error::Result;
use crate::method::Prepared;
use crate::method::ledger::{assumptions, mode, unit};
use crate::plan::Plan;
use undertone_accounting::ledger::Terms;
use undertone_accounting::{Accountant, Adjacency, Composition, Part, Threat, epsilon};
use undertone_run::{Claim, Resolved};

/// What the guarantee of metrics on private validation data assumes.
const OF_METRICS: &str = "rounding in f32 and bf16 arithmetic, through which one unit of the \
                          validation file changes the last digits of the predictions for others, \
                          does not change their metrics";

/// All releases of a run in proved mode, in ledger order.
pub fn planned_releases(plan: &CentralPlan, resolved: &Resolved) -> Vec<Part> {
    if let (Some(_), Some(&noise)) = (plan.bands, resolved.noise_multipliers.first()) {
        let steps = resolved.steps_per_epoch * resolved.noise_multipliers.len() as u64;
        return vec![Part { event: resolved.step(noise), count: plan.entries(steps) }];
    }
    let before = before_the_steps(resolved);
    let steps = resolved.noise_multipliers.iter().map(|&noise| {
        let event = resolved.step(noise);
        Part { event, count: resolved.steps_per_epoch }
    });
    before.chain(steps).collect()
}

/// The entries before the first step: a noisy map, and the metrics on private validation data.
fn before_the_steps(resolved: &Resolved) -> impl Iterator<Item = Part> {
    let events = resolved.before.into_iter().chain(resolved.evaluation);
    events.map(|event| Part { event, count: 1 })
}

/// Rounds a noise multiplier down to a grid of one percent. Otherwise, effective noise multipliers
/// that differ only in their last digits would each be a separate part of the composition, which is
/// slow with thousands of parts.
pub fn round_down(noise_multiplier: f64) -> f64 {
    const STEP: f64 = 0.01;
    ((noise_multiplier.ln() / STEP).floor() * STEP).exp().min(noise_multiplier)
}

/// The ledger's first line.
pub fn terms(
    plan: &Plan,
    central: &CentralPlan,
    resolved: &Resolved,
    prepared: &Prepared,
) -> Terms {
    let nominal = resolved.noise_multipliers.iter().copied().fold(f64::INFINITY, f64::min);
    // Announce the least noise of any step: the ledger rejects costlier entries.
    let least = match central.is_published() {
        false => nominal,
        true => round_down(central.least_noise_multiplier(nominal)),
    };
    let step = Part { event: resolved.step(least), count: 1 };
    let mut assumptions = assumptions(plan, resolved, prepared, Vec::new());
    if resolved.evaluation.is_some() {
        assumptions.push(OF_METRICS.to_owned());
    }
    if let AllocationPlan::RapFt(RapFtPlan { source: MapSource::Public { file, .. }, .. }) =
        &central.allocation
    {
        let file = file.display();
        assumptions.push(format!("{file} is public and does not depend on the training file"));
    }
    if let Some(file) = central.public_importance() {
        let file = file.display();
        assumptions.push(format!("{file} is public and does not depend on the training file"));
    }
    assumptions.extend(central.unaccounted().map(|what| format!("not covered: {what}")));
    Terms {
        id: String::new(),
        run: None,
        unit: unit(plan),
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: mode(plan, central.is_published()),
        assumptions,
        announced: [step].into_iter().chain(before_the_steps(resolved)).collect(),
    }
}

/// The (ε, δ) that the paper would claim, taking every step at its nominal noise multiplier.
pub fn claim(resolved: &Resolved, delta: f64) -> Result<Claim> {
    let mut nominal = Composition::new(Adjacency::AddRemove);
    for &noise in &resolved.noise_multipliers {
        nominal.push(resolved.step(noise), resolved.steps_per_epoch);
    }
    let epsilon = epsilon(&nominal, delta, Accountant::Auto)?.epsilon.upper;
    Ok(Claim { epsilon, delta })
}
