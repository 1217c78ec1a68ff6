//! Results of audits: attacks on the run, next to the bounds implied by the guarantee.

use crate::document::{Block, Section, Table};
use crate::error::Result;
use crate::folder::Run;
use crate::settings::words_of;
use crate::words;
use undertone_accounting::{Accountant, rounded_up, trade_off};
use undertone_run::audit::{
    ExposureOfKind, Extraction, Figure, Interval, Measure, Membership, OneRun,
    ReconstructionOfKind, SecretExposure,
};

pub fn section(run: &Run, level: u8) -> Result<Option<Section>> {
    let audit = &run.audit;
    if audit.is_empty() {
        return Ok(None);
    }
    let mut section = Section::new(level, "What attacks found");
    if !audit.membership.is_empty() {
        section = membership(section, run);
    }
    if let Some(result) = &audit.one_run.map(|one_run| one_run.found) {
        section = one_run(section, run, result)?;
    }
    if !audit.exposure.is_empty() {
        section = section.with(Block::Table(exposure(&audit.exposure))).paragraph(
            "Exposure is the number of bits of a planted secret (canary) that the model reveals; \
             a secret that it never saw has 1.4 on average.",
        );
    }
    if !audit.found_exposure.is_empty() {
        section = section.with(Block::Table(found_exposure(&audit.found_exposure))).paragraph(
            "Secrets of the training texts, each ranked among others that could stand in its \
             place. The rank is that of a secret's tokens in the vocabulary.",
        );
    }
    if !audit.extraction.is_empty() {
        section = section.with(Block::Table(extraction(&audit.extraction)));
    }
    if !audit.reconstruction.is_empty() {
        section = section.with(Block::Table(reconstruction(&audit.reconstruction)));
    }
    if !audit.all.is_empty() {
        section = section.with(Block::Table(all(&audit.all)));
    }
    Ok(Some(section))
}

fn bracketed(interval: &Interval, factor: f64, digits: usize, sign: &str) -> String {
    let [lower, estimate, upper] =
        [interval.lower, interval.estimate, interval.upper].map(|x| factor * x);
    match estimate.is_finite() {
        true => format!("{estimate:.digits$}{sign} ({lower:.digits$} to {upper:.digits$})"),
        false => "–".to_owned(),
    }
}

fn share(interval: &Interval) -> String {
    bracketed(interval, 100.0, 1, " %")
}

fn area(interval: &Interval) -> String {
    bracketed(interval, 1.0, 3, "")
}

fn membership(section: Section, run: &Run) -> Section {
    let attacks = &run.audit.membership;
    let row = |attack: &Membership| {
        vec![
            attack.attack.clone(),
            area(&attack.auc),
            share(&attack.rate_at_1_percent),
            share(&attack.rate_at_0_1_percent),
        ]
    };
    let mut rows: Vec<Vec<String>> = attacks.iter().map(row).collect();
    let guaranteed = run.ledger.as_ref().filter(|_| run.no_guarantee().is_none());
    if let Some(points) = guaranteed
        .and_then(|ledger| trade_off(ledger.spent(), &[0.01, 0.001], Accountant::Auto).ok())
    {
        let most = |i: usize| words::percent_up(points[i].true_positive_rate.upper);
        rows.push(vec![
            "any attack, at most, by the guarantee".to_owned(),
            "–".to_owned(),
            most(0),
            most(1),
        ]);
    }
    let head = ["attack", "AUC", "TPR at 1 % FPR", "TPR at 0.1 % FPR"];
    let (members, others) = attacks.first().map_or((0, 0), |a| (a.members, a.others));
    let section = section
        .with(Block::Table(Table::new(
            "Membership inference: was this example in the training data?",
            &head,
            rows,
        )))
        .paragraph(format!(
            "{} members (examples in the training data) and {} non-members; confidence intervals \
             in brackets. An area under the ROC curve (AUC) of 0.5 is random guessing. The true \
             positive rate (TPR) is the share of members found, the false positive rate (FPR) the \
             share of non-members falsely suspected. What the base model alone reveals was not \
             leaked by fine-tuning.",
            words::count(members),
            words::count(others)
        ));
    match run.audit.non_members {
        Some(from) => section.paragraph(from.sentence()),
        None => section,
    }
}

