//! `[synthesis]` in the plan of a run.

use crate::data::{Template, check_columns};
use crate::error::{Error, Result};
use undertone_run::{DataSection, SynthesisSection};

/// The release of statistics in a private run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatisticsPlan {
    /// Share of ε that the release spends.
    pub share: f64,
    /// ℓ2 sensitivity of all released numbers together.
    pub sensitivity: f64,
}

impl StatisticsPlan {
    /// The release requested by a run file.
    pub fn of(section: &SynthesisSection, data: &DataSection) -> Result<Self> {
        let histograms = if codes(data)?.is_empty() { 1.0 } else { 2.0 };
        Ok(Self { share: section.statistics_share, sensitivity: f64::sqrt(histograms) })
    }
}

/// The columns of the prompt: the control codes, each once.
pub fn codes(data: &DataSection) -> Result<Vec<String>> {
    let mut columns: Vec<String> = Vec::new();
    for column in Template::parse_prompt(&data.prompt)?.columns() {
        if !columns.iter().any(|known| known == column) {
            columns.push(column.to_owned());
        }
    }
    Ok(columns)
}

/// The columns of the completion: the texts.
pub fn texts(data: &DataSection) -> Result<Vec<String>> {
    Ok(Template::parse(&data.completion)?.columns().into_iter().map(str::to_owned).collect())
}

/// The columns of the synthetic data: the texts, then the control codes.
pub fn columns(data: &DataSection) -> Result<Vec<String>> {
    Ok([texts(data)?, codes(data)?].concat())
}

/// Rejects templates that cannot be parsed back, and control codes whose values are unknown.
pub fn check(data: &DataSection, section: &SynthesisSection) -> Result<()> {
    check_columns(&columns(data)?).map_err(|_| {
        Error::plan(
            "a column is used twice in data.prompt and data.completion, so a synthetic row would \
             have two values for it",
        )
    })?;
    let codes = codes(data)?;
    if let Some(other) = section.codes.keys().find(|column| !codes.contains(*column)) {
        return Err(Error::plan(format!(
            "synthesis.codes.{other} is not a column of data.prompt ({:?})",
            data.prompt
        )));
    }
    if data.publish_labels && codes.iter().all(|column| section.codes.contains_key(column)) {
        return Err(Error::plan(
            "data.publish_labels is for control codes whose values are read from the training \
             file, and synthesis.codes lists them all; remove one of them",
        ));
    }
    let undeclared = codes.iter().find(|column| !section.codes.contains_key(*column));
    match undeclared.filter(|_| !data.publish_labels) {
        None => Ok(()),
        Some(column) => Err(Error::plan(format!(
            "the values of {column} are private: declare them (--code {column}=A,B or \
             synthesis.codes.{column}), or publish those in the training file (--publish-codes or \
             data.publish_labels)"
        ))),
    }
}
