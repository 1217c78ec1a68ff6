//! Reads a file and adds up the contributions of its units. The sums are exact, so they stay in
//! memory.

use super::contribution::{self, ONE};
use super::vocabulary::{OwnWords, Words};
use super::{Request, Statistic, lengths, quality, row_counts};
use crate::data::Format;
use crate::data::read::{RawRecord, raw_records};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The columns that statistics need.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub text: Vec<String>,
    pub label: Option<String>,
    /// The column that names the unit; without one, each row is a unit.
    pub author: Option<String>,
}

/// Exact sums, in units of 1/[`ONE`].
#[derive(Debug, Default)]
pub struct Collected {
    pub(super) units: i64,
    pub(super) row_counts: Vec<i64>,
    pub(super) labels: Vec<i64>,
    pub(super) lengths: Vec<i64>,
    pub(super) quality: Vec<i64>,
    pub(super) words: Words,
}

/// The values of one unit, before its contribution is bounded.
#[derive(Default)]
struct UnitRows {
    rows: u64,
    labels: Cells,
    lengths: Cells,
    quality: Cells,
    words: OwnWords,
}

/// Numbers of rows by cell.
#[derive(Default)]
struct Cells(Vec<(u16, u32)>);

impl Cells {
    fn count(&mut self, cell: u16) {
        match self.0.iter_mut().find(|(other, _)| *other == cell) {
            Some((_, rows)) => *rows = rows.saturating_add(1),
            None => self.0.push((cell, 1)),
        }
    }
}

/// A row's values.
struct Row {
    author: Option<String>,
    text: Option<String>,
    label: Option<String>,
    is_damaged: bool,
}

/// How rows are read.
struct Reader<'a> {
    request: &'a Request,
    columns: &'a Columns,
    length: &'a dyn Fn(&str) -> u64,
    key: u64,
}

/// The sums of a file. `length` measures a text; `key` chooses among the words of a unit.
pub fn collect(
    path: &Path,
    format: Format,
    columns: &Columns,
    request: &Request,
    length: &dyn Fn(&str) -> u64,
    key: u64,
) -> crate::data::Result<Collected> {
    let reader = Reader { request, columns, length, key };
    let mut collected = Collected {
        row_counts: vec![0; row_counts::CELLS],
        labels: vec![0; request.labels.len() + 1],
        lengths: vec![0; lengths::CELLS],
        quality: vec![0; quality::CELLS],
        ..Collected::default()
    };
    let mut units: HashMap<String, UnitRows> = HashMap::new();
    let mut add = |row: Row| match (row.author.clone(), &columns.author) {
        (_, None) => {
            let mut unit = UnitRows::default();
            reader.add(row, &mut unit);
            collected.add(unit);
        }
        // The contribution of a row without a unit cannot be bounded, so the row is ignored.
        (None, Some(_)) => {}
        (Some(author), Some(_)) => reader.add(row, units.entry(author).or_default()),
    };
    // In a JSON array, a row may span many lines.
    let mut open: BTreeMap<u64, Row> = BTreeMap::new();
    for record in raw_records(path, format)? {
        reader.read(record?, &mut open);
        while open.len() > 1
            && let Some((_, row)) = open.pop_first()
        {
            add(row);
        }
    }
    open.into_values().for_each(add);
    units.into_values().for_each(|unit| collected.add(unit));
    Ok(collected)
}

impl Reader<'_> {
    /// Adds the values of a record to their rows.
    fn read(&self, record: RawRecord, rows: &mut BTreeMap<u64, Row>) {
        for value in record.values {
            let row = rows.entry(value.row).or_insert_with(|| Row {
                author: None,
                text: None,
                label: None,
                is_damaged: record.is_damaged,
            });
            if record.is_damaged {
                continue;
            }
            let is = |column: &str| *value.column == *column;
            if self.columns.text.iter().any(|column| is(column)) {
                let text = row.text.get_or_insert_default();
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(&value.value);
            }
            if self.columns.label.as_deref().is_some_and(is) {
                row.label = Some(value.value.clone());
            }
            if self.columns.author.as_deref().is_some_and(is) {
                row.author = Some(value.value);
            }
        }
    }

    fn add(&self, row: Row, unit: &mut UnitRows) {
        unit.rows += 1;
        let wants_label = self.columns.label.is_some();
        let lacks = row.text.is_none() || (wants_label && row.label.is_none());
        let is_damaged = row.is_damaged || lacks;
        let text = row.text.unwrap_or_default();
        unit.quality.count(match (is_damaged, text.trim().is_empty()) {
            (true, _) => quality::DAMAGED,
            (_, true) => quality::EMPTY,
            _ => quality::USABLE,
        });
        if is_damaged {
            return;
        }
        unit.lengths.count(lengths::cell((self.length)(&text)) as u16);
        if wants_label {
            let label = row.label.unwrap_or_default();
            let labels = &self.request.labels;
            let cell = labels.iter().position(|known| *known == label).unwrap_or(labels.len());
            unit.labels.count(cell as u16);
        }
        if self.request.statistics.contains(&Statistic::Vocabulary) {
            unit.words.read(&text, self.key, self.request.words_per_unit);
        }
    }
}

impl Collected {
    /// Adds the bounded contribution of one unit.
    fn add(&mut self, unit: UnitRows) {
        self.units += ONE;
        self.row_counts[row_counts::cell(unit.rows)] += ONE;
        for (cells, sums) in [
            (&unit.labels, &mut self.labels),
            (&unit.lengths, &mut self.lengths),
            (&unit.quality, &mut self.quality),
        ] {
            contribution::shares(&cells.0, |cell, weight| sums[usize::from(cell)] += weight);
        }
        unit.words.add_to(&mut self.words);
    }
}
