//! `predict --keep`: columns copied from the data.

use super::data::DataArguments;
use crate::failure::{Failure, Outcome};
use serde_json::{Map, Value};
use undertone::data::read::{Rows, rows_with_nested};
use undertone_run::OnBadRow;

/// Reader of the kept columns, in step with the predictions, one row at a time.
pub struct Kept {
    columns: Vec<String>,
    rows: Option<Rows>,
}

impl Kept {
    pub fn open(columns: &[String], data: &DataArguments) -> Outcome<Kept> {
        if let Some(twice) = (1..columns.len()).find(|&i| columns[..i].contains(&columns[i])) {
            return Err(Failure::arguments(format!("--keep names {:?} twice", columns[twice])));
        }
        let named: Vec<&str> = columns.iter().map(String::as_str).collect();
        let rows = match named.is_empty() {
            true => None,
            // As for predictions, an unreadable row is an error.
            false => Some(rows_with_nested(&data.data, data.format()?, &named, OnBadRow::Refuse)?),
        };
        Ok(Kept { columns: columns.to_vec(), rows })
    }

    /// Names and values of the next row; names that clash with the prediction are prefixed.
    pub fn next_row(&mut self, said: &Map<String, Value>) -> Outcome<Vec<(String, String)>> {
        let Some(rows) = &mut self.rows else { return Ok(Vec::new()) };
        let row = rows.next().transpose()?.ok_or_else(|| {
            Failure::arguments("the data changed while they were being read; try again")
        })?;
        let name = |column: &String| match said.contains_key(column) {
            true => format!("input.{column}"),
            false => column.clone(),
        };
        Ok(self.columns.iter().map(name).zip(row.values).collect())
    }
}
