//! What attacks on the run found, beside what the guarantee allows.

use crate::document::{Block, Section, Standing, Table};
use crate::error::Result;
use crate::folder::{Attack, Exposed, Interval, OneRun, Run};
use crate::words;
use undertone_accounting::{Accountant, rounded_up, trade_off};

pub fn section(run: &Run, level: u8) -> Result<Option<Section>> {
    let audit = &run.audit;
    let mut section = Section::new(level, "What attacks found");
    if audit.membership.is_empty() && audit.one_run.is_none() && audit.exposure.is_empty() {
        return Ok(None);
    }
    if !audit.membership.is_empty() {
        section = membership(section, run)?;
    }
    if let Some(found) = &audit.one_run {
        section = one_run(section, run, found)?;
    }
    if !audit.exposure.is_empty() {
        section = section.with(Block::Table(exposure(&audit.exposure))).paragraph(
            "Exposure is the number of bits of a planted secret that the model gives away; a secret that it never saw has 1.4 on average.",
        );
    }
    Ok(Some(section))
}

fn share(interval: &Interval) -> String {
    let Interval { lower, estimate, upper } = interval;
    format!("{:.1} % ({:.1} to {:.1})", 100.0 * estimate, 100.0 * lower, 100.0 * upper)
}

fn membership(section: Section, run: &Run) -> Result<Section> {
    let attacks = &run.audit.membership;
    let row = |attack: &Attack| {
        let Interval { lower, estimate, upper } = attack.auc;
        vec![
            attack.attack.clone(),
            format!("{estimate:.3} ({lower:.3} to {upper:.3})"),
            share(&attack.rate_at_1_percent),
            share(&attack.rate_at_0_1_percent),
        ]
    };
    let mut rows: Vec<Vec<String>> = attacks.iter().map(row).collect();
    let guaranteed = run.ledger.as_ref().filter(|_| run.no_guarantee().is_none());
    if let Some(points) =
        guaranteed.and_then(|ledger| trade_off(ledger.spent(), &[0.01, 0.001], Accountant::Auto).ok())
    {
        let most = |i: usize| words::percent_up(points[i].true_positive_rate.upper);
        rows.push(vec!["any attack, at most, by the guarantee".to_owned(), "–".to_owned(), most(0), most(1)]);
    }
    let head = ["attack", "AUC", "found at 1 % false alarms", "found at 0.1 % false alarms"];
    let (members, others) = attacks.first().map_or((0, 0), |a| (a.members, a.others));
    Ok(section
        .with(Block::Table(Table::new("Membership: was this example trained on?", &head, rows)))
        .paragraph(format!(
            "{} examples that were trained on and {} that were not; intervals in brackets. An area under the curve (AUC) of 0.5 is guessing. What the untouched model alone can tell, training did not give away.",
            words::count(members),
            words::count(others)
        )))
}

/// The lower bound from canaries must not be above what the ledger proves at the same δ.
fn one_run(section: Section, run: &Run, found: &OneRun) -> Result<Section> {
    let mut facts = vec![
        (
            "Canaries".to_owned(),
            format!(
                "{}, {} coins guessed, {} right",
                words::count(found.canaries),
                found.guesses,
                found.right
            ),
        ),
        (
            "ε, at least".to_owned(),
            format!(
                "{:.4} at δ = {}, with {:.0} % confidence",
                (found.epsilon_lower * 1e4).floor() / 1e4,
                words::small(found.delta),
                100.0 * found.confidence
            ),
        ),
    ];
    let section = section
        .paragraph("One training run with canaries, each in or out by a fair coin, bounds ε from below:");
    let Some(ledger) = run.ledger.as_ref().filter(|_| run.no_guarantee().is_none()) else {
        return Ok(section.with(Block::Facts(facts)));
    };
    let proved = ledger.guarantee(found.delta)?.epsilon.upper;
    facts.push(("ε, proved, at most".to_owned(), format!("{} at the same δ", rounded_up(proved))));
    let section = section.with(Block::Facts(facts));
    if found.epsilon_lower <= proved {
        return Ok(section.paragraph("The audit is in keeping with the guarantee."));
    }
    Ok(section.with(Block::Statement {
        standing: Standing::Nothing,
        sentence: "The audit contradicts the guarantee: the lower bound is above the proved ε.".to_owned(),
        meaning: vec![
            "Something is wrong in the training, in the ledger or in the audit. Do not release the model."
                .to_owned(),
        ],
    }))
}

fn exposure(secrets: &[Exposed]) -> Table {
    let row = |secret: &Exposed| {
        let note = if secret.trained.exact { "" } else { " (estimate)" };
        vec![
            secret.text.clone(),
            format!("{:.1}{note}", secret.trained.bits),
            format!("{:.1}", secret.untouched.bits),
            format!("{:.1}", secret.trained.most),
        ]
    };
    let head = ["secret", "exposure, bits", "of the untouched model", "at most"];
    Table::new("Exposure of planted secrets", &head, secrets.iter().map(row).collect())
}