/// The lower bound on ε from canaries, which must not exceed the ledger's upper bound at the same
/// δ.
fn one_run(section: Section, run: &Run, result: &OneRun) -> Result<Section> {
    let mut facts = vec![
        (
            "Canaries".to_owned(),
            format!(
                "{}; {} membership guesses, {} correct",
                words::count(result.canaries),
                result.guesses,
                result.right
            ),
        ),
        (
            "ε, at least".to_owned(),
            format!(
                "{:.4} at δ = {}, with {:.0} % confidence",
                (result.epsilon_lower * 1e4).floor() / 1e4,
                words::small(result.delta),
                100.0 * result.confidence
            ),
        ),
    ];
    let section = section.paragraph(
        "One training run with canaries, each included by a fair coin flip, bounds ε from below:",
    );
    if let Some(ledger) = run.ledger.as_ref().filter(|_| run.summary.private) {
        let proved = ledger.guarantee(result.delta)?.epsilon.upper;
        facts.push((
            "ε of the ledger, at most".to_owned(),
            format!("{} at the same δ", rounded_up(proved)),
        ));
    }
    let section = section.with(Block::Facts(facts));
    if !run.summary.private {
        return Ok(section);
    }
    // A run whose audit contradicts the guarantee has none.
    Ok(match run.no_guarantee() {
        None => section.paragraph("The audit is consistent with the guarantee."),
        Some(why) => section.note(format!("The audit contradicts the guarantee: {why}.")),
    })
}

fn exposure(secrets: &[SecretExposure]) -> Table {
    let row = |secret: &SecretExposure| {
        let note = if secret.trained.exact { "" } else { " (estimate)" };
        vec![
            secret.text.clone(),
            format!("{:.1}{note}", secret.trained.bits),
            format!("{:.1}", secret.pretrained.bits),
            format!("{:.1}", secret.trained.most),
        ]
    };
    let head = ["secret", "exposure, bits", "base model", "maximum"];
    Table::new("Exposure of planted secrets", &head, secrets.iter().map(row).collect())
}

fn found_exposure(kinds: &[ExposureOfKind]) -> Table {
    let bits = |interval: &Interval| bracketed(interval, 1.0, 1, "");
    let row = |of_kind: &ExposureOfKind| {
        vec![
            words_of(&of_kind.kind),
            words::count(of_kind.trained.exposures.len()),
            bits(&of_kind.trained.exposure),
            bits(&of_kind.pretrained.exposure),
            area(&of_kind.trained.mean_reciprocal_rank),
            area(&of_kind.pretrained.mean_reciprocal_rank),
        ]
    };
    let head =
        ["kind", "secrets", "exposure, bits", "base model", "mean reciprocal rank", "base model"];
    Table::new(
        "Exposure of secrets found in the training texts",
        &head,
        kinds.iter().map(row).collect(),
    )
}

fn extraction(kinds: &[Extraction]) -> Table {
    let row = |of_kind: &Extraction| {
        vec![
            words_of(&of_kind.kind),
            words::count(of_kind.in_training),
            words::count(of_kind.written),
            words::count(of_kind.right),
            share(&of_kind.recall),
        ]
    };
    let head = ["kind", "in the training data", "generated", "correct", "recall"];
    let title =
        "Extraction of PII (names, addresses, phone numbers) that the base model does not generate";
    Table::new(title, &head, kinds.iter().map(row).collect())
}

fn reconstruction(kinds: &[ReconstructionOfKind]) -> Table {
    // PII that the base model also fills in has not been leaked by fine-tuning.
    let row = |of_kind: &ReconstructionOfKind| {
        let others = of_kind.not_known_before.as_ref().unwrap_or(&of_kind.trained);
        vec![
            words_of(&of_kind.kind),
            words::count(others.targets),
            share(&others.top_1),
            share(&of_kind.pretrained.top_1),
        ]
    };
    let head = ["kind", "masked", "top-1 accuracy", "base model"];
    Table::new("Reconstruction of masked PII", &head, kinds.iter().map(row).collect())
}

/// All attacks, next to the same attacks on a non-private run and on the base model.
fn all(figures: &[Figure]) -> Table {
    let row = |figure: &Figure| {
        let shown = |interval: &Interval| match figure.measure {
            Measure::Share => share(interval),
            Measure::Bits => bracketed(interval, 1.0, 1, ""),
            _ => area(interval),
        };
        let other = |interval: &Option<Interval>| interval.as_ref().map_or("–".to_owned(), shown);
        let guessing = figure.guessing.map_or("–".to_owned(), |guess| match figure.measure {
            Measure::Share => words::percent(guess),
            _ => format!("{guess:.2}"),
        });
        vec![
            figure.attack.clone(),
            shown(&figure.run),
            other(&figure.non_private),
            other(&figure.pretrained),
            guessing,
        ]
    };
    let head = ["attack", "this run", "non-private run", "base model", "random guessing"];
    Table::new("All attacks", &head, figures.iter().map(row).collect())
}
