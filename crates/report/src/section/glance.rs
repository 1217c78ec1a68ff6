//! The first screen: what is guaranteed, what it costs in accuracy, and what attacks found.

use crate::chart::{Bar, Group, bars};
use crate::document::{Block, Section, Standing};
use crate::error::Result;
use crate::folder::Run;
use crate::words;
use undertone_accounting::{Accountant, Guarantee, rounded_up, trade_off};
use undertone_run::audit::{Figure, Interval, Measure, SecretExposure};
use undertone_run::{Audit, Metrics};

/// Maximum number of runs in the figure.
const RUNS: usize = 8;

/// The opening section of a report on several runs.
pub fn section(runs: &[Run]) -> Result<Section> {
    let section = Section::new(2, "At a glance").with(statement(runs));
    Ok(section.with_all(figure(runs)?))
}

/// The guarantees of the private runs, in one sentence.
fn statement(runs: &[Run]) -> Block {
    let guaranteed: Vec<(&Run, &Guarantee)> = runs
        .iter()
        .filter(|run| run.no_guarantee().is_none())
        .filter_map(|run| Some((run, run.guarantee()?)))
        .collect();
    let others: Vec<&str> = runs
        .iter()
        .filter(|run| run.no_guarantee().is_some() || run.guarantee().is_none())
        .map(|run| run.name.as_str())
        .collect();
    let mut meaning = Vec::new();
    let kind = |g: &Guarantee| (g.unit, g.adjacency, g.threat, g.delta);
    let sentence = match guaranteed.as_slice() {
        [] => {
            return Block::Statement {
                standing: Standing::NoGuarantee,
                sentence: "Nothing is guaranteed by any of these runs.".to_owned(),
                meaning,
            };
        }
        [(run, guarantee)] => format!("{}: {guarantee}.", run.name),
        [(_, first), rest @ ..] if rest.iter().all(|(_, other)| kind(other) == kind(first)) => {
            let by_epsilon = |a: &&(&Run, &Guarantee), b: &&(&Run, &Guarantee)| {
                a.1.epsilon.upper.total_cmp(&b.1.epsilon.upper)
            };
            let Some((_, most)) = guaranteed.iter().max_by(by_epsilon) else {
                unreachable!("there is a first one")
            };
            let each: Vec<String> = guaranteed
                .iter()
                .map(|(run, g)| format!("{}: ε = {}", run.name, rounded_up(g.epsilon.upper)))
                .collect();
            meaning.push(format!("{}.", each.join("; ")));
            format!("Each of {} private runs alone: {most}.", guaranteed.len())
        }
        several => {
            meaning.extend(several[1..].iter().map(|(run, g)| format!("{}: {g}.", run.name)));
            format!("{}: {}.", several[0].0.name, several[0].1)
        }
    };
    if !others.is_empty() {
        meaning.push(format!("No guarantee: {}.", others.join(", ")));
    }
    Block::Statement { standing: Standing::Guaranteed, sentence, meaning }
}

/// Accuracy and attacks in one figure; `None` if there is nothing to compare.
pub fn figure(runs: &[Run]) -> Result<Option<Block>> {
    if runs.len() > RUNS {
        return Ok(None);
    }
    let mut groups: Vec<Group> = Vec::new();
    groups.extend(quality(runs, "accuracy"));
    groups.extend(quality(runs, "perplexity"));
    groups.extend(membership(runs));
    groups.extend(shares(runs, "Planted secrets that the model ranks first", secrets));
    groups.extend(shares(runs, "Names and numbers that it gives away", extracted));
    groups.extend(shares(runs, "Masked names and numbers it restores", reconstructed));
    if let [run] = runs
        && !run.audit.all.is_empty()
    {
        groups.retain(|group| group.title == "Accuracy" || group.title.starts_with("Perplexity"));
        groups.extend(beside_non_private(run));
    }
    if groups.iter().map(|group| group.bars.len()).sum::<usize>() < 2 {
        return Ok(None);
    }
    let marked = groups.iter().flat_map(|group| &group.bars).any(|bar| bar.bound.is_some());
    let bound = if marked { " A vertical line is the most that the guarantee allows." } else { "" };
    let chart = bars(
        "What protection costs, and what attacks found",
        &format!("Longer bars are more accurate, or give more away.{bound}"),
        &["with a guarantee", "no guarantee"],
        &groups,
    )?;
    Ok(Some(Block::Chart(Box::new(chart))))
}

fn bar(run: &Run, length: f64, value: String) -> Bar {
    let series = usize::from(run.no_guarantee().is_some() || run.guarantee().is_none());
    Bar { name: run.name.clone(), series, length, value, bound: None }
}

/// A group with these bars, if there are any.
fn group(title: &str, bars: Vec<Bar>) -> Option<Group> {
    (!bars.is_empty()).then(|| Group { title: title.to_owned(), bars })
}

