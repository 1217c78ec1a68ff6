//! `undertone train --dry-run`: describes a run without releasing or writing anything.

use crate::before_training::Siblings;
use crate::display::Display;
use crate::failure::Outcome;
use crate::output::{self, Output};
use crate::source::{RUNS, choice};
use crate::typical::{Typical, TypicalArguments};
use serde_json::json;
use std::path::Path;
use undertone::ResolvedPlan;
use undertone::tensor::Device;
use undertone::train::{Rehearsal, rehearse};
use undertone_run::{AutoKey, PrecisionName};

/// Performs the checks of the run, prints its warnings, times a step and prints what the run would
/// do.
pub fn dry_run(
    mut resolved: ResolvedPlan,
    precision: Option<PrecisionName>,
    device: &Device,
    typical: &TypicalArguments,
    output: Output,
) -> Outcome {
    if precision.is_some() {
        resolved.plan.compute.precision = precision;
    }
    let plan = &resolved.plan;
    let typical = typical.length(plan)?;
    let mut display = Display::new();
    display.beside = Some(Siblings::within(Path::new(RUNS)));
    let rehearsal = rehearse(plan, device, typical.tokens, &mut |event| display.show(&event))?;
    if output.json {
        output::json(&as_json(&resolved, &rehearsal));
    } else {
        output::rows(&rows(&resolved, &rehearsal, &typical));
        output::line("  nothing was released or written");
    }
    Ok(())
}

/// Estimated seconds of the whole run, with typical texts and with texts of maximum length.
pub fn seconds(rehearsal: &Rehearsal) -> Option<[f64; 2]> {
    let timing = rehearsal.timing?;
    Some([timing.typical, timing.long].map(|step| step.seconds * rehearsal.steps as f64))
}

/// The estimate in words; `None` if nothing was timed.
pub fn time(rehearsal: &Rehearsal, typical: &Typical) -> Option<String> {
    let (timing, [some, most]) = (rehearsal.timing?, seconds(rehearsal)?);
    Some(format!(
        "about {} with {} tokens per text ({}); {} if all texts have {}",
        spoken(some),
        timing.typical.tokens,
        typical.source,
        spoken(most),
        timing.long.tokens
    ))
}

/// A duration with a readable unit.
pub fn spoken(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

/// Summary of the noise multipliers of all epochs.
pub fn noise(multipliers: &[f64]) -> String {
    let texts: Vec<String> = multipliers.iter().map(|noise| format!("{noise:.4}")).collect();
    match texts.as_slice() {
        [] => "none: the run is not private".to_owned(),
        [first, rest @ ..] if rest.iter().all(|noise| noise == first) => first.clone(),
        all => format!("{} by epoch", all.join(", ")),
    }
}

fn rows(
    resolved: &ResolvedPlan,
    rehearsal: &Rehearsal,
    typical: &Typical,
) -> Vec<(&'static str, String)> {
    let plan = &resolved.plan;
    let (file, training) = (plan.file(), &plan.training);
    let keys = |key: AutoKey| {
        let by = if resolved.chosen.contains(&key) { " (recipe)" } else { "" };
        format!("{}{by}", choice(key, plan))
    };
    let mut rows = vec![
        ("model", format!("{}, {}", file.model.name(), keys(AutoKey::Tuning))),
        (
            "parameters",
            format!(
                "{} of {} trainable",
                rehearsal.parameters.trainable, rehearsal.parameters.total
            ),
        ),
        (
            "data",
            match plan.declared_units() {
                Some(units) => format!("{} rows; {units} units declared", rehearsal.rows),
                None => format!("{} rows, {} units", rehearsal.rows, rehearsal.resolved.units),
            },
        ),
        ("method", file.privacy.method.name().to_owned()),
    ];
    if plan.is_private() {
        let epsilon = file.privacy.epsilon.map(|epsilon| format!("ε = {epsilon}, "));
        rows.push(("budget", format!("{}{}", epsilon.unwrap_or_default(), keys(AutoKey::Delta))));
        rows.push(("clipping", keys(AutoKey::Clip).replacen("clip ", "", 1)));
        rows.push(("noise multiplier", noise(&rehearsal.resolved.noise_multipliers)));
    }
    if let Some(examples) = rehearsal.resolved.examples {
        rows.push(("sampling", examples.to_string()));
    }
    if let Some(rate) = rehearsal.resolved.sampling_rate {
        rows.push(("sampling rate", format!("{rate:.5}")));
    }
    let steps = rehearsal.steps;
    rows.extend([
        ("batch", keys(AutoKey::Batch).replacen("batch ", "", 1)),
        ("steps", format!("{steps} in {}", keys(AutoKey::Epochs))),
        (
            "optimizer",
            [AutoKey::Optimizer, AutoKey::LearningRate, AutoKey::LearningRateSchedule]
                .map(keys)
                .join(", "),
        ),
        ("warm-up", format!("{} of the steps", training.warmup)),
    ]);
    match (&rehearsal.timing, time(rehearsal, typical)) {
        (Some(timing), Some(time)) => {
            rows.push(("time", format!("{time}; validation not counted")));
            let gb = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
            if let Some(bytes) = timing.gpu_memory_bytes {
                rows.push(("GPU memory", gb(bytes)));
            }
            if let Some(bytes) = timing.memory_bytes {
                rows.push(("memory", gb(bytes)));
            }
        }
        _ => rows.push(("time", "not measured for methods of local DP".to_owned())),
    }
    rows
}

fn as_json(resolved: &ResolvedPlan, rehearsal: &Rehearsal) -> serde_json::Value {
    let file = resolved.plan.file();
    let chosen: Vec<&str> = resolved.chosen.iter().map(|key| key.path()).collect();
    json!({
        "plan": file,
        "chosen": chosen,
        "resolved": rehearsal.resolved,
        "rows": rehearsal.rows,
        "steps": rehearsal.steps,
        "parameters": rehearsal.parameters,
        "steps_timed": rehearsal.timing.map(|timing| {
            [timing.typical, timing.long]
                .map(|step| json!({ "tokens": step.tokens, "seconds": step.seconds }))
        }),
        "seconds": seconds(rehearsal),
        "memory_bytes": rehearsal.timing.and_then(|timing| timing.memory_bytes),
        "gpu_memory_bytes": rehearsal.timing.and_then(|timing| timing.gpu_memory_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_noise_are_told_shortly() {
        assert_eq!(spoken(12.4), "12 s");
        assert_eq!(spoken(600.0), "10 minutes");
        assert_eq!(spoken(9000.0), "2.5 hours");
        assert_eq!(noise(&[0.7, 0.7]), "0.7000");
        assert_eq!(noise(&[0.7, 0.5]), "0.7000, 0.5000 by epoch");
    }
}
