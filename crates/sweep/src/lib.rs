//! Sweeps: a grid of training runs with several seeds, and the table that compares them.
//!
//! ```text
//! sweep file ─▶ cells (plans, checked) ─▶ runs, each a process ─▶ summaries ─▶ table
//!                                                 table ─▶ text, Markdown, LaTeX, CSV, SVG
//! ```
//!
//! ```no_run
//! use undertone_sweep::{Launch, Prepared, Sweep};
//!
//! let sweep = Sweep::read("sweep.toml".as_ref())?;
//! let prepared = Prepared::new(sweep, "runs/sweep".into(), &[])?;
//! let launch = Launch {
//!     program: "undertone".into(),
//!     device: Vec::new(),
//!     budget: Vec::new(),
//!     jobs: 2,
//!     threads: Some(4),
//!     launcher: Vec::new(),
//! };
//! let table = prepared.run(&launch)?;
//! println!("{}", undertone_sweep::formats::text(&table));
//! # Ok::<(), undertone_sweep::Error>(())
//! ```
//!
//! An interrupted sweep continues where it stopped: finished runs are kept, and an unfinished run
//! is resumed from its checkpoint.

mod audit;
mod cells;
mod chart;
mod child;
mod error;
#[cfg(test)]
mod examples;
mod file;
pub mod formats;
mod grid;
mod losses;
mod metric;
mod noise;
mod notes;
mod progress;
mod runner;
mod selection;
mod state;
mod statistics;
mod subset;
mod table;
mod totals;

pub use cells::Run;
pub use child::Launch;
pub use error::{Error, Result};
pub use file::Sweep;
pub use selection::{PlannedSelection, Selected};
pub use table::{Cell, Row, Table};

use cells::Cells;
use child::Children;
use runner::Outcome;
use state::State;
use std::io::Write;
use std::path::{Path, PathBuf};
use subset::Subsets;

/// One of several equal shares of a sweep's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// From 0.
    pub index: usize,
    /// Number of shares, at least 1.
    pub of: usize,
}

impl std::str::FromStr for Share {
    type Err = String;

    /// In the usual notation, counting from 1: `3/8`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mistake = || format!("{text} is not a share such as 3/8, the third of eight");
        let (number, of) = text.split_once('/').ok_or_else(mistake)?;
        let parse = |text: &str| text.trim().parse::<usize>().map_err(|_| mistake());
        let (number, of) = (parse(number)?, parse(of)?);
        match (1..=of).contains(&number) {
            true => Ok(Self { index: number - 1, of }),
            false => Err(mistake()),
        }
    }
}

/// A sweep with a checked plan for every cell, and its folder.
#[derive(Debug)]
pub struct Prepared {
    sweep: Sweep,
    cells: Cells,
    subsets: Subsets,
    folder: PathBuf,
}

impl Prepared {
    /// Makes and checks every cell's plan; `changes` (`key=value`) apply to all of them. Writes
    /// nothing.
    pub fn new(sweep: Sweep, folder: PathBuf, changes: &[String]) -> Result<Self> {
        let mut subsets = Subsets::new(folder.join("data"));
        let cells = Cells::new(&sweep, changes, &mut subsets)?;
        Ok(Self { sweep, cells, subsets, folder })
    }

    /// The runs that the table needs, each once.
    pub fn runs(&self) -> &[Run] {
        &self.cells.runs
    }

    /// Completes all unfinished runs and writes the table as `table.txt`, `.md`, `.tex`, `.csv` and
    /// `plot.svg`, and the losses and noise as figures if requested. The table names runs that
    /// failed.
    pub fn run(&self, launch: &Launch) -> Result<Table> {
        let children = self.children(launch)?;
        let _lock = self.hold(&children.folder, true)?;
        let all: Vec<&Run> = self.cells.runs.iter().collect();
        let results = self.run_all(&all, &children)?;
        self.tabulate(&results, &children)
    }

