//! Comparison of several runs.

use super::learning::capital;
use super::method_name;
use crate::chart::{Axis, Chart, Mark, Plot, Series};
use crate::document::{Block, Section, Table};
use crate::error::Result;
use crate::folder::Run;
use crate::words;
use crate::words::short;
use std::collections::BTreeMap;
use std::path::Path;
use undertone_accounting::rounded_up;
use undertone_run::{Audit, Cost, Metrics, cost_together};

pub fn section(runs: &[Run]) -> Result<Section> {
    let mut section = Section::new(2, "Comparison")
        .with(Block::Table(table(runs)))
        .with(Block::Table(training(runs)));
    let unguarded: Vec<&str> = runs
        .iter()
        .filter(|run| run.no_guarantee().is_some())
        .map(|run| run.name.as_str())
        .collect();
    if !unguarded.is_empty() {
        let bracketed =
            runs.iter().any(|run| run.no_guarantee().is_some() && run.guarantee().is_some());
        let brackets = " An ε in brackets is that of the run's ledger alone; it is no guarantee.";
        section = section.note(format!(
            "No guarantee: {}.{}",
            unguarded.join(", "),
            if bracketed { brackets } else { "" }
        ));
    }
    if differ(runs) {
        section = section.note(
            "The guarantees differ in their privacy unit, adjacency, threat model or δ: their ε \
             cannot be compared.",
        );
    }
    for note in totals(runs) {
        section = section.note(note);
    }
    for kind in KINDS {
        if let Some(chart) = against_epsilon(runs, kind)? {
            section = section.chart(chart);
        }
    }
    Ok(section)
}

/// The joint guarantee of private runs on the same training file: one sentence for each file that
/// several runs were trained on.
fn totals(runs: &[Run]) -> Vec<String> {
    let mut files: BTreeMap<&Path, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.no_guarantee().is_none() && run.ledger.is_some()) {
        files.entry(&run.summary.plan.data.train).or_default().push(run);
    }
    files.into_values().filter(|of_file| of_file.len() > 1).map(|runs| total(&runs)).collect()
}

fn total(runs: &[&Run]) -> String {
    let names = runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
    let costs: Vec<Cost> = runs
        .iter()
        .filter_map(|run| {
            let (path, plan) = (run.folder.as_path(), Some(&run.summary.plan));
            Some(Cost { path, ledger: run.ledger.as_ref()?, plan })
        })
        .collect();
    let deltas = runs.iter().filter_map(|run| run.guarantee()).map(|guarantee| guarantee.delta);
    match cost_together(&costs, deltas.fold(0.0, f64::max)) {
        Ok(total) => format!(
            "{names} were trained on the same file. Everything that they release together has \
             {total}, if the settings of each were fixed before the results of another were seen."
        ),
        Err(e) => format!(
            "{names} were trained on the same file and cost more together than each alone, but \
             cannot be added up: {e}."
        ),
    }
}

/// Whether the guarantees differ in privacy unit, adjacency, threat model or δ.
fn differ(runs: &[Run]) -> bool {
    let mut kinds =
        runs.iter().filter_map(Run::guarantee).map(|g| (g.unit, g.adjacency, g.threat, g.delta));
    let first = kinds.next();
    kinds.any(|kind| Some(kind) != first)
}

/// Metrics for comparing models.
const KINDS: [&str; 2] = ["accuracy", "perplexity"];

fn table(runs: &[Run]) -> Table {
    let measures = |run: &Run| run.summary.metrics.validation.clone();
    let kinds = KINDS
        .into_iter()
        .filter(|kind| runs.iter().filter_map(measures).any(|m| m.name() == *kind));
    let kinds: Vec<&str> = kinds.collect();
    let mut head = vec!["run", "method", "ε, proved", "δ"];
    head.extend(kinds.iter().copied());
    let attacks =
        ATTACKS.iter().filter(|(_, figure)| runs.iter().any(|run| figure(&run.audit).is_some()));
    let attacks: Vec<_> = attacks.collect();
    head.extend(attacks.iter().map(|(name, _)| *name));
    let row = |run: &Run| {
        let none = || "–".to_owned();
        let measures = measures(run);
        let mut cells = vec![
            run.name.clone(),
            method_name(run.summary.plan.privacy.method).to_owned(),
            epsilon(run),
            run.guarantee().map_or_else(none, |g| words::small(g.delta)),
        ];
        for kind in &kinds {
            cells.push(
                measures.as_ref().filter(|m| m.name() == *kind).map_or_else(none, Metrics::shown),
            );
        }
        cells.extend(attacks.iter().map(|(_, figure)| figure(&run.audit).unwrap_or_else(none)));
        cells
    };
    Table::new("All runs", &head, runs.iter().map(row).collect())
}

/// How the runs were trained.
fn training(runs: &[Run]) -> Table {
    let mut head = vec!["run", "loss", "noise multiplier", "steps"];
    let is_timed = runs.iter().any(|run| run.summary.throughput.is_some());
    head.extend(is_timed.then_some("examples/s"));
    let row = |run: &Run| {
        let none = || "–".to_owned();
        let measures = run.summary.metrics.validation.as_ref();
        let mut cells = vec![
            run.name.clone(),
            measures.map_or_else(none, |m| words::number(m.loss())),
            noise(&run.summary.resolved.noise_multipliers),
            words::count(run.summary.steps),
        ];
        let speed = run.summary.throughput;
        let speed = || speed.map_or_else(none, |speed| format!("{:.1}", speed.examples_per_second));
        cells.extend(is_timed.then(speed));
        cells
    };
    Table::new("Training of all runs", &head, runs.iter().map(row).collect())
}

