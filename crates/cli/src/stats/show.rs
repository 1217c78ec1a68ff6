//! Private statistics on the screen.

use crate::output::{self, Output};
use serde_json::json;
use undertone::statistics::{LengthUnit, Statistics};
use undertone_accounting::Guarantee;
use undertone_run::StatisticsPaths;

/// Number of words shown on the screen.
const SHOWN_WORDS: usize = 12;

/// Half the width of a 95 % interval, in standard deviations.
const IN_95_PERCENT: f64 = 1.96;

pub fn show(
    statistics: &Statistics,
    guarantee: Option<&Guarantee>,
    paths: &StatisticsPaths,
    output: Output,
) {
    if output.json {
        output::json(&json!({
            "statistics": statistics,
            "guarantee": guarantee,
            "file": paths.statistics(),
            "ledger": paths.ledger(),
        }));
        return;
    }
    let names = ["statistic", "with noise"];
    output::table(&names, &rows(statistics));
    let noise = IN_95_PERCENT * statistics.noise_std;
    output::line(format_args!(
        "\nEvery sum over units has Gaussian noise, 95 % of it within ±{noise:.1}. A unit with many \
         rows counts as one."
    ));
    if statistics.units.is_some_and(|units| units * statistics.delta > 0.1) {
        output::line(format_args!(
            "δ = {:e} is not well below 1 / number of units: use a smaller --delta on other data.",
            statistics.delta
        ));
    }
    if let Some(guarantee) = guarantee {
        output::line(format_args!("{guarantee}."));
    }
    let (file, ledger) = (paths.statistics(), paths.ledger());
    output::line(format_args!("Written: {}, {}.", file.display(), ledger.display()));
}

fn rows(statistics: &Statistics) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, value: String| rows.push(vec![name, value]);
    let whole = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
    if let Some(units) = statistics.units {
        row("units".to_owned(), format!("{:.0}", units.max(0.0)));
    }
    if let Some(rows) = &statistics.rows_per_unit {
        row("rows per unit, median at most".to_owned(), whole(rows.median));
        row("rows per unit, 90 % have at most".to_owned(), whole(rows.p90));
    }
    for share in statistics.labels.iter().flatten() {
        let name = share.label.as_ref().map_or("other labels".to_owned(), |l| format!("label {l}"));
        row(name, percent(share.share));
    }
    if let Some(length) = &statistics.length {
        let unit = match length.measured_in {
            LengthUnit::Bytes => "bytes",
            LengthUnit::Tokens => "tokens",
        };
        row(format!("length in {unit}, median at most"), whole(length.median));
        row(format!("length in {unit}, 90 % have at most"), whole(length.p90));
        row(format!("length in {unit}, 99 % have at most"), whole(length.p99));
    }
    if let Some(quality) = &statistics.quality {
        row("empty rows".to_owned(), percent(quality.empty));
        row("damaged rows".to_owned(), percent(quality.damaged));
    }
    if let Some(words) = &statistics.vocabulary {
        row("common words".to_owned(), words.len().to_string());
        let most: Vec<&str> =
            words.iter().take(SHOWN_WORDS).map(|word| word.word.as_str()).collect();
        row("the most common".to_owned(), most.join(" "));
    }
    rows
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
