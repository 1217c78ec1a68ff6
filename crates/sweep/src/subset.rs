//! Subsets of data files, for small sweeps: rows chosen by a hash of the row, the same for every
//! cell.
//!
//! # Statement
//!
//! With a share s, a row is chosen if its hash, a number in [0, 1), is below s. That depends only
//! on the row itself, so adding a row to the file adds either that row or nothing to the chosen
//! rows. A guarantee for adding or removing a unit of the chosen rows therefore also holds for the
//! file, as with [`data.hold_out`](undertone_run::DataSection).
//!
//! With a number N, the N rows with the smallest hashes are chosen. An added row then displaces
//! another, which a guarantee for adding or removing one unit does not cover. Private runs
//! therefore reject a number.

use crate::cells::plain;
use crate::error::{Error, Result};
use crate::write_whole;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use undertone::data::{Format, format_of};
use undertone_run::DataSection;

/// Separates this use of the hash from others.
const KEY: &[u8] = b"undertone sweep rows 1";

/// The size of a subset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// The rows with a hash below this share.
    Share(f64),
    /// This number of rows, those with the smallest hashes.
    Rows(usize),
}

impl Amount {
    /// Creates an amount from the keys `share` and `examples`, of which at most one may be given.
    pub fn of(share: Option<f64>, examples: Option<usize>) -> Result<Option<Self>, String> {
        match (share, examples) {
            (Some(_), Some(_)) => Err("give either share or examples, not both".into()),
            (Some(share), None) if !(share > 0.0 && share <= 1.0) => {
                Err(format!("share is {share}, but must be above 0 and at most 1"))
            }
            (None, Some(0)) => Err("examples and validation_examples must be at least 1".into()),
            (Some(share), None) => Ok(Some(Self::Share(share))),
            (None, rows) => Ok(rows.map(Self::Rows)),
        }
    }
}

/// The requested subsets of a sweep.
#[derive(Debug)]
pub struct Subsets {
    folder: PathBuf,
    parts: Vec<Part>,
}

/// Some rows of a file.
#[derive(Debug, PartialEq)]
struct Part {
    file: PathBuf,
    format: Format,
    amount: Amount,
    end: End,
    target: PathBuf,
    /// The rows that the training subset takes from the other end of the same file.
    beside: Option<Amount>,
}

/// Whether rows with small or with large hashes are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    First,
    Last,
}

impl Subsets {
    /// The folder for the subsets.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, parts: Vec::new() }
    }

    /// The full file behind a training subset, or the file itself.
    pub fn whole<'a>(&'a self, file: &'a Path) -> &'a Path {
        self.parts.iter().find(|part| part.target == file).map_or(file, |part| &part.file)
    }

    /// Replaces files by their subsets. If training and validation use the same file, their rows
    /// differ.
    pub fn replace(
        &mut self,
        data: &mut DataSection,
        training: Option<Amount>,
        validation: Option<usize>,
    ) -> Result<(), String> {
        let validation = Amount::of(None, validation)?;
        let one_file = data.validation.as_ref() == Some(&data.train);
        let beside = |other: Option<Amount>| other.filter(|_| one_file);
        let whole = data.train.clone();
        if let Some(amount) = training {
            data.train = self.part(&whole, data.format, amount, End::First, beside(validation))?;
        }
        if let (Some(amount), Some(file)) = (validation, data.validation.clone()) {
            let end = if one_file { End::Last } else { End::First };
            data.validation = Some(self.part(&file, data.format, amount, end, beside(training))?);
        }
        Ok(())
    }

    fn part(
        &mut self,
        file: &Path,
        format: Option<Format>,
        amount: Amount,
        end: End,
        beside: Option<Amount>,
    ) -> Result<PathBuf, String> {
        let format = format_of(file, format).map_err(|e| e.to_string())?;
        let text = matches!(format, Format::Tsv | Format::QuotedTsv | Format::Csv | Format::Jsonl);
        let compressed = file
            .extension()
            .is_some_and(|end| ["gz", "zst"].iter().any(|known| end.eq_ignore_ascii_case(known)));
        let several =
            file.is_dir() || (!file.exists() && file.to_string_lossy().contains(['*', '?', '[']));
        if !text || compressed || several {
            return Err(format!(
                "{}: share, examples and validation_examples are for .tsv, .csv and .jsonl files",
                file.display()
            ));
        }
        let side = if end == End::First { "first" } else { "last" };
        let extension = file.extension().unwrap_or_default().to_string_lossy();
        let amount_name = match amount {
            Amount::Rows(count) => format!("{side}-{count}"),
            Amount::Share(share) => format!("share-{share}"),
        };
        let name = format!(
            "{}-{amount_name}.{extension}",
            plain(&file.with_extension("").to_string_lossy())
        );
        let target = self.folder.join(name);
        let part =
            Part { file: file.to_owned(), format, amount, end, target: target.clone(), beside };
        match self.parts.iter().find(|other| other.target == target) {
            Some(same) if *same == part => {}
            Some(other) => {
                return Err(format!(
                    "the names of {} and {} are too similar",
                    file.display(),
                    other.file.display()
                ));
            }
            None => self.parts.push(part),
        }
        Ok(target)
    }

    /// Writes subsets that are missing or outdated.
    pub fn write(&self) -> Result<()> {
        for part in &self.parts {
            let text = std::fs::read_to_string(&part.file)
                .map_err(|e| Error::mistake(format!("{}: {e}", part.file.display())))?;
            let chosen = choose(&text, part)
                .map_err(|e| Error::mistake(format!("{}: {e}", part.file.display())))?;
            if std::fs::read_to_string(&part.target).is_ok_and(|existing| existing == chosen) {
                continue;
            }
            std::fs::create_dir_all(&self.folder).map_err(|e| Error::write(&self.folder, e))?;
            // Processes with other shares of the sweep may write the same file at the same time.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.map_or(0, |now| now.as_nanos());
            let own = part.target.with_extension(format!("{}-{now}", std::process::id()));
            write_whole(&own, &chosen)?;
            std::fs::rename(&own, &part.target).map_err(|e| Error::write(&part.target, e))?;
        }
        Ok(())
    }
}