/// Accuracy or perplexity of the runs evaluated with this metric.
fn quality(runs: &[Run], kind: &str) -> Option<Group> {
    let measured = |run: &Run| {
        let metrics = run.summary.metrics.validation.as_ref()?;
        (metrics.name() == kind && metrics.main().is_finite()).then(|| metrics.clone())
    };
    let most = runs.iter().filter_map(measured).map(|metrics| metrics.main()).fold(0.0, f64::max);
    let drawn = runs.iter().filter_map(|run| {
        let metrics = measured(run)?;
        let length = match &metrics {
            Metrics::Classification(scores) => scores.accuracy,
            Metrics::Language(_) => metrics.main() / most.max(f64::MIN_POSITIVE),
        };
        Some(bar(run, length, metrics.shown()))
    });
    let title = if kind == "accuracy" { "Accuracy" } else { "Perplexity (lower is better)" };
    group(title, drawn.collect())
}

/// The share of members that the best attack finds, next to the bound implied by the guarantee.
fn membership(runs: &[Run]) -> Option<Group> {
    let drawn = runs.iter().filter_map(|run| {
        let attacks = run.audit.membership.iter().filter(|attack| !attack.is_of_pretrained());
        let rates = attacks.map(|attack| attack.rate_at_1_percent.estimate);
        let rate = rates.filter(|rate| rate.is_finite()).max_by(f64::total_cmp)?;
        let ledger = run.ledger.as_ref().filter(|_| run.no_guarantee().is_none());
        let bound = ledger.and_then(|ledger| {
            let points = trade_off(ledger.spent(), &[0.01], Accountant::Auto).ok()?;
            Some(points.first()?.true_positive_rate.upper)
        });
        Some(Bar { bound, ..bar(run, rate, words::percent(rate)) })
    });
    group("Examples an attacker finds (1 % false alarms)", drawn.collect())
}

/// A share of some cases, if there are any.
fn shares(
    runs: &[Run],
    title: &str,
    counts: impl Fn(&Audit) -> Option<(usize, usize)>,
) -> Option<Group> {
    let drawn = runs.iter().filter_map(|run| {
        let (some, all) = counts(&run.audit).filter(|(_, all)| *all > 0)?;
        let value = format!("{} of {}", words::count(some), words::count(all));
        Some(bar(run, some as f64 / all as f64, value))
    });
    group(title, drawn.collect())
}

fn secrets(audit: &Audit) -> Option<(usize, usize)> {
    let is_first = |secret: &&SecretExposure| (0.0..1.5).contains(&secret.trained.rank);
    let known = audit.exposure.iter().any(|secret| secret.trained.rank > 0.0);
    known.then(|| (audit.exposure.iter().filter(is_first).count(), audit.exposure.len()))
}

fn extracted(audit: &Audit) -> Option<(usize, usize)> {
    let sum = |count: fn(&undertone_run::audit::Extraction) -> usize| -> usize {
        audit.extraction.iter().map(count).sum()
    };
    Some((sum(|kind| kind.right), sum(|kind| kind.in_training)))
}

fn reconstructed(audit: &Audit) -> Option<(usize, usize)> {
    let mut all = (0, 0);
    for kind in &audit.reconstruction {
        let judged = kind.not_known_before.as_ref().unwrap_or(&kind.trained);
        let restored = judged.top_1.estimate * judged.targets as f64;
        if restored.is_finite() {
            all = (all.0 + restored.round() as usize, all.1 + judged.targets);
        }
    }
    Some(all)
}

/// The attacks of `audit all` on this run, next to the same attacks on a non-private run.
fn beside_non_private(run: &Run) -> Vec<Group> {
    let shown = |figure: &Figure, interval: &Interval| match figure.measure {
        Measure::Share => words::percent(interval.estimate),
        Measure::Bits => format!("{:.1} bits", interval.estimate),
        _ => format!("{:.3}", interval.estimate),
    };
    let mut groups = Vec::new();
    for figure in &run.audit.all {
        let drawn_intervals =
            [(Some(&figure.run), "this run"), (figure.non_private.as_ref(), "non-private")];
        let drawn_intervals: Vec<(&Interval, &str)> = drawn_intervals
            .into_iter()
            .filter_map(|(interval, name)| Some((interval?, name)))
            .filter(|(interval, _)| interval.estimate.is_finite())
            .collect();
        let most = match figure.measure {
            Measure::Bits => {
                drawn_intervals.iter().map(|(interval, _)| interval.estimate).fold(1e-9, f64::max)
            }
            _ => 1.0,
        };
        let drawn = drawn_intervals.into_iter().map(|(interval, name)| {
            let mut drawn = bar(run, interval.estimate / most, shown(figure, interval));
            if name == "non-private" {
                (drawn.series, drawn.name) = (1, name.to_owned());
            }
            drawn
        });
        groups.extend(group(&figure.attack, drawn.collect()));
    }
    groups
}
