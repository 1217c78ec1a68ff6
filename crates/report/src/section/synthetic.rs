//! Synthetic rows that the run's model has written, and figures about them.

use crate::document::{Block, Section, Table};
use crate::folder::Run;
use crate::words;
use undertone_run::Audience;

pub fn section(run: &Run, level: u8) -> Option<Section> {
    let synthetic = run.synthetic.as_ref()?;
    let facts = &synthetic.facts;
    let rejected: u64 = facts.rejected.values().sum();
    let mut rows = vec![
        ("Rows", words::count(facts.rows)),
        ("Columns", facts.columns.join(", ")),
        ("Sampled texts", words::count(facts.attempts)),
        ("Rejected as malformed", words::count(rejected)),
        ("Temperature", facts.temperature.to_string()),
        ("Top-p", facts.top_p.to_string()),
        ("Tokens per text, at most", words::count(facts.most_tokens)),
    ];
    rows.extend(synthetic.noise_std.map(|std| ("Noise on each count, std", words::number(std))));
    let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let how = match run.no_guarantee() {
        None => {
            "The model wrote these rows. Quotas and the length limit were computed from histograms \
             that were released with noise, as the ledger's first entry; sampling, and rejecting \
             malformed texts, cost nothing more."
        }
        Some(_) => "The model wrote these rows, which may repeat private ones.",
    };
    let mut section = Section::new(level, "Synthetic rows").paragraph(how).with(Block::Facts(rows));
    let evaluation = &synthetic.evaluation;
    if !evaluation.figures.is_empty() {
        let row = |figure: &undertone_run::Figure| {
            let seen_by = match figure.seen_by {
                Audience::Public => "public",
                Audience::Private => "curator only",
            };
            let value = words::number(figure.value);
            vec![figure.name.clone(), figure.of.clone(), value, seen_by.to_owned()]
        };
        let body = evaluation.figures.iter().map(row).collect();
        let head = ["figure", "of", "value", "audience"];
        section = section.with(Block::Table(Table::new("Figures about the rows", &head, body)));
        for assumption in &evaluation.assumptions {
            section = section.paragraph(format!("Public figures assume that {assumption}."));
        }
    }
    Some(section)
}
