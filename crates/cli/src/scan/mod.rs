//! `undertone scan`: personal data and secrets in a data file, and a redacted copy.

mod found;
mod pieces;

use crate::audit::private_things::PeopleArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use found::Found;
use pieces::Pieces;
use serde_json::json;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use undertone::data::{Format, format_of, read};
use undertone::scan::{Finding, Kind, Scanner, redacted};
use undertone_run::{check_output, write_atomically};

/// Find personal data and secrets in a data file
///
/// Prints counts and masked examples by kind. They are exact, so they are for the data owner only.
/// Numbers are matched by form and check digits, and where these are weak only near a word such as
/// "SSN", in the text or in the name of the column. No scan finds everything.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone scan letters.csv\n  undertone scan letters.csv \
                        --columns text --redact letters-redacted.csv")]
pub struct Scan {
    /// Data file: CSV, TSV, JSON Lines, Parquet or plain text
    data: PathBuf,
    /// Comma-separated columns to scan [default: all]
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    columns: Vec<String>,
    /// Comma-separated kinds to look for [default: all]
    #[arg(long = "kind", value_enum, value_delimiter = ',', value_name = "KIND")]
    kinds: Vec<Kind>,
    #[command(flatten)]
    people: PeopleArguments,
    /// Number of masked examples per kind
    #[arg(long, default_value_t = 2, value_parser = crate::arguments::none_or_up_to(20))]
    examples: usize,
    /// Write a copy in which a placeholder such as [EMAIL] replaces what was found
    ///
    /// Everything else stays as it is, byte by byte.
    #[arg(long, value_name = "FILE")]
    redact: Option<PathBuf>,
}

/// What a redacted copy guarantees, and what it does not.
const NO_GUARANTEE: &str = "The copy is no anonymous data: the scan misses what no form or list \
                            has, and people can be recognized by what remains. Keep it as private \
                            as the original; only training with differential privacy bounds what \
                            a model reveals.";

/// The audience of the counts.
const FOR_THE_OWNER: &str = "Counts and examples are exact, not differentially private: they are \
                             for the data owner only. Do not publish them.";

impl Scan {
    pub fn run(self, output: Output) -> Outcome {
        let format = format_of(&self.data, None)?;
        self.check_columns(format)?;
        let scanner = Scanner::new(Box::new(self.people.finder()?));
        let mut summary = Found::new(self.examples);
        match &self.redact {
            Some(copy) => {
                self.check_copy(copy, format)?;
                let mut failure = None;
                let written = write_atomically(copy, |out| {
                    self.redact(format, &scanner, &mut summary, out).map_err(|error| match error {
                        Stopped::Write(error) => error,
                        Stopped::Scan(error) => {
                            failure = Some(error);
                            std::io::Error::other("the scan failed")
                        }
                    })
                });
                if let Some(failure) = failure {
                    return Err(failure);
                }
                written?;
            }
            None => {
                for pieces in Pieces::open(&self.data, format)? {
                    let pieces = pieces?;
                    summary.add(&pieces, &self.findings(&scanner, &pieces)?);
                }
            }
        }
        self.print(&summary, output);
        Ok(())
    }

    /// Fails unless the file has the columns, by their own name or as the beginning of a path.
    fn check_columns(&self, format: Format) -> Outcome {
        if self.columns.is_empty() {
            return Ok(());
        }
        let names = read::nested_columns(&self.data, format)?;
        let is_there = |column: &&String| names.iter().any(|name| is_within(name, column));
        match self.columns.iter().find(|column| !is_there(column)) {
            Some(column) => Err(undertone::data::Error::MissingColumn {
                file: self.data.clone(),
                column: column.clone(),
                available: names,
            })?,
            None => Ok(()),
        }
    }

    fn check_copy(&self, copy: &Path, format: Format) -> Outcome {
        let files = read::files(&self.data)?;
        let refuse = |why: &str| Err(Failure::arguments(format!("--redact {why}")));
        if format == Format::Parquet {
            return refuse("copies text files; convert the Parquet file to JSON Lines first");
        }
        let [file] = files.as_slice() else {
            return refuse("copies one file; pass a single file instead of a pattern");
        };
        let ending = copy.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ["gz", "zst"].contains(&ending.to_ascii_lowercase().as_str()) {
            return refuse("writes an uncompressed copy; leave out the .gz or .zst of its name");
        }
        if format_of(copy, None).ok() != Some(format) {
            return refuse("writes the format of the original; give the copy the same extension");
        }
        Ok(check_output(copy, &[file], |_| false)?)
    }

    /// The findings of the requested kinds in the values of the requested columns.
    fn findings(&self, scanner: &Scanner, pieces: &Pieces) -> Outcome<Vec<Vec<Finding>>> {
        let mut findings = scanner.scan(&pieces.texts())?;
        for (value, findings) in pieces.values().zip(&mut findings) {
            let is_wanted = self.columns.is_empty()
                || self.columns.iter().any(|column| is_within(&value.column, column));
            findings.retain(|finding| {
                is_wanted && (self.kinds.is_empty() || self.kinds.contains(&finding.kind))
            });
        }
        Ok(findings)
    }

    fn redact(
        &self,
        format: Format,
        scanner: &Scanner,
        summary: &mut Found,
        out: &mut BufWriter<std::fs::File>,
    ) -> Result<(), Stopped> {
        for pieces in Pieces::open(&self.data, format)? {
            let pieces = pieces?;
            let findings = self.findings(scanner, &pieces)?;
            summary.add(&pieces, &findings);
            let mut rest = findings.as_slice();
            for record in &pieces.records {
                let (own, others) = rest.split_at(record.values.len());
                rest = others;
                out.write_all(redacted(record, own).as_bytes()).map_err(Stopped::Write)?;
            }
        }
        Ok(())
    }

    fn print(&self, summary: &Found, output: Output) {
        if output.json {
            output::json(&json!({
                "audience": FOR_THE_OWNER,
                "file": self.data,
                "rows": summary.rows,
                "found": summary.json(),
                "redacted": self.redact,
            }));
            return;
        }
        let rows = summary.table();
        if rows.is_empty() {
            output::line(format_args!("Nothing was found in {} rows.", summary.rows));
        } else {
            output::table(&["kind", "found", "distinct", "rows", "masked examples"], &rows);
            output::line(format_args!("\n{} rows scanned. {FOR_THE_OWNER}", summary.rows));
        }
        if let Some(copy) = &self.redact {
            output::line(format_args!("Redacted copy: {}. {NO_GUARANTEE}", copy.display()));
        }
    }
}

/// Whether a path of keys is the column or lies within it.
fn is_within(path: &str, column: &str) -> bool {
    path.strip_prefix(column).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Why no complete copy was written.
enum Stopped {
    Scan(Failure),
    Write(std::io::Error),
}

impl<E: Into<Failure>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped::Scan(error.into())
    }
}
