//! Privacy budget spent: noise multipliers, and ε by entries of the ledger.

use crate::chart::{Axis, Mark, Plot, Series};
use crate::document::{Section, Table};
use crate::error::Result;
use crate::folder::Run;
use crate::settings::words_of;
use crate::words::{self, short};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::rounded_up;
use undertone_run::{NoiseCorrelation, ReleaseKind};

/// Number of points of the curve.
const POINTS: u64 = 20;

pub fn section(run: &Run, level: u8) -> Result<Option<Section>> {
    let (Some(guarantee), Some(ledger)) = (&run.guarantee, &run.ledger) else { return Ok(None) };
    let section = Section::new(level, "How the privacy budget was spent");
    let schedule = &run.summary.resolved.noise_multipliers;
    let section = section.paragraph(in_words(run));
    let section = match schedule.windows(2).any(|pair| pair[0] != pair[1]) {
        true => section.chart(noise(schedule)?),
        false => section,
    };
    if ledger.entries() < 3 {
        let entries = words::times(ledger.entries(), "entry").replace("entrys", "entries");
        return Ok(Some(
            section.paragraph(format!("The ledger records all releases in {entries}.")),
        ));
    }
    let history = Ledger::history(run.ledger_path(), guarantee.delta, POINTS)?;
    let points: Vec<(f64, f64)> = std::iter::once((0.0, 0.0))
        .chain(history.iter().map(|(n, g)| (*n as f64, g.epsilon.upper)))
        .collect();
    let rows =
        history.iter().map(|(n, g)| vec![words::count(*n), rounded_up(g.epsilon.upper)]).collect();
    let plot = Plot {
        x: Axis::linear("entries of the ledger", 0.0, ledger.entries() as f64, |x| {
            words::count(x as u64)
        }),
        y: Axis::linear("ε, at most", 0.0, 1.08 * guarantee.epsilon.upper, short),
        series: vec![Series::new("ε spent", 0, Mark::Line, points)],
    };
    let description = format!(
        "The certified upper bound on ε at δ = {}, after each part of the entries; it ends at {}.",
        words::small(guarantee.delta),
        rounded_up(guarantee.epsilon.upper)
    );
    let table = Table::new("ε spent", &["entries of the ledger", "ε, at most"], rows);
    Ok(Some(section.chart(plot.chart("ε over the course of training", &description, table)?)))
}

fn in_words(run: &Run) -> String {
    let resolved = &run.summary.resolved;
    let noise = match resolved.noise_multipliers.as_slice() {
        [] => String::new(),
        [first, rest @ ..] if rest.iter().all(|s| s == first) => {
            format!("The noise multiplier is {} in every epoch.", words::number(*first))
        }
        all if run.summary.plan.privacy.noise_multipliers.is_some() => {
            let all: Vec<String> = all.iter().map(|&noise| words::number(noise)).collect();
            format!("The noise multipliers of the epochs are {}.", all.join(", "))
        }
        [first, rest @ ..] => format!(
            "The noise multiplier goes from {} in the first epoch to {} in the last ({}).",
            words::number(*first),
            words::number(rest.last().copied().unwrap_or(*first)),
            words_of(&run.summary.plan.privacy.schedule)
        ),
    };
    match (&resolved.releases, resolved.sampling_rate) {
        (Some(releases), _) => format!(
            "The perturbed embedding of each example is released {}; its ℓ2 sensitivity to \
             replacing the example is {} times the norm bound. {noise}",
            match releases.release {
                ReleaseKind::Once => "once",
                ReleaseKind::Path =>
                    "in every epoch, with correlated noise that costs no more than the release \
                     with the least noise",
                ReleaseKind::Fresh => "in every epoch, with independent noise",
            },
            short(releases.sensitivity)
        ),
        (None, Some(rate)) => match (run.summary.plan.privacy.correlation, resolved.examples) {
            (_, Some(examples)) => format!(
                "Poisson sampling of examples: each step includes every example independently with \
                 probability {}, clips its gradient, and adds noise to the sum. A person may be in \
                 a step with each of at most {} examples, which the accountant allows for. {noise}",
                words::number(rate),
                examples.per_user
            ),
            (None, None) => format!(
                "Poisson sampling: each step includes every privacy unit independently with \
                 probability {}, clips its gradient, and adds noise to the sum. {noise}",
                words::number(rate)
            ),
            (Some(NoiseCorrelation { bands }), None) => format!(
                "Correlated noise (banded matrix factorization): units are split into {bands} \
                 random groups. Steps draw from one group after the other, each of its units \
                 independently with probability {}, clip its gradient, and add noise to the sum, \
                 part of which later steps cancel. Each entry of the ledger is for {bands} steps. \
                 {noise}",
                words::number(rate)
            ),
        },
        (None, None) => noise,
    }
}

/// Step chart of the noise multiplier of each epoch.
fn noise(schedule: &[f64]) -> Result<crate::chart::Chart> {
    let corners = |(epoch, &s): (usize, &f64)| [(epoch as f64, s), (epoch as f64 + 1.0, s)];
    let points: Vec<(f64, f64)> = schedule.iter().enumerate().flat_map(corners).collect();
    let top = schedule.iter().copied().fold(0.0, f64::max);
    let plot = Plot {
        x: Axis::linear("epochs passed", 0.0, schedule.len() as f64, short),
        y: Axis::linear("noise multiplier", 0.0, 1.1 * top, short),
        series: vec![Series::new("noise multiplier", 0, Mark::Line, points)],
    };
    let rows = schedule
        .iter()
        .zip(1..)
        .map(|(s, epoch)| vec![epoch.to_string(), format!("{s:.6}")])
        .collect();
    let table = Table::new("Noise schedule", &["epoch", "noise multiplier"], rows);
    plot.chart(
        "Noise schedule",
        "Noise multiplier of each epoch: noise std over the norm bound of a privacy unit.",
        table,
    )
}