    /// Completes the unfinished runs of one share; returns the names of those that failed, and why.
    /// Several machines can work on their shares at the same time.
    pub fn run_share(&self, launch: &Launch, share: Share) -> Result<Vec<(String, String)>> {
        let children = self.children(launch)?;
        let _lock = self.hold(&children.folder, false)?;
        let runs = self.share(share);
        let results = self.run_all(&runs, &children)?;
        let failed = runs
            .iter()
            .zip(results)
            .filter_map(|(run, result)| Some((run.name.clone(), result.err()?)));
        Ok(failed.collect())
    }

    /// Writes the table of the finished runs; it names the others.
    pub fn gather(&self, launch: &Launch) -> Result<Table> {
        let children = self.children(launch)?;
        let _lock = self.hold(&children.folder, false)?;
        let results: Vec<Outcome> = self.cells.runs.iter().map(|run| children.found(run)).collect();
        self.tabulate(&results, &children)
    }

    /// The runs of a share: every `of`-th run, so that long and short ones are mixed.
    pub fn share(&self, share: Share) -> Vec<&Run> {
        self.cells.runs.iter().skip(share.index).step_by(share.of).collect()
    }

    fn children<'a>(&'a self, launch: &'a Launch) -> Result<Children<'a>> {
        if self.sweep.file.selection.is_some() {
            return Err(Error::mistake(
                "the sweep file has [selection]: add --private-selection, or remove it",
            ));
        }
        let keep_weights = self.sweep.file.keep_weights;
        let audit = self.sweep.file.audit.as_ref();
        Ok(Children { launch, folder: self.folder.join("runs"), keep_weights, audit })
    }

    fn run_all(&self, runs: &[&Run], children: &Children) -> Result<Vec<Outcome>> {
        self.refuse_to_overwrite(&children.folder)?;
        self.subsets.write()?;
        Ok(runner::run_all(runs, children, self.sweep.file.metric))
    }

    fn tabulate(&self, results: &[Outcome], children: &Children) -> Result<Table> {
        let mut table = Table::new(&self.sweep, &self.cells, results);
        table.notes.extend(totals::totals(&self.cells, &self.subsets, &children.folder));
        self.write(&table)?;
        if self.sweep.file.losses {
            losses::draw(
                &self.folder.join("losses.svg"),
                &self.sweep,
                &self.cells,
                &children.folder,
            )?;
        }
        if self.sweep.file.noise {
            noise::draw(&self.folder, &self.cells, &children.folder)?;
        }
        Ok(table)
    }

    /// Creates the folder of the sweep and locks it until the result is dropped: exclusively, or
    /// shared with other shares of this sweep.
    fn hold(&self, runs: &Path, alone: bool) -> Result<std::fs::File> {
        if !state::is_of_sweep(&self.folder) {
            undertone_run::check_new_folder(&self.folder)
                .map_err(|e| Error::mistake(e.to_string()))?;
        }
        std::fs::create_dir_all(runs).map_err(|e| Error::write(runs, e))?;
        let lock = state::hold(&self.folder, alone).map_err(|e| Error::write(&self.folder, e))?;
        lock.ok_or_else(|| Error::InUse { folder: self.folder.clone() })
    }

    /// A private run's ledger records what was released, so it is kept even if the sweep has
    /// changed.
    fn refuse_to_overwrite(&self, runs: &Path) -> Result<()> {
        for run in &self.cells.runs {
            let folder = runs.join(&run.folder);
            if let State::Precious = state::look(&folder, run) {
                return Err(Error::PrivateRun { folder });
            }
        }
        Ok(())
    }

    fn write(&self, table: &Table) -> Result<()> {
        for (name, text) in [
            ("table.txt", formats::text(table)),
            ("table.md", formats::markdown(table)),
            ("table.tex", formats::latex(table)),
            ("table.csv", formats::csv(table)),
        ] {
            write_whole(&self.folder.join(name), &text)?;
        }
        chart::draw(&self.folder.join("plot.svg"), &self.sweep, table)
    }
}

/// Writes a file atomically.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let written = undertone_run::write_atomically(path, |out| out.write_all(text.as_bytes()));
    written.map_err(|e| Error::write(path, e))
}
