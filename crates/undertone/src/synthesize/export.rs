//! Writes the folder of synthetic data: rows, facts, a copy of the ledger, and the data card.

use super::card::card;
use super::plan::columns;
use super::quotas::most_tokens;
use super::sample::Sampled;
use crate::data::write_rows;
use crate::error::{Error, Result};
use std::io::Write;
use undertone_run::{
    RunPaths, SampledFacts, Statistics, Summary, SynthesisSection, write_atomically,
};

/// Arguments of [`export`].
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    pub run: &'a RunPaths,
    pub summary: &'a Summary,
    pub statistics: &'a Statistics,
    pub section: &'a SynthesisSection,
}

/// Writes the synthetic rows and the files that accompany them; the facts are written last.
pub fn export(export: &Export, sampled: &Sampled) -> Result<SampledFacts> {
    let Export { run, summary, statistics, section } = *export;
    let paths = run.synthetic();
    let facts = SampledFacts {
        format: Summary::FORMAT,
        rows: section.rows,
        columns: columns(&summary.plan.data)?,
        rows_by_class: sampled.rows_by_class.clone(),
        attempts: sampled.attempts,
        rejected: sampled.rejected.clone(),
        most_tokens: most_tokens(statistics),
        temperature: section.temperature,
        top_p: section.top_p,
        data_format: section.format,
    };
    let format = section.format.as_format();
    write_atomically(&paths.data(section.format), |out| {
        write_rows(out, format, &facts.columns, &sampled.rows)
    })?;
    if summary.guarantee.is_some() {
        let ledger = run.ledger();
        let bytes = std::fs::read(&ledger).map_err(Error::io(&ledger))?;
        write_atomically(&paths.ledger(), |out| out.write_all(&bytes))?;
    }
    let card = card(summary, statistics, &facts);
    write_atomically(&paths.card(), |out| out.write_all(card.as_bytes()))?;
    facts.write(&paths.facts())?;
    Ok(facts)
}
