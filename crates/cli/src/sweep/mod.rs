//! `undertone sweep`: many runs, one table.
//!
//! ```text
//! sweep file ─▶ cells (plans, checked) ─▶ runs, each a process ─▶ summaries ─▶ table ─▶ text, Markdown, LaTeX, CSV, SVG
//! ```

mod cells;
mod chart;
mod child;
#[cfg(test)]
mod examples;
mod file;
mod formats;
mod grid;
mod metric;
mod notes;
mod progress;
mod runner;
mod state;
mod statistics;
mod subset;
mod table;

use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use cells::Cells;
use child::Setting;
use clap::Args;
use serde::Serialize;
use state::State;
use std::io::Write;
use std::path::{Path, PathBuf};
use subset::Subsets;
use table::Table;

/// Run a grid of runs with several seeds, and make a table of them; resumable, in one folder
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone sweep examples/papers/small/anadp-figure3.toml --out runs/budgets\n  \
                  undertone sweep sweep.toml --list"
)]
pub struct Sweep {
    /// The sweep file (TOML)
    sweep: PathBuf,
    /// Folder of the sweep [default: runs/ and the name of the sweep file]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at a time [default: one for every four cores, and one on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Change a key of every run; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Check every cell's plan and show what would run, and run nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    device: DeviceArguments,
    /// Print the table as one JSON object
    #[arg(long)]
    json: bool,
}

impl Sweep {
    pub fn run(self) -> Outcome {
        let sweep = file::Sweep::read(&self.sweep)?;
        let out = self
            .out
            .clone()
            .unwrap_or_else(|| Path::new("runs").join(self.sweep.file_stem().unwrap_or_default()));
        let mut subsets = Subsets::new(out.join("data"));
        let cells = Cells::new(&sweep, &self.changes, &mut subsets)?;
        if self.list {
            list(&cells, self.json);
            return Ok(());
        }
        // Only to refuse a device that is not there before any run does.
        self.device.device()?;
        let runs = out.join("runs");
        std::fs::create_dir_all(&runs).map_err(|e| Failure::write(&runs, e))?;
        let Some(_lock) = state::hold(&out).map_err(|e| Failure::write(&out, e))? else {
            return Err(Failure::arguments(format!(
                "{} is in use by another sweep; wait for it, or choose another folder by --out",
                out.display()
            )));
        };
        refuse_to_overwrite(&cells, &runs)?;
        subsets.write()?;
        let jobs = self.jobs();
        let setting = Setting {
            program: std::env::current_exe()
                .map_err(|e| Failure::write(Path::new("undertone"), e))?,
            folder: runs,
            device: self.device.again(),
            threads: threads(jobs),
            keep_weights: sweep.file.keep_weights,
        };
        let results = runner::run_all(&cells.runs, &setting, jobs, sweep.file.metric);
        let table = Table::new(&sweep, &cells, &results);
        let text = formats::text(&table);
        write_whole(&out.join("table.txt"), &text)?;
        write_whole(&out.join("table.md"), &formats::markdown(&table))?;
        write_whole(&out.join("table.tex"), &formats::latex(&table))?;
        write_whole(&out.join("table.csv"), &formats::csv(&table))?;
        chart::draw(&out.join("plot.svg"), &sweep, &table)?;
        if self.json {
            output::json(&table);
        } else {
            output::line(text.trim_end());
            output::line(format_args!(
                "Files: table.txt, .md, .tex, .csv and plot.svg in {}",
                out.display()
            ));
        }
        match table.failures.len() {
            0 => Ok(()),
            failed => Err(Failure::Runs(format!(
                "{failed} of {} runs failed; the same command tries them again",
                cells.runs.len()
            ))),
        }
    }

    fn jobs(&self) -> usize {
        let usual = if self.device.is_gpu() { 1 } else { (cores() / 4).max(1) };
        self.jobs.map_or(usual, usize::from)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// An equal part of the cores for each run, unless the user says how many threads.
fn threads(jobs: usize) -> usize {
    let said = std::env::var("RAYON_NUM_THREADS").ok().and_then(|threads| threads.parse().ok());
    said.filter(|&threads| threads > 0).unwrap_or_else(|| (cores() / jobs).max(1))
}

/// A private run's ledger says what was released: it is not thrown away for a sweep that has
/// changed.
fn refuse_to_overwrite(cells: &Cells, folder: &Path) -> Outcome {
    for run in &cells.runs {
        let place = folder.join(&run.folder);
        if let State::Precious = state::look(&place, run) {
            return Err(Failure::arguments(format!(
                "{} holds a private run of another plan, which is kept; choose another folder by \
                 --out",
                place.display()
            )));
        }
    }
    Ok(())
}

/// What would run.
fn list(cells: &Cells, json: bool) {
    #[derive(Serialize)]
    struct Listed<'a> {
        name: &'a str,
        folder: &'a str,
        plan: &'a undertone::train::Plan,
    }
    if json {
        let all: Vec<Listed> = cells
            .runs
            .iter()
            .map(|run| Listed { name: &run.name, folder: &run.folder, plan: &run.plan })
            .collect();
        output::json(&all);
        return;
    }
    cells.runs.iter().for_each(|run| output::line(&run.name));
    output::line(format_args!("{} runs", cells.runs.len()));
}

/// Writes beside the file and renames, so that the file is whole or as it was.
fn write_whole(path: &Path, text: &str) -> Outcome {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let beside = path.with_file_name(name);
    let written = std::fs::File::create(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|e| Failure::write(path, e))
}