/// The result of an attack on a run, if it was made.
type AttackCell = fn(&Audit) -> Option<String>;

/// Attacks for comparing runs: the strongest membership inference, and the mean exposure of planted
/// secrets.
const ATTACKS: [(&str, AttackCell); 2] = [
    ("membership AUC", |audit| {
        let areas = audit.membership.iter().filter(|attack| !attack.is_of_pretrained());
        let strongest = areas.map(|attack| attack.auc.estimate).max_by(f64::total_cmp)?;
        Some(format!("{strongest:.3}"))
    }),
    ("exposure, bits", |audit| {
        let bits = audit.exposure.iter().map(|secret| secret.trained.bits);
        let count = audit.exposure.len();
        (count > 0).then(|| format!("{:.1}", bits.sum::<f64>() / count as f64))
    }),
];

/// The proved ε, or "none".
fn epsilon(run: &Run) -> String {
    let upper = run.guarantee().map(|g| rounded_up(g.epsilon.upper));
    match (run.no_guarantee(), upper) {
        (None, Some(upper)) => upper,
        (Some(_), Some(upper)) => format!("none ({upper})"),
        (_, None) => "none".to_owned(),
    }
}

/// The noise multipliers of the epochs, as a range if they differ.
fn noise(multipliers: &[f64]) -> String {
    let (least, most) =
        multipliers.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), s| (l.min(*s), m.max(*s)));
    match multipliers {
        [] => "–".to_owned(),
        _ if least == most => words::number(most),
        _ => format!("{} to {}", words::number(most), words::number(least)),
    }
}

/// Accuracy or perplexity as a function of ε: points for runs with a guarantee and for runs where
/// only the ledger has an ε, and horizontal lines for non-private runs.
fn against_epsilon(runs: &[Run], kind: &str) -> Result<Option<Chart>> {
    let measured = |run: &Run| {
        run.summary.metrics.validation.as_ref().filter(|m| m.name() == kind).map(Metrics::main)
    };
    let with = |held: bool| -> Vec<(String, (f64, f64))> {
        let of =
            |run: &Run| Some((run.name.clone(), (run.guarantee()?.epsilon.upper, measured(run)?)));
        runs.iter().filter(|run| run.no_guarantee().is_none() == held).filter_map(of).collect()
    };
    let (held, alone) = (with(true), with(false));
    let non_private: Vec<(String, f64)> = runs
        .iter()
        .filter(|run| run.guarantee().is_none())
        .filter_map(|run| Some((run.name.clone(), measured(run)?)))
        .collect();
    let epsilons = || held.iter().chain(&alone).map(|(_, point)| point.0);
    if epsilons().count() == 0 || epsilons().count() + non_private.len() < 2 {
        return Ok(None);
    }
    let (least, most) =
        (epsilons().fold(f64::INFINITY, f64::min) / 1.5, epsilons().fold(0.0, f64::max) * 1.5);
    let format: fn(f64) -> String =
        if kind == "accuracy" { |x| format!("{} %", short(x)) } else { short };
    let mut series = Vec::new();
    for (name, figure) in &non_private {
        series.push(Series::new(
            format!("{name} (no guarantee)"),
            1,
            Mark::Dashed,
            vec![(least, *figure), (most, *figure)],
        ));
    }
    for (points, ink, mark, name) in [
        (&held, 0, Mark::Discs, "with a guarantee"),
        (&alone, 3, Mark::Rings, "no guarantee; ε of the ledger alone"),
    ] {
        if !points.is_empty() {
            let mut group =
                Series::new(name, ink, mark, points.iter().map(|(_, point)| *point).collect());
            group.names = points.iter().map(|(name, _)| name.clone()).collect();
            series.push(group);
        }
    }
    let figures =
        held.iter().chain(&alone).map(|(_, point)| point.1).chain(non_private.iter().map(|o| o.1));
    let plot = Plot {
        x: Axis::logarithmic("ε, at most", least, most, short),
        y: Axis::around(kind, figures, format),
        series,
    };
    let row = |(name, (epsilon, figure)): &(String, (f64, f64)), holds: &str| {
        vec![name.clone(), rounded_up(*epsilon), words::number(*figure), holds.to_owned()]
    };
    let rows = held
        .iter()
        .map(|point| row(point, "yes"))
        .chain(alone.iter().map(|point| row(point, "no")))
        .chain(non_private.iter().map(|(name, figure)| {
            vec![name.clone(), "–".to_owned(), words::number(*figure), "no".to_owned()]
        }))
        .collect();
    let figure = if kind == "accuracy" { "accuracy, %" } else { "perplexity" };
    let title = format!("{} against ε", capital(kind));
    let table = Table::new(title.clone(), &["run", "ε, at most", figure, "guaranteed"], rows);
    Ok(Some(plot.chart(
        &title,
        "Measured on the validation files. A smaller ε protects better.",
        table,
    )?))
}
