//! Evaluation of the model on the validation file, and learning curves.

use crate::chart::{Axis, Chart, Mark, Plot, Series};
use crate::document::{Block, Section, Table};
use crate::error::Result;
use crate::folder::Run;
use crate::words;
use crate::words::short;
use undertone_run::{ClassificationMetrics, LanguageMetrics, Metrics, Record};

pub fn section(run: &Run, level: u8) -> Result<Option<Section>> {
    let measured = &run.summary.metrics;
    let mut section = Section::new(level, "Evaluation");
    if let Some(measures) = &measured.validation {
        section = section
            .with(Block::Facts(figures(measures)))
            .paragraph(use_of_validation(&run.summary.selection));
    } else if run.hides_metrics() {
        section = section.paragraph(
            "The figures are left out: they are public if the run is private and its validation \
             file is declared public (data.validation_is_public).",
        );
    } else {
        section =
            section.paragraph("The run had no validation file, so the model was not evaluated.");
    }
    for metric in &run.summary.released_metrics {
        section = section.paragraph(format!(
            "Released with noise after epoch {}: {metric} (95 %) on the validation file. The \
             ledger has this release, and ε covers it.",
            metric.epoch
        ));
    }
    if let Some(measures) = &measured.validation_with_noise {
        section = section.paragraph(format!(
            "With perturbed embeddings of the validation texts (noise as in training), {} is {}.",
            measures.name(),
            measures.shown()
        ));
    }
    if let Some(chart) = by_epoch(&run.records)? {
        section = section.chart(chart);
    }
    if let Some(chart) = losses(&run.records)? {
        section = section.chart(chart);
    }
    if let Some(table) = measured
        .validation
        .as_ref()
        .and_then(|m| confusion(m, run.summary.plan.data.labels.as_deref()))
    {
        section = section.with(Block::Table(table));
    }
    Ok(Some(section))
}

fn figures(measures: &Metrics) -> Vec<(String, String)> {
    let named = |facts: Vec<(&str, String)>| {
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    match measures {
        Metrics::Classification(ClassificationMetrics { examples, f1, loss, .. }) => named(vec![
            ("Accuracy", measures.shown()),
            ("F1", format!("{f1:.4}")),
            ("Loss", words::number(*loss)),
            (
                "Measured on",
                format!("{} examples of the validation file", words::count(*examples as u64)),
            ),
        ]),
        Metrics::Language(LanguageMetrics { examples, tokens, loss, .. }) => named(vec![
            ("Perplexity", measures.shown()),
            ("Loss per token", words::number(*loss)),
            (
                "Measured on",
                format!(
                    "{} texts with {} tokens of the validation file",
                    words::count(*examples as u64),
                    words::count(*tokens as u64)
                ),
            ),
        ]),
    }
}

/// Validation accuracy or perplexity after each epoch.
fn by_epoch(records: &[Record]) -> Result<Option<Chart>> {
    let points: Vec<(f64, &Metrics)> =
        records.iter().filter_map(|r| Some((r.epoch as f64, r.validation.as_ref()?))).collect();
    let Some((_, first)) = points.first().filter(|_| points.len() > 1) else { return Ok(None) };
    let name = first.name();
    let format: fn(f64) -> String = match first {
        Metrics::Classification(_) => |x| format!("{} %", short(x)),
        Metrics::Language(_) => short,
    };
    let figures: Vec<(f64, f64)> = points.iter().map(|(epoch, m)| (*epoch, m.main())).collect();
    let last = points.iter().map(|p| p.0).fold(1.0, f64::max);
    let plot = Plot {
        x: Axis::linear("epoch", 0.0, last, short),
        y: Axis::around(name, figures.iter().map(|p| p.1), format),
        series: vec![Series::new(format!("{name}, validation"), 0, Mark::Beads, figures)],
    };
    let rows = points
        .iter()
        .map(|(epoch, m)| vec![format!("{epoch}"), m.shown(), words::number(m.loss())])
        .collect();
    let title = format!("{} after each epoch", capital(name));
    let table = Table::new(title.clone(), &["epoch", name, "loss"], rows);
    Ok(Some(plot.chart(&title, "Measured on the validation file.", table)?))
}

/// Maximum number of points of the training loss; each is a mean over equally many steps.
const POINTS: usize = 60;

/// Training loss by step and validation loss by epoch; `None` without training losses.
fn losses(records: &[Record]) -> Result<Option<Chart>> {
    let every = records.len().div_ceil(POINTS).max(1);
    let mean = |steps: &[Record]| {
        let losses: Vec<f64> = steps.iter().filter_map(|r| r.loss).collect();
        let step = steps.last().map_or(0, |r| r.step) as f64;
        (!losses.is_empty()).then(|| (step, losses.iter().sum::<f64>() / losses.len() as f64))
    };
    let training: Vec<(f64, f64)> = records.chunks(every).filter_map(mean).collect();
    let validation: Vec<(f64, f64)> = records
        .iter()
        .filter_map(|r| Some((r.step as f64, r.validation.as_ref()?.loss())))
        .collect();
    if training.len() < 2 {
        return Ok(None);
    }
    let all = || training.iter().chain(&validation);
    let last = all().map(|p| p.0).fold(1.0, f64::max);
    let row = |name: &str, p: &(f64, f64)| {
        vec![words::count(p.0 as u64), name.to_owned(), words::number(p.1)]
    };
    let rows = training
        .iter()
        .map(|p| row("training", p))
        .chain(validation.iter().map(|p| row("validation", p)))
        .collect();
    let mut series = vec![Series::new("training", 0, Mark::Line, training.clone())];
    if !validation.is_empty() {
        series.push(Series::new("validation", 1, Mark::Discs, validation.clone()));
    }
    let plot = Plot {
        x: Axis::linear("step", 0.0, last, |x| words::count(x as u64)),
        y: Axis::around("loss", all().map(|p| p.1), short),
        series,
    };
    let description = match every {
        1 => "The mean loss of each training step, and of the validation file after each epoch."
            .to_owned(),
        _ => format!(
            "The mean loss of {every} training steps at a time, and of the validation file after \
             each epoch."
        ),
    };
    Ok(Some(plot.chart(
        "Loss",
        &description,
        Table::new("Loss", &["step", "file", "loss"], rows),
    )?))
}

/// The confusion matrix, if it has at most 12 classes.
fn confusion(measures: &Metrics, labels: Option<&[String]>) -> Option<Table> {
    let Metrics::Classification(ClassificationMetrics { confusion, .. }) = measures else {
        return None;
    };
    if confusion.is_empty() || confusion.len() > 12 {
        return None;
    }
    let name = |class: usize| {
        labels.and_then(|l| l.get(class).cloned()).unwrap_or_else(|| format!("class {class}"))
    };
    let head = std::iter::once("truth".to_owned()).chain((0..confusion.len()).map(name));
    let row = |(class, counts): (usize, &Vec<u64>)| {
        std::iter::once(name(class)).chain(counts.iter().map(|n| words::count(*n))).collect()
    };
    Some(Table {
        title: "Confusion matrix: a row for each true class, a column for each predicted class"
            .to_owned(),
        head: head.collect(),
        rows: confusion.iter().enumerate().map(row).collect(),
    })
}

/// How the validation file was used, as a sentence; the summary's version begins with the file's
/// name.
fn use_of_validation(selection: &str) -> String {
    match selection.starts_with("no ") {
        true => format!("{}.", capital(selection)),
        false => format!("The file {selection}."),
    }
}

/// The name with a capital first letter.
pub fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
