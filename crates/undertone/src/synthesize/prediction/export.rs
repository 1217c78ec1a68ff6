//! Writes the folder of synthetic data after private prediction.

use super::Prediction;
use super::card::card;
use crate::data::write_rows;
use crate::error::{Error, Result};
use crate::synthesize::plan::columns;
use crate::synthesize::{Classes, Sampled};
use std::io::Write;
use undertone_accounting::ledger::Ledger;
use undertone_run::{RunPaths, SampledFacts, write_atomically};

/// Writes the rows and the files that accompany them; the facts are written last.
pub fn export(
    run: &RunPaths,
    prediction: &Prediction,
    classes: &Classes,
    sampled: &Sampled,
) -> Result<SampledFacts> {
    let paths = run.synthetic();
    let facts = SampledFacts {
        format: prediction.format,
        rows: sampled.rows.len() as u64,
        columns: columns(&prediction.data)?,
        rows_by_class: sampled.rows_by_class.clone(),
        attempts: sampled.attempts,
        rejected: sampled.rejected.clone(),
        most_tokens: prediction.most_tokens,
        temperature: prediction.temperature,
        top_p: 1.0,
        data_format: prediction.data_format,
    };
    let format = prediction.data_format.as_format();
    write_atomically(&paths.data(prediction.data_format), |out| {
        write_rows(out, format, &facts.columns, &sampled.rows)
    })?;
    let ledger = run.ledger();
    let bytes = std::fs::read(&ledger).map_err(Error::io(&ledger))?;
    write_atomically(&paths.ledger(), |out| out.write_all(&bytes))?;
    let ledger = Ledger::read(&ledger)?;
    let guarantee = ledger.guarantee(prediction.delta)?;
    let card = card(prediction, classes, (&guarantee, ledger.hash()), &facts);
    write_atomically(&paths.card(), |out| out.write_all(card.as_bytes()))?;
    facts.write(&paths.facts())?;
    Ok(facts)
}
