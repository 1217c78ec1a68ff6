//! The privacy curve δ(ε), and the trade-off curve that bounds any membership inference attack.

use crate::chart::{Axis, Chart, Ink, Mark, Plot, Series};
use crate::document::{Section, Table};
use crate::error::Result;
use crate::folder::Run;
use crate::words;
use crate::words::short;
use undertone_accounting::{
    Accountant, Adjacency, Composition, Guarantee, curve, epsilon, trade_off,
};
use undertone_run::audit::Membership;

pub fn section(run: &Run, level: u8) -> Result<Option<Section>> {
    let attacks = run.audit.membership.as_slice();
    let (Some(guarantee), Some(ledger)) = (&run.guarantee, &run.ledger) else {
        if attacks.iter().all(|attack| attack.roc.is_empty()) {
            return Ok(None);
        }
        let section = Section::new(level, "What attackers reach").paragraph(
            "No guarantee limits the attacker. The ROC curves are those of the attacks that were \
             tried; a better attack would be above them.",
        );
        return Ok(Some(section.chart(reachable(None, attacks)?)));
    };
    let holds = run.no_guarantee().is_none();
    let mut section = match holds {
        true => Section::new(level, "What an attacker can reach at most"),
        false => Section::new(level, "What the ledger alone would allow").note(
            "These curves cover only the releases in the ledger. The run has no guarantee, so an \
             attacker may reach more.",
        ),
    };
    let spent = ledger.spent();
    section = match reachable(Some((spent, holds)), attacks) {
        Ok(chart) => section.chart(chart),
        Err(why) => section.paragraph(format!("The trade-off curve cannot be computed: {why}.")),
    };
    section = match deltas(spent, guarantee, holds) {
        Ok(chart) => section.chart(chart),
        Err(why) => section.paragraph(format!("The curve of δ over ε cannot be computed: {why}.")),
    };
    Ok(Some(section))
}

/// The trade-off curve (largest true positive rate for each false positive rate) with the ROC
/// curves of the attacks. `bound` holds the ledger's composition, and whether it covers every
/// release.
fn reachable(bound: Option<(&Composition, bool)>, attacks: &[Membership]) -> Result<Chart> {
    let spent = bound.map(|(spent, _)| spent);
    let mut rates = vec![0.0, 0.001, 0.002, 0.005, 0.01];
    rates.extend((1..=40).map(|i| f64::from(i) / 40.0));
    let points = spent
        .map(|spent| trade_off(spent, &rates, Accountant::Auto))
        .transpose()?
        .unwrap_or_default();
    let mut series = Vec::new();
    if spent.is_some() {
        let most =
            points.iter().map(|p| (p.false_positive_rate, p.true_positive_rate.upper)).collect();
        let name = match bound {
            Some((_, false)) => "at most, if the ledger held every release",
            _ => "any attacker, at most",
        };
        series.push(Series::new(name, 0, Mark::Line, most));
    }
    let guess = Series::new("random guessing", 0, Mark::Dashed, vec![(0.0, 0.0), (1.0, 1.0)]);
    series.push(Series { ink: Ink::Faint, ..guess });
    for (attack, ink) in attacks.iter().filter(|attack| !attack.roc.is_empty()).zip(1..) {
        series.push(Series::new(
            format!("attack: {}", attack.attack),
            ink,
            Mark::Thin,
            attack.roc.clone(),
        ));
    }
    let replaced = spent.is_some_and(|spent| spent.adjacency == Adjacency::ReplaceOne);
    let (wrong, right) = match replaced {
        true => ("false positive rate (others taken for it)", "true positive rate (recognized)"),
        false => {
            ("false positive rate (non-members suspected)", "true positive rate (members found)")
        }
    };
    let share = |x: f64| format!("{} %", short(100.0 * x));
    let plot = Plot {
        x: Axis::linear(wrong, 0.0, 1.0, share),
        y: Axis::linear(right, 0.0, 1.0, share),
        series,
    };
    let rows = match spent {
        Some(_) => points
            .iter()
            .map(|p| {
                vec![
                    format!("{} %", short(100.0 * p.false_positive_rate)),
                    words::percent_up(p.true_positive_rate.upper),
                ]
            })
            .collect(),
        None => attacks
            .iter()
            .flat_map(|attack| {
                let every = attack.roc.len().div_ceil(20).max(1);
                attack.roc.iter().step_by(every).map(|(x, y)| {
                    vec![words::percent(*x), words::percent(*y), attack.attack.clone()]
                })
            })
            .collect(),
    };
    let head: &[&str] =
        if spent.is_some() { &[wrong, "TPR, at most"] } else { &[wrong, right, "attack"] };
    let decides = match replaced {
        true => "an example is a certain one or any other",
        false => "one privacy unit was in the training data",
    };
    let description = match bound {
        None => "ROC curves of the attacks that were tried, against random guessing.".to_owned(),
        Some((_, false)) => format!(
            "If the ledger held every release, no attacker who decides whether {decides} would \
             get above the line."
        ),
        Some((_, true)) => {
            let tried = " The ROC curves of the attacks tried should stay below it, up to chance.";
            let tried = if attacks.is_empty() { "" } else { tried };
            format!(
                "No attacker who decides whether {decides}, whatever their side information, gets \
                 above the line.{tried}"
            )
        }
    };
    plot.chart(
        "Trade-off curve: true against false positive rate",
        &description,
        Table::new("Trade-off", head, rows),
    )
}

/// The privacy curve: δ for every ε.
fn deltas(spent: &Composition, guarantee: &Guarantee, holds: bool) -> Result<Chart> {
    const LEAST: f64 = 1e-12;
    const POINTS: u32 = 40;
    let far = epsilon(spent, LEAST, Accountant::Auto)?.epsilon.upper.max(1e-3);
    let steps = std::iter::once(0.02).chain((1..=POINTS).map(f64::from));
    let epsilons: Vec<f64> = steps.map(|i| far * i / f64::from(POINTS)).collect();
    let points = curve(spent, &epsilons, Accountant::Auto)?;
    let upper: Vec<(f64, f64)> =
        points.iter().map(|p| (p.epsilon, p.delta.upper)).filter(|p| p.1 >= LEAST).collect();
    let plot = Plot {
        x: Axis::linear("ε", 0.0, far, short),
        y: Axis::logarithmic("δ, at most", LEAST, 1.0, words::small),
        series: vec![
            Series::new("certified upper bound", 0, Mark::Line, upper.clone()),
            Series::new(
                "as stated",
                1,
                Mark::Discs,
                vec![(guarantee.epsilon.upper, guarantee.delta)],
            ),
        ],
    };
    let rows = upper.iter().map(|p| vec![words::number(p.0), words::small_up(p.1)]).collect();
    let description = match holds {
        true => "Every point of the curve is a guarantee; the one at the run's δ is marked.",
        false => {
            "The curve of the ledger alone; the point at the run's δ is marked. No point of it is \
             a guarantee."
        }
    };
    plot.chart(
        "δ for every ε",
        description,
        Table::new("Privacy curve", &["ε", "δ, at most"], rows),
    )
}
