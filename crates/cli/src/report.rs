//! `undertone report`: a report for reviewers.

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone_report::{Annex, Options, Run, report, report_with};
use undertone_run::check_output;

/// Write a report on finished runs to a single HTML or Markdown file
///
/// Covers the guarantee, learning curves, attacks, accuracy and the plan needed to reproduce the
/// runs. Recomputes ε from the ledger of each run, and refuses a run whose ledger does not prove
/// the ε in its summary.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone report runs/first --out report.html\n  undertone report \
     runs/demo/sort-non-private runs/demo/sort-epsilon-8 --out report.md\n  undertone report \
     runs/first --annex nist-800-226 --annex gdpr-dpia --out review.html"
)]
pub struct Report {
    /// Folders of finished runs; several runs are compared
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Report file to write: .html or .md
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Format of the report [default: markdown for .md and .markdown, otherwise html]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Omit everything computed from private data without noise: training losses, times, memory,
    /// attacks, and metrics of a non-public validation file; show files without their folders
    #[arg(long)]
    public: bool,
    /// Add what the run shows about the points of a guideline or law, and a reviewer's checklist
    /// (repeatable, one run); no legal advice
    #[arg(long, value_enum, value_name = "ANNEX")]
    annex: Vec<AnnexName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AnnexName {
    /// NIST SP 800-226, on evaluating differential privacy
    #[value(name = "nist-800-226")]
    Nist,
    /// EDPB Opinion 28/2024, on whether a model is anonymous
    #[value(name = "edpb-28-2024")]
    Edpb,
    /// EU AI Act, Annex XI: documentation of a model
    EuAiAct,
    /// GDPR Article 35: paragraphs of a data protection impact assessment
    GdprDpia,
}

impl AnnexName {
    fn annex(self) -> Annex {
        match self {
            Self::Nist => Annex::Nist800226,
            Self::Edpb => Annex::Edpb282024,
            Self::EuAiAct => Annex::EuAiAct,
            Self::GdprDpia => Annex::GdprDpia,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A self-contained page for browsers and printing
    Html,
    /// The same content, with tables in place of figures
    Markdown,
}

impl Format {
    /// Infers the format from the file extension.
    pub fn of(path: &Path) -> Self {
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        if ending == "md" || ending == "markdown" { Self::Markdown } else { Self::Html }
    }
}

impl Report {
    pub fn run(self, output: Output) -> Outcome {
        let format = self.format.unwrap_or_else(|| Format::of(&self.out));
        if !self.annex.is_empty() && self.runs.len() > 1 {
            return Err(Failure::arguments("an annex is about one run; name one, or omit --annex"));
        }
        let options = Options { public: self.public };
        let annexes: Vec<Annex> = self.annex.iter().map(|name| name.annex()).collect();
        let runs = write_with(&self.runs, &self.out, format, options, &annexes)?;
        if output.json {
            output::json(
                &json!({ "report": self.out, "runs": runs.iter().map(short).collect::<Vec<_>>() }),
            );
            return Ok(());
        }
        for run in &runs {
            let says = match (run.no_guarantee(), run.guarantee()) {
                (None, Some(guarantee)) => guarantee.to_string(),
                (why, _) => {
                    format!(
                        "no guarantee: {}",
                        why.unwrap_or_else(|| "there is no ledger".to_owned())
                    )
                }
            };
            output::line(format_args!("  {}: {says}", run.name));
        }
        output::line(format_args!("The report is in {}.", self.out.display()));
        Ok(())
    }
}

fn short(run: &Run) -> Value {
    let private = run.no_guarantee().is_none();
    json!({ "name": run.name, "private": private, "guarantee": run.guarantee() })
}

/// Writes a report on the runs in `folders` and returns the runs.
pub fn write(
    folders: &[PathBuf],
    out: &Path,
    format: Format,
    options: Options,
) -> Outcome<Vec<Run>> {
    write_with(folders, out, format, options, &[])
}

fn write_with(
    folders: &[PathBuf],
    out: &Path,
    format: Format,
    options: Options,
    annexes: &[Annex],
) -> Outcome<Vec<Run>> {
    check_output(out, &[], |text| text.contains(undertone_report::MARK))?;
    let runs = Run::open_all(folders)?;
    let document = match runs.as_slice() {
        [run] => report_with(run, options, annexes)?,
        runs => report(runs, options)?,
    };
    let text = match format {
        Format::Html => document.html(),
        Format::Markdown => document.markdown(),
    };
    undertone_run::write_atomically(out, |file| file.write_all(text.as_bytes()))
        .map_err(|e| Failure::write(out, e))?;
    Ok(runs)
}
