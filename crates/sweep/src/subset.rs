//! Parts of data files, so that a sweep can be made small: rows chosen by a fixed shuffle, the same
//! for every cell.

use crate::cells::plain;
use crate::error::{Error, Result};
use crate::write_whole;
use std::path::{Path, PathBuf};
use undertone::data::{Format, ShuffledEpochs, format_of};
use undertone_run::DataSection;

/// The parts that a sweep asks for.
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
    /// How many, and from which end of the shuffled rows.
    count: usize,
    end: End,
    target: PathBuf,
    /// How many rows the file must have, if another part is taken from it too.
    at_least: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    First,
    Last,
}

impl Subsets {
    /// To be kept in this folder.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, parts: Vec::new() }
    }

    /// The file that a training file is a part of, or itself.
    pub fn whole<'a>(&'a self, file: &'a Path) -> &'a Path {
        self.parts.iter().find(|part| part.target == file).map_or(file, |part| &part.file)
    }

    /// Puts so many rows in the place of files. Where training and validation are one file, their
    /// rows differ.
    pub fn replace(
        &mut self,
        data: &mut DataSection,
        examples: Option<usize>,
        validation: Option<usize>,
    ) -> Result<(), String> {
        let one_file = data.validation.as_ref() == Some(&data.train);
        let both = examples.unwrap_or(0).saturating_add(validation.unwrap_or(0));
        let at_least = if one_file { both } else { 0 };
        if let Some(count) = examples {
            data.train = self.part(&data.train, data.format, count, End::First, at_least)?;
        }
        if let (Some(count), Some(file)) = (validation, &data.validation) {
            let end = if one_file { End::Last } else { End::First };
            data.validation = Some(self.part(&file.clone(), data.format, count, end, at_least)?);
        }
        Ok(())
    }

    fn part(
        &mut self,
        file: &Path,
        format: Option<Format>,
        count: usize,
        end: End,
        at_least: usize,
    ) -> Result<PathBuf, String> {
        let format = format_of(file, format).map_err(|e| e.to_string())?;
        let text = matches!(format, Format::Tsv | Format::QuotedTsv | Format::Csv | Format::Jsonl);
        let compressed = file
            .extension()
            .is_some_and(|end| ["gz", "zst"].iter().any(|known| end.eq_ignore_ascii_case(known)));
        let several = file.is_dir() || (!file.exists() && file.to_string_lossy().contains('*'));
        if !text || compressed || several {
            return Err(format!(
                "{}: examples and validation_examples are for .tsv, .csv and .jsonl files",
                file.display()
            ));
        }
        if count == 0 {
            return Err("examples and validation_examples must be at least 1".into());
        }
        let side = if end == End::First { "first" } else { "last" };
        let extension = file.extension().unwrap_or_default().to_string_lossy();
        let name = format!(
            "{}-{side}-{count}.{extension}",
            plain(&file.with_extension("").to_string_lossy())
        );
        let target = self.folder.join(name);
        let part =
            Part { file: file.to_owned(), format, count, end, target: target.clone(), at_least };
        match self.parts.iter().find(|other| other.target == target) {
            Some(same) if *same == part => {}
            Some(other) => {
                return Err(format!(
                    "the names of {} and {} are too alike",
                    file.display(),
                    other.file.display()
                ));
            }
            None => self.parts.push(part),
        }
        Ok(target)
    }

    /// Writes the parts that are not there yet, or not as they should be.
    pub fn write(&self) -> Result<()> {
        for part in &self.parts {
            let text = std::fs::read_to_string(&part.file)
                .map_err(|e| Error::mistake(format!("{}: {e}", part.file.display())))?;
            let chosen = choose(&text, part)
                .map_err(|e| Error::mistake(format!("{}: {e}", part.file.display())))?;
            if std::fs::read_to_string(&part.target).is_ok_and(|there| there == chosen) {
                continue;
            }
            std::fs::create_dir_all(&self.folder).map_err(|e| Error::write(&self.folder, e))?;
            // Others that do their share of the sweep may write the same file at the same time.
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
        return Err("is a JSON array; a part of a file is for JSON Lines".to_owned());
    }
    let mut rows = records(text, matches!(part.format, Format::Csv | Format::QuotedTsv));
    let header = if part.format == Format::Jsonl || rows.is_empty() { "" } else { rows.remove(0) };
    let wanted = part.count.max(part.at_least);
    if rows.len() < wanted {
        return Err(format!(
            "has {} rows, fewer than the {wanted} that the sweep asks for",
            rows.len()
        ));
    }
    let order = ShuffledEpochs::new(rows.len(), 1, [0; 32]).map_err(|e| e.to_string())?.order(0);
    let order: Vec<usize> = match part.end {
        End::First => order[..part.count].to_vec(),
        End::Last => order[order.len() - part.count..].to_vec(),
    };
    let mut chosen = String::new();
    for row in
        std::iter::once(header).chain(order.iter().map(|&i| rows[i])).filter(|row| !row.is_empty())
    {
        chosen.push_str(row.trim_end_matches(['\r', '\n']));
        chosen.push('\n');
    }
    Ok(chosen)
}

/// The rows as they stand. A line break between quotes does not end a row of CSV.
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

    fn part(format: Format, count: usize, end: End, at_least: usize) -> Part {
        Part { file: "a".into(), format, count, end, target: "b".into(), at_least }
    }

    #[test]
    fn parts_keep_the_header_and_do_not_overlap() {
        let rows: String = (0..20).map(|i| format!("text {i}\t0\n")).collect();
        let text = format!("text\tlabel\n{rows}");
        let first = choose(&text, &part(Format::Tsv, 12, End::First, 20)).unwrap();
        let last = choose(&text, &part(Format::Tsv, 8, End::Last, 20)).unwrap();
        assert!(first.starts_with("text\tlabel\n") && last.starts_with("text\tlabel\n"));
        let mut all: Vec<&str> = first.lines().skip(1).chain(last.lines().skip(1)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 20);
        assert_ne!(first.lines().nth(1), Some("text 0\t0"), "they are shuffled");
        assert!(
            choose(&text, &part(Format::Tsv, 12, End::First, 21)).unwrap_err().contains("20 rows")
        );
    }

    #[test]
    fn rows_of_csv_may_hold_line_breaks() {
        let text = "a,b\n\"one\ntwo \"\"x\"\"\n\",1\nthree,2\r\n\n";
        assert_eq!(records(text, true), ["a,b\n", "\"one\ntwo \"\"x\"\"\n\",1\n", "three,2\r\n"]);
        let json = choose("{\"a\":1}\n{\"a\":2}", &part(Format::Jsonl, 2, End::First, 0)).unwrap();
        assert_eq!(json.lines().count(), 2);
    }
}
