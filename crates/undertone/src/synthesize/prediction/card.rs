//! The data card of private prediction: README.md beside the rows.

use super::Prediction;
use crate::synthesize::Classes;
use crate::synthesize::card::{not_promised, table_of_classes};
use crate::train::card::{guarantee_of, table};
use undertone_accounting::Guarantee;
use undertone_run::{SampledFacts, last_component};

/// The card, as Markdown.
pub fn card(
    prediction: &Prediction,
    classes: &Classes,
    (guarantee, ledger_hash): (&Guarantee, &str),
    facts: &SampledFacts,
) -> String {
    let reason = prediction.not_private_because();
    let is_private = reason.is_none();
    let (tag, title) = match is_private {
        true => ("- differential-privacy\n", "with differential privacy"),
        false => ("", "without a privacy guarantee"),
    };
    let parts = [
        format!("---\ntags:\n- undertone\n- synthetic\n{tag}---\n"),
        format!("# Synthetic rows, {title}\n"),
        guarantee_of(guarantee, reason.as_deref(), ledger_hash),
        made(prediction, classes, facts),
        not_promised(is_private),
    ];
    parts.join("\n")
}

fn made(prediction: &Prediction, classes: &Classes, facts: &SampledFacts) -> String {
    let choice = prediction.choice();
    let rejected: u64 = facts.rejected.values().sum();
    let model = last_component(&prediction.model);
    let rows = [
        ("model", model.to_owned()),
        ("rows", facts.rows.to_string()),
        ("columns", facts.columns.join(", ")),
        ("written texts", format!("{} ({rejected} rejected)", facts.attempts)),
        ("units per text, expected", format!("{:.1}", choice.divisor)),
        ("clip of log-probabilities", format!("{:.3}", choice.clip)),
        ("temperature", facts.temperature.to_string()),
        ("tokens per text, at most", facts.most_tokens.to_string()),
    ];
    let codes: Vec<&str> = classes.columns.iter().map(String::as_str).collect();
    let values = classes.classes.iter().map(|class| class.values.as_slice());
    format!(
        "## How the rows were made\n\nA public language model read private rows and wrote new ones. \
         Each privacy unit influenced one text, through clipped changes of token log-probabilities. \
         The number of rows of each class was fixed beforehand. Texts were rejected only if \
         malformed.\n\n{}{}",
        table(&rows),
        table_of_classes(&codes, values, &facts.rows_by_class)
    )
}
