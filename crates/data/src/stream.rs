//! Streams the examples of a file in chunks.

use super::encode::Encoder;
use super::error::Result;
use super::example::Example;
use super::format::format_of;
use super::labels::Labels;
use super::options::{Options, PrivacyUnit};
use super::read::{self, Meter, Row, Rows};
use super::tally::Tally;
use super::task::Task;
use super::tokenize::Tokenizer;
use super::units::Units;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of rows, and of bytes of text, tokenized at a time: enough to keep all threads
/// busy.
const ROWS: usize = 4096;
const BYTES: usize = 4 << 20;

/// The examples of a file, in file order and in chunks, so that the file need not fit in memory.
///
/// Ends after the first error.
pub struct Stream<'a> {
    rows: Rows,
    encoder: Encoder<'a>,
    units: Units,
    ended: bool,
}

/// Opens a file as a stream of examples.
///
/// Without `labels`, the task's label column is not read, so that prediction works on files without
/// one.
pub fn stream<'a>(
    path: &Path,
    task: &Task,
    tokenizer: &'a Tokenizer,
    labels: Option<&'a Labels>,
    options: &Options,
) -> Result<Stream<'a>> {
    task.check()?;
    options.check()?;
    let task = if labels.is_some() { task.clone() } else { task.without_label() };
    let mut columns = task.columns();
    if let PrivacyUnit::Author { column, .. } = &options.unit {
        columns.push(column);
    }
    let format = format_of(path, options.format)?;
    let rows = match task.reads_nested() {
        true => read::rows_with_nested(path, format, &columns, options.on_bad_row)?,
        false => read::rows_or_skip(path, format, &columns, options.on_bad_row)?,
    };
    let long_texts = options.long_texts;
    let texts = task.without_label().columns().len();
    let encoder = Encoder::new(path.into(), task, tokenizer, labels, long_texts)?;
    let units = Units::new(&options.unit, options.part, texts);
    Ok(Stream { rows, encoder, units, ended: false })
}

/// The number of examples produced by each row of a file, by line. Rows that produce none, because
/// the options exclude them, are absent.
pub fn examples_by_line(
    path: &Path,
    task: &Task,
    tokenizer: &Tokenizer,
    options: &Options,
) -> Result<BTreeMap<u64, usize>> {
    let mut stream = stream(path, task, tokenizer, None, options)?;
    let mut counts = BTreeMap::new();
    loop {
        let mut examples = Vec::new();
        let lines = stream.next_rows(&mut examples)?;
        if lines.is_empty() {
            return Ok(counts);
        }
        counts.extend(lines.into_iter().filter(|(_, count)| *count > 0));
    }
}

impl Stream<'_> {
    /// Number of privacy units seen so far.
    pub fn units(&self) -> usize {
        self.units.count()
    }

    /// Number of rows skipped so far because they cannot be read.
    pub fn skipped(&self) -> u64 {
        self.rows.skipped()
    }

    /// Rows that were excluded so far, or look like a mistake.
    pub fn tally(&self) -> Tally {
        self.units.tally()
    }

    pub(crate) fn meter(&self) -> &Meter {
        self.rows.meter()
    }

    /// The examples of the next rows; empty at the end of the file.
    fn chunk(&mut self) -> Result<Vec<Example>> {
        let mut examples = Vec::new();
        while examples.is_empty() {
            if self.next_rows(&mut examples)?.is_empty() {
                break;
            }
        }
        Ok(examples)
    }

    /// Appends the examples of the next rows; returns the line of each row and its number of
    /// examples, or nothing at the end of the file.
    fn next_rows(&mut self, examples: &mut Vec<Example>) -> Result<Vec<(u64, usize)>> {
        let rows = self.gather()?;
        let encoder = &self.encoder;
        let encoded = rows.par_iter().with_min_len(16).map(|(_, row)| encoder.examples(row));
        // If several rows have errors, the first is reported, whichever thread was faster.
        let encoded = encoded.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>>>()?;
        let mut lines = Vec::with_capacity(rows.len());
        for ((unit, row), of_row) in rows.iter().zip(encoded) {
            lines.push((row.line, self.units.admit(*unit, of_row, examples)));
        }
        Ok(lines)
    }

    /// The next rows and their units, excluding those of another part of the file and those whose
    /// author already has the maximum number of examples.
    fn gather(&mut self) -> Result<Vec<(u32, Row)>> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < ROWS && bytes < BYTES {
            let Some(row) = self.rows.next() else { break };
            let mut row = row?;
            if let Some(unit) = self.units.of(&self.encoder.file, &mut row)? {
                bytes += row.values.iter().map(String::len).sum::<usize>();
                rows.push((unit, row));
            }
        }
        Ok(rows)
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Vec<Example>>;

    fn next(&mut self) -> Option<Result<Vec<Example>>> {
        if self.ended {
            return None;
        }
        match self.chunk() {
            Ok(examples) if !examples.is_empty() => Some(Ok(examples)),
            end => {
                self.ended = true;
                end.err().map(Err)
            }
        }
    }
}
