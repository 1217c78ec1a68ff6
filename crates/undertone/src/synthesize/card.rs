//! The data card: README.md beside the synthetic rows. It is published with them, so it contains
//! only what the guarantee covers, and figures computed from the synthetic rows alone.

use crate::train::card::{base, guaranteed, table};
use undertone_run::{SampledFacts, Statistics, Summary};

/// The card, as Markdown.
pub fn card(summary: &Summary, statistics: &Statistics, facts: &SampledFacts) -> String {
    let parts = [
        metadata(summary),
        format!("# {}\n", title(summary)),
        guaranteed(summary),
        made(summary, statistics, facts),
        not_promised(summary.private),
    ];
    parts.join("\n")
}

fn metadata(summary: &Summary) -> String {
    let private = if summary.private { "- differential-privacy\n" } else { "" };
    format!("---\ntags:\n- undertone\n- synthetic\n{private}---\n")
}

fn title(summary: &Summary) -> &'static str {
    match summary.private {
        true => "Synthetic rows, with differential privacy",
        false => "Synthetic rows, without a privacy guarantee",
    }
}

fn made(summary: &Summary, statistics: &Statistics, facts: &SampledFacts) -> String {
    let rejected: u64 = facts.rejected.values().sum();
    let mut rows = vec![
        ("base model", base(summary)),
        ("rows", facts.rows.to_string()),
        ("columns", facts.columns.join(", ")),
        ("sampled texts", format!("{} ({rejected} rejected)", facts.attempts)),
        ("temperature", facts.temperature.to_string()),
        ("top-p", facts.top_p.to_string()),
        ("tokens per text, at most", facts.most_tokens.to_string()),
    ];
    if let Some(section) = summary.plan.synthesis.as_ref().filter(|_| summary.private) {
        rows.push(("share of ε for histograms", section.statistics_share.to_string()));
    }
    if let Some(std) = statistics.noise_std {
        rows.push(("noise on each count, std", format!("{std:.2}")));
    }
    let mut text = format!(
        "## How the rows were made\n\nA language model was fine-tuned on the private rows and then \
         sampled. The number of rows per class and the length limit were computed from histograms{}. \
         Texts were rejected only if malformed.\n\n{}",
        if summary.private { " that were released with noise" } else { "" },
        table(&rows)
    );
    let codes: Vec<&str> = statistics.codes.iter().map(String::as_str).collect();
    let values = statistics.classes.iter().map(|class| class.values.as_slice());
    text += &table_of_classes(&codes, values, &facts.rows_by_class);
    text
}

/// The number of rows of each class; nothing without control codes.
pub fn table_of_classes<'a>(
    codes: &[&str],
    values: impl Iterator<Item = &'a [String]>,
    rows_by_class: &[u64],
) -> String {
    if codes.is_empty() {
        return String::new();
    }
    let named: Vec<(String, u64)> =
        values.map(|values| values.join(", ")).zip(rows_by_class.iter().copied()).collect();
    let rows: Vec<(&str, String)> =
        named.iter().map(|(class, rows)| (class.as_str(), rows.to_string())).collect();
    format!("\n## Rows by {}\n\n{}", codes.join(", "), table(&rows))
}

pub fn not_promised(is_private: bool) -> String {
    let heading = "## What is not guaranteed\n\n";
    if !is_private {
        return format!(
            "{heading}Anything. The rows may repeat private rows word for word. Do not publish them \
             if the data are private.\n"
        );
    }
    let items = [
        "That a row is true: rows are invented, and names or numbers in them may belong to somebody \
         by chance.",
        "That the rows reveal nothing about the data as a whole: they show what many rows have in \
         common.",
        "The same ε for a group: k units together are protected with k times ε, and a larger δ.",
        "Anything about other releases from the same data: their budgets add up.",
        "That what is learned from the rows holds for the data.",
    ];
    format!("{heading}{}", items.map(|item| format!("- {item}\n")).concat())
}
