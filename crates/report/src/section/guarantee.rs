//! The differential privacy guarantee, in one sentence and in full.

use crate::document::{Block, Section, Standing};
use crate::folder::Run;
use crate::words;
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Accountant, Adjacency, Guarantee, Mode, Threat, rounded_up, trade_off};
use undertone_run::Stopped;

pub fn section(run: &Run, level: u8) -> Section {
    let section = Section::new(level, "What is guaranteed").with(statement(run));
    let (Some(guarantee), Some(ledger)) = (&run.guarantee, &run.ledger) else {
        return section.paragraph(
            "The run is non-private: it added no noise and has no ledger. Anybody who has the \
             model, or sees its predictions, may learn anything about the training data.",
        );
    };
    let section = section.with(Block::Facts(in_full(run, guarantee, ledger)));
    let held = match run.no_guarantee() {
        None => "The guarantee holds if:",
        Some(_) => "Assumptions of the ledger, which do not make it a guarantee:",
    };
    let mut assumptions = guarantee.assumptions.clone();
    assumptions.extend(run.summary.trusted_network());
    let section = section.paragraph(held).with(Block::List(assumptions));
    match run.summary.stopped.as_ref().and_then(Stopped::caveat) {
        Some(caveat) => {
            section.note(format!("The run was stopped before its last planned step. {caveat}"))
        }
        None => section,
    }
}

/// The guarantee in one sentence, or a statement that there is none.
fn statement(run: &Run) -> Block {
    if let Some(why) = run.no_guarantee() {
        let mut meaning = Vec::new();
        if let Some(claim) = &run.summary.claimed {
            meaning.push(format!(
                "The method's own paper would claim ε = {:.4} at δ = {}; this is not proved for \
                 this run.",
                claim.epsilon,
                words::small(claim.delta)
            ));
        }
        // In modes other than proved, the ledger's sentence states that it is not a guarantee.
        if let Some(guarantee) = run.guarantee.as_ref().filter(|g| g.mode != Mode::Proved) {
            meaning.push(format!("The ledger states: {guarantee}."));
        }
        return Block::Statement {
            standing: Standing::NoGuarantee,
            sentence: format!("There is no guarantee for the people in the data: {why}."),
            meaning,
        };
    }
    let Some((guarantee, ledger)) = run.guarantee.as_ref().zip(run.ledger.as_ref()) else {
        return Block::Statement {
            standing: Standing::NoGuarantee,
            sentence: "Nothing is guaranteed: there is no ledger.".to_owned(),
            meaning: Vec::new(),
        };
    };
    Block::Statement {
        standing: Standing::Guaranteed,
        sentence: format!("{guarantee}."),
        meaning: [found_at_most(guarantee, ledger), Some(likelier_at_most(guarantee))]
            .into_iter()
            .flatten()
            .collect(),
    }
}

/// Bound on the true positive rate of any attacker at a false positive rate of 1 %, in plain words.
fn found_at_most(guarantee: &Guarantee, ledger: &Ledger) -> Option<String> {
    let point = *trade_off(ledger.spent(), &[0.01], Accountant::Auto).ok()?.first()?;
    let most = words::percent_up(point.true_positive_rate.upper);
    let sees = match guarantee.threat {
        Threat::Central => "sees every update and the final weights",
        Threat::Local => "sees every perturbed embedding",
    };
    let units = words::several(guarantee.unit);
    Some(match guarantee.adjacency {
        Adjacency::AddRemove => format!(
            "In plain words: somebody who {sees}, and who wrongly suspects 1 in 100 of the {units} \
             that were not in the data, finds at most {most} of those that were."
        ),
        Adjacency::ReplaceOne => format!(
            "In plain words: somebody who {sees}, and who wrongly identifies 1 in 100 others as \
             the target, recognizes the target in at most {most} of all cases."
        ),
    })
}

/// The definition of (ε, δ)-DP in plain words.
fn likelier_at_most(guarantee: &Guarantee) -> String {
    let unit = words::one(guarantee.unit);
    let between = match guarantee.adjacency {
        Adjacency::AddRemove => format!("with {unit} in the data as without, or without as with"),
        Adjacency::ReplaceOne => format!("with {unit} as with any other in its place"),
    };
    format!(
        "Whatever can be seen is at most {} times (e to the power of ε) as likely {between}, plus \
         a probability of {} (δ).",
        words::factor(guarantee.epsilon.upper),
        words::small(guarantee.delta)
    )
}

fn in_full(run: &Run, guarantee: &Guarantee, ledger: &Ledger) -> Vec<(String, String)> {
    let holds = run.no_guarantee().is_none();
    let mut facts = vec![
        (
            if holds { "ε, proved" } else { "ε of the ledger alone" },
            format!("at most {}", rounded_up(guarantee.epsilon.upper)),
        ),
        ("Certified interval of ε", words::interval(&guarantee.epsilon)),
        ("δ", words::small(guarantee.delta)),
    ];
    if let Some(claim) = &run.summary.claimed {
        facts.push((
            "ε, claimed by the paper",
            format!("{:.4} at δ = {}; not proved", claim.epsilon, words::small(claim.delta)),
        ));
    }
    facts.extend([
        ("Privacy unit", words::unit(guarantee.unit).to_owned()),
        ("Adjacency", words::adjacency(guarantee.adjacency).to_owned()),
        ("Threat model", words::threat(guarantee.threat).to_owned()),
        ("Mode", words::mode(guarantee.mode).to_owned()),
        (
            "Ledger",
            format!(
                "{} entries, {} releases",
                words::count(ledger.entries()),
                words::count(ledger.spent().releases())
            ),
        ),
    ]);
    if ledger.torn_lines() > 0 {
        facts.push(("Torn lines, counted as spent", words::count(ledger.torn_lines())));
    }
    facts.push(("Hash of the ledger", ledger.hash().to_owned()));
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
