//! Notes that a table needs, above all whether its runs are private.

use crate::cells::Cells;
use crate::file::{Line, Sweep};
use crate::metric::Metric;
use crate::table::{LEVEL, Table};
use undertone::Plan;

/// The notes below a table, one sentence each.
pub fn notes(sweep: &Sweep, cells: &Cells, table: &Table) -> Vec<String> {
    let mut notes = Vec::new();
    let seeds = sweep.file.seeds.len();
    let shown = match seeds {
        0 | 1 => "one run each".to_owned(),
        _ => format!("mean ± standard error over {seeds} seeds"),
    };
    notes.push(format!("What is shown: {}; {shown}.", table.metric));
    if sweep.file.metric == Metric::BestAccuracy || sweep.file.also.contains(&Metric::BestAccuracy)
    {
        notes.push(
            "The best epoch was chosen on the validation file: if that file is private, the choice \
             is a release that no ledger covers."
                .into(),
        );
    }
    if let Some(audit) = &sweep.file.audit {
        let trials = audit.trials.unwrap_or(1);
        let trials = if trials == 1 { "one trial".into() } else { format!("{trials} trials") };
        notes.push(format!(
            "Attacks on each run: {trials}; the figure is their mean. Lower is better; what the \
             pretrained model already knows does not count."
        ));
    }
    let rows = |count: Option<usize>| count.map(|count| format!("{count} rows"));
    let training = |share: Option<f64>, count: Option<usize>| {
        share.map(|share| format!("a share of {share} of the rows")).or(rows(count))
    };
    let usual = training(sweep.file.share, sweep.file.examples);
    notes.extend(part("Trained", "training", sweep, usual, |line| {
        training(line.share, line.examples)
    }));
    let usual = rows(sweep.file.validation_examples);
    notes.extend(part("Measured", "validation", sweep, usual, |line| {
        rows(line.validation_examples)
    }));
    notes.extend(about_privacy(cells));
    let cells_shown = || table.rows.iter().flat_map(|row| row.cells.iter().flatten());
    let tests = cells_shown().filter(|cell| cell.p_value.is_some()).count();
    if let (Some(baseline), true) = (&table.baseline, tests > 0) {
        let own = table.rows.iter().any(|row| row.baseline.is_some());
        let own = if own { " (or than their own baseline)" } else { "" };
        notes.push(format!(
            "* better than {baseline}{own} with p < {LEVEL} by a paired one-tailed t-test over the \
             seeds; {tests} tests, not corrected for their number."
        ));
    }
    if cells_shown().any(|cell| cell.published.is_some()) {
        let source =
            sweep.file.source.as_ref().map_or(String::new(), |source| format!(" ({source})"));
        notes.push(format!("In brackets: as published{source}."));
    }
    if cells_shown().any(|cell| cell.finished().0 < cell.finished().1) {
        notes.push("† some runs failed; the mean is over the others.".into());
    }
    notes
}

/// Notes on subsets of the data files.
fn part(
    done: &str,
    file: &str,
    sweep: &Sweep,
    usual: Option<String>,
    own: impl Fn(&Line) -> Option<String>,
) -> Option<String> {
    let lines = sweep.columns.iter().chain(&sweep.rows);
    let others: Vec<String> =
        lines.filter_map(|line| Some(format!("{}: {}", line.label, own(line)?))).collect();
    let usual = match (usual, others.is_empty()) {
        (None, true) => return None,
        (usual, _) => usual.unwrap_or_else(|| "all rows".to_owned()),
    };
    Some(match others.as_slice() {
        [] => format!("{done} on {usual} of the {file} file."),
        _ => format!("{done} on {usual} of the {file} file ({}).", others.join(", ")),
    })
}

/// Notes on whether a guarantee covers the releases of the runs.
fn about_privacy(cells: &Cells) -> Vec<String> {
    let plans = || cells.runs.iter().map(|run| &run.plan);
    let noised = |plan: &&Plan| plan.is_private();
    let mut notes = Vec::new();
    let seeded = plans().filter(noised).filter(|plan| plan.training.seed.is_some()).count();
    let published = plans().filter(|plan| plan.unaccounted().is_some()).count();
    let private = plans()
        .filter(noised)
        .filter(|plan| plan.training.seed.is_none() && plan.unaccounted().is_none());
    let private = private.count();
    if seeded > 0 {
        notes.push(
            "Not private: the seeds are known, and anyone who knows a seed can subtract the noise."
                .into(),
        );
    }
    if published > 0 {
        notes.push(format!(
            "{published} of {} runs follow a method as published, whose claimed ε does not hold \
             (mode = \"paper\").",
            cells.runs.len()
        ));
    }
    if private > 1 {
        notes.push(format!(
            "Each run's guarantee is for that run alone: {private} runs on the same data, or the \
             best of them, cost more together."
        ));
    }
    notes
}
