//! Samples rows from the trained model: post-processing, whatever is sampled and rejected.
//!
//! A round is a batch of texts, each with one class. The classes of a round are a function of the
//! previous rounds; text number i is a function of the run's sampling seed, i and its class. So
//! interrupted sampling gives the same rows as uninterrupted sampling, and the same secret gives
//! the same data.

use super::journal::{Entry, Journal, Settings};
use super::quotas::{most_tokens, quotas};
use super::row::row_of;
use crate::data::Template;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use undertone_run::{DataSection, Statistics, Summary, SynthesisSection};

/// Texts per row after which sampling gives up.
const ATTEMPTS_PER_ROW: u64 = 10;
/// Number of texts without a single row after which sampling gives up.
const HOPELESS: u64 = 1000;

/// Arguments of [`sample`].
#[derive(Clone, Copy, Debug)]
pub struct Sampling<'a> {
    pub statistics: &'a Statistics,
    pub section: &'a SynthesisSection,
    /// The run file's templates.
    pub data: &'a DataSection,
    /// Number of texts per round, unless the journal was begun with another number.
    pub round: usize,
    /// The journal's path.
    pub journal: &'a Path,
}

/// The sampled rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The rows, each with the values of its text columns and control codes.
    pub rows: Vec<Vec<String>>,
    /// Rows of each class.
    pub rows_by_class: Vec<u64>,
    /// Number of sampled texts.
    pub attempts: u64,
    /// Rejected texts by reason.
    pub rejected: BTreeMap<String, u64>,
}

/// Generates texts, given the number of the first and the class of each.
pub type WriteTexts<'a> = dyn FnMut(u64, &[usize]) -> Result<Vec<String>> + 'a;

/// Samples rows until every class has its quota, or resumes doing so. `progress` is called with the
/// number of rows so far.
pub fn sample(
    sampling: &Sampling,
    write: &mut WriteTexts,
    progress: &mut dyn FnMut(u64),
) -> Result<Sampled> {
    let Sampling { statistics, section, data, round, journal: path } = *sampling;
    let batch = Settings::recorded(path).map_or(round, |settings| settings.batch);
    let mut journal = Journal::open(
        path,
        &Settings {
            format: Summary::FORMAT,
            rows: section.rows,
            temperature: section.temperature,
            top_p: section.top_p,
            data_format: section.format,
            batch,
            completion: data.completion.clone(),
            most_tokens: most_tokens(statistics),
            sampling_seed: statistics.sampling_seed,
        },
    )?;
    let template = Template::parse(&data.completion)?;
    let quotas = quotas(statistics, section.rows);
    let most = ATTEMPTS_PER_ROW * section.rows.max(HOPELESS / ATTEMPTS_PER_ROW);
    let mut sampled = Sampled { rows_by_class: vec![0; quotas.len()], ..Sampled::default() };
    loop {
        let classes = next_round(&quotas, &sampled.rows_by_class, batch);
        if classes.is_empty() {
            return Ok(sampled);
        }
        let limit = if sampled.rows.is_empty() { HOPELESS } else { most };
        if sampled.attempts >= limit {
            return Err(too_few(path, &sampled, section.rows));
        }
        let first = sampled.attempts;
        let round = match journal.recorded(first, &classes) {
            Some(round) => round,
            None => {
                let texts = write(first, &classes)?;
                let round: Vec<Entry> = (first..)
                    .zip(classes.iter().zip(&texts))
                    .map(|(attempt, (&class, text))| entry(attempt, class, &template, text))
                    .collect();
                journal.append(&round)?;
                round
            }
        };
        for entry in round {
            let codes = &statistics.classes[entry.class].values;
            sampled.add(entry, codes);
        }
        progress(sampled.rows.len() as u64);
    }
}

/// The entry of a text.
pub(super) fn entry(attempt: u64, class: usize, template: &Template, text: &str) -> Entry {
    match row_of(template, text) {
        Ok(row) => Entry { attempt, class, row: Some(row), rejected: None },
        Err(why) => Entry { attempt, class, row: None, rejected: Some(why.name().to_owned()) },
    }
}

impl Sampled {
    /// Adds an entry of a class with these values.
    pub(super) fn add(&mut self, entry: Entry, codes: &[String]) {
        self.attempts += 1;
        match (entry.row, entry.rejected) {
            (Some(row), _) => {
                self.rows.push([row, codes.to_vec()].concat());
                self.rows_by_class[entry.class] += 1;
            }
            (None, why) => {
                *self.rejected.entry(why.unwrap_or_default()).or_default() += 1;
            }
        }
    }
}

/// The classes of the next texts: in turn, the one that lacks the largest share of its quota. So
/// the first rows have the classes in the same shares as all rows.
fn next_round(quotas: &[u64], done: &[u64], batch: usize) -> Vec<usize> {
    let mut missing: Vec<u64> =
        quotas.iter().zip(done).map(|(quota, done)| quota.saturating_sub(*done)).collect();
    let mut classes = Vec::new();
    while classes.len() < batch {
        let lacking = (0..quotas.len()).filter(|&class| missing[class] > 0);
        // missing/quota, compared without rounding; the first of equal classes.
        let Some(class) = lacking.reduce(|best, class| {
            let share =
                |of: usize, other: usize| u128::from(missing[of]) * u128::from(quotas[other]);
            if share(class, best) > share(best, class) { class } else { best }
        }) else {
            break;
        };
        missing[class] -= 1;
        classes.push(class);
    }
    classes
}

fn too_few(path: &Path, sampled: &Sampled, rows: u64) -> Error {
    let reasons: Vec<String> =
        sampled.rejected.iter().map(|(why, count)| format!("{count} {why}")).collect();
    Error::folder(
        path,
        format!(
            "only {} of {} sampled texts could be parsed as rows ({}), but {rows} rows were \
             requested. Remove the folder synthetic/ and sample with a lower --temperature or \
             --top-p, or train longer",
            sampled.rows.len(),
            sampled.attempts,
            reasons.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests;