fn choose(text: &str, part: &Part) -> Result<String, String> {
    if part.format == Format::Jsonl && text.trim_start_matches('\u{feff}').trim().starts_with('[') {
        return Err("is a JSON array; subsets need JSON Lines".to_owned());
    }
    let mut rows = records(text, matches!(part.format, Format::Csv | Format::QuotedTsv));
    let header = if part.format == Format::Jsonl || rows.is_empty() { "" } else { rows.remove(0) };
    let mut chosen_rows = match part.amount {
        Amount::Share(share) => {
            (0..rows.len()).filter(|&i| (hash(rows[i]) as f64) < share * TWO_64).collect()
        }
        Amount::Rows(count) => smallest(&rows, count, part)?,
    };
    // In the order of the file.
    chosen_rows.sort_unstable();
    let mut chosen = String::new();
    let rows = chosen_rows.into_iter().map(|i| rows[i]);
    for row in std::iter::once(header).chain(rows).filter(|row| !row.is_empty()) {
        chosen.push_str(row.trim_end_matches(['\r', '\n']));
        chosen.push('\n');
    }
    Ok(chosen)
}

/// The requested number of rows from one end of the order by hash, excluding the rows that the
/// other subset takes from the other end.
fn smallest(rows: &[&str], count: usize, part: &Part) -> Result<Vec<usize>, String> {
    let mut order: Vec<(u64, usize)> = (0..rows.len()).map(|i| (hash(rows[i]), i)).collect();
    order.sort_unstable();
    let others = match part.beside {
        Some(Amount::Rows(others)) => others,
        Some(Amount::Share(share)) => {
            order.iter().filter(|(hash, _)| (*hash as f64) < share * TWO_64).count()
        }
        None => 0,
    };
    let wanted = count.saturating_add(others);
    if rows.len() < wanted {
        return Err(format!(
            "has {} rows, fewer than the {wanted} that the sweep asks for",
            rows.len()
        ));
    }
    if part.end == End::Last {
        order.reverse();
    }
    Ok(order[..count].iter().map(|&(_, i)| i).collect())
}

/// 2⁶⁴, the exclusive upper bound of hashes.
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// The hash of a row, without its line break, with a fixed public key.
fn hash(row: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(KEY);
    hash.update(row.trim_end_matches(['\r', '\n']).as_bytes());
    hash.finalize().iter().take(8).fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}

