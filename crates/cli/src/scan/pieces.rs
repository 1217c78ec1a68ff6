//! A data file in pieces of many records, so that a scan can use all cores.

use crate::failure::Outcome;
use std::path::Path;
use undertone::data::Format;
use undertone::data::read::{RawRecord, RawRecords, RawValue, raw_records};
use undertone::scan::Text;

/// Bytes of a piece, after which no further record is added.
const BYTES: usize = 1 << 20;

/// Records that are scanned at once.
pub struct Pieces {
    pub records: Vec<RawRecord>,
}

impl Pieces {
    /// The pieces of a file, or of several files one after another.
    pub fn open(path: &Path, format: Format) -> Outcome<impl Iterator<Item = Outcome<Pieces>>> {
        Ok(Reader(raw_records(path, format)?))
    }

    pub fn values(&self) -> impl Iterator<Item = &RawValue> {
        self.records.iter().flat_map(|record| &record.values)
    }

    pub fn texts(&self) -> Vec<Text<'_>> {
        self.values().map(|value| Text { column: &value.column, text: &value.value }).collect()
    }
}

struct Reader(RawRecords);

impl Reader {
    fn read(&mut self) -> Outcome<Option<Pieces>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < BYTES {
            let Some(record) = self.0.next().transpose()? else { break };
            bytes += record.values.iter().map(|value| value.value.len()).sum::<usize>() + 64;
            records.push(record);
        }
        Ok((!records.is_empty()).then_some(Pieces { records }))
    }
}

impl Iterator for Reader {
    type Item = Outcome<Pieces>;

    fn next(&mut self) -> Option<Outcome<Pieces>> {
        self.read().transpose()
    }
}