/// The raw rows. A line break between quotes does not end a row of CSV.
fn records(text: &str, quotes: bool) -> Vec<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut rows, mut start, mut quoted) = (Vec::new(), 0, false);
    for (i, byte) in text.bytes().enumerate() {
        quoted ^= quotes && byte == b'"';
        if byte == b'\n' && !quoted {
            rows.push(&text[start..=i]);
            start = i + 1;
        }
    }
    rows.push(&text[start..]);
    rows.retain(|row| !row.trim().is_empty());
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(format: Format, amount: Amount, end: End, beside: Option<Amount>) -> Part {
        Part { file: "a".into(), format, amount, end, target: "b".into(), beside }
    }

    fn table(count: usize) -> String {
        let rows: String = (0..count).map(|i| format!("text {i}\t0\n")).collect();
        format!("text\tlabel\n{rows}")
    }

    #[test]
    fn parts_keep_the_header_and_do_not_overlap() {
        let text = table(20);
        let (training, validation) = (Amount::Rows(12), Amount::Rows(8));
        let first =
            choose(&text, &part(Format::Tsv, training, End::First, Some(validation))).unwrap();
        let last =
            choose(&text, &part(Format::Tsv, validation, End::Last, Some(training))).unwrap();
        assert!(first.starts_with("text\tlabel\n") && last.starts_with("text\tlabel\n"));
        let mut all: Vec<&str> = first.lines().skip(1).chain(last.lines().skip(1)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 20);
        let one_more = part(Format::Tsv, training, End::First, Some(Amount::Rows(9)));
        assert!(choose(&text, &one_more).unwrap_err().contains("20 rows"));
        // Next to a share, validation takes none of its rows.
        let share = Amount::Share(0.5);
        let first = choose(&text, &part(Format::Tsv, share, End::First, None)).unwrap();
        let rest = Amount::Rows(20 - (first.lines().count() - 1));
        let last = choose(&text, &part(Format::Tsv, rest, End::Last, Some(share))).unwrap();
        assert!(last.lines().skip(1).all(|row| !first.contains(row)));
        let one_more = Amount::Rows(21 - (first.lines().count() - 1));
        assert!(choose(&text, &part(Format::Tsv, one_more, End::Last, Some(share))).is_err());
    }

    /// The basis of the guarantee of a private run on a share of the rows: whether a row is chosen
    /// depends only on that row, wherever it stands and whatever the other rows are.
    #[test]
    fn one_more_row_changes_the_chosen_rows_by_that_row_at_most() {
        let chosen = |text: &str| -> Vec<String> {
            let share = part(Format::Tsv, Amount::Share(0.3), End::First, None);
            choose(text, &share).unwrap().lines().map(str::to_owned).collect()
        };
        let text = table(200);
        let before = chosen(&text);
        // The header, and 60 rows within four standard deviations.
        assert!((35..=87).contains(&before.len()), "{}", before.len());
        let mut taken = 0;
        for i in 0..50 {
            let added = format!("one more, {i}\t1");
            let mut rows: Vec<&str> = text.lines().collect();
            rows.insert(1 + i * 4, &added);
            let mut after = chosen(&rows.join("\n"));
            taken += usize::from(after.contains(&added));
            after.retain(|row| *row != added);
            assert_eq!(after, before, "the row {added:?} moved others in or out");
        }
        assert!((2..=30).contains(&taken), "{taken} of 50 rows were chosen");
    }

    #[test]
    fn either_a_share_or_a_number_is_given() {
        assert_eq!(Amount::of(None, None), Ok(None));
        assert_eq!(Amount::of(Some(0.5), None), Ok(Some(Amount::Share(0.5))));
        assert_eq!(Amount::of(None, Some(7)), Ok(Some(Amount::Rows(7))));
        for (share, examples) in
            [(Some(0.5), Some(7)), (Some(0.0), None), (Some(1.5), None), (None, Some(0))]
        {
            assert!(Amount::of(share, examples).is_err(), "{share:?} {examples:?}");
        }
        assert!(Amount::of(Some(f64::NAN), None).is_err());
    }

    #[test]
    fn rows_of_csv_may_hold_line_breaks() {
        let text = "a,b\n\"one\ntwo \"\"x\"\"\n\",1\nthree,2\r\n\n";
        assert_eq!(records(text, true), ["a,b\n", "\"one\ntwo \"\"x\"\"\n\",1\n", "three,2\r\n"]);
        let both = part(Format::Jsonl, Amount::Rows(2), End::First, None);
        let json = choose("{\"a\":1}\n{\"a\":2}", &both).unwrap();
        assert_eq!(json.lines().count(), 2);
    }
}
