//! `undertone sweep`: many runs, one table.

use crate::arguments::ChangeArguments;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::register::{Budget, RegisterArguments, book_selection};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use undertone_run::{RunFile, RunPaths};
use undertone_sweep::{Launch, Prepared, Run, Share, formats};

/// Train a grid of methods, hyperparameters and seeds, and tabulate the results
///
/// Writes all runs and the table to one folder. Run the same command again to continue an
/// interrupted sweep.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone sweep examples/papers/small/anadp-figure3.toml --out \
     runs/budgets\n  undertone sweep sweep.toml --list"
)]
pub struct Sweep {
    /// Sweep file (TOML)
    sweep: PathBuf,
    /// Folder of the sweep [default: runs/NAME for NAME.toml]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of concurrent runs [default: one per four cores, or one on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    set: ChangeArguments,
    /// Release only the best of a random number of runs, with one guarantee for all of them
    /// (section `selection` of the sweep file)
    #[arg(long)]
    private_selection: bool,
    /// Check and list all runs, without starting any
    #[arg(long)]
    list: bool,
    /// Command that starts each run, such as "srun -N1 --gpus=1"; split at spaces
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<String>,
    /// Run only share I of N, for job arrays; tabulate with `--gather` afterwards
    #[arg(long, value_name = "I/N", conflicts_with = "private_selection")]
    shard: Option<Share>,
    /// Tabulate the finished runs, without starting any
    #[arg(long, conflicts_with_all = ["private_selection", "shard", "list", "launcher"])]
    gather: bool,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    budget: RegisterArguments,
}

impl Sweep {
    pub fn run(self, output: Output) -> Outcome {
        let sweep = undertone_sweep::Sweep::read(&self.sweep)?;
        let out = self
            .out
            .clone()
            .unwrap_or_else(|| Path::new("runs").join(self.sweep.file_stem().unwrap_or_default()));
        let budget = self.budget.open()?;
        if budget.is_some() && (self.gather || self.list) {
            return Err(Failure::arguments(
                "--register pays for runs, and --list and --gather start none; omit it",
            ));
        }
        let units = budget.as_ref().and_then(Budget::declared_units);
        let units = units.map(|units| format!("privacy.units={units}"));
        let changes = self.set.with(units).changes();
        let prepared = Prepared::new(sweep, out.clone(), &changes)?;
        if self.private_selection {
            return self.select(&prepared, budget, &out, output);
        }
        if let Some(budget) = &budget {
            let runs = prepared.runs().iter();
            let new = runs
                .filter(|run| !RunPaths::new(&out.join("runs").join(&run.folder)).plan().exists());
            budget.check(new.map(|run| &run.plan))?;
        }
        if self.list {
            match self.shard {
                Some(share) => list(&prepared.share(share), output),
                None => list(&prepared.runs().iter().collect::<Vec<_>>(), output),
            }
            return Ok(());
        }
        // Fail early if the device is unavailable; with a launcher, runs start elsewhere.
        if self.launcher.is_none() && !self.gather {
            self.device.device()?;
        }
        if let Some(share) = self.shard {
            let failed = prepared.run_share(&self.launch()?, share)?;
            for (name, why) in &failed {
                output::note(format_args!("{name} failed: {why}"));
            }
            return match failed.len() {
                0 => Ok(()),
                failed => Err(Failure::Runs { failed, all: prepared.share(share).len() }),
            };
        }
        let table = match self.gather {
            true => prepared.gather(&self.launch()?)?,
            false => prepared.run(&self.launch()?)?,
        };
        if output.json {
            output::json(&table);
        } else {
            output::line(formats::text(&table).trim_end());
            output::line(format_args!(
                "Files: table.txt, .md, .tex, .csv and plot.svg in {}",
                out.display()
            ));
        }
        match table.failures.len() {
            0 => Ok(()),
            missing if self.gather => {
                let all = prepared.runs().len();
                output::note(format_args!("{missing} of {all} runs are not in the table"));
                Ok(())
            }
            failed => Err(Failure::Runs { failed, all: prepared.runs().len() }),
        }
    }

    /// Private selection, paid for by a budget if one was named.
    fn select(
        &self,
        prepared: &Prepared,
        budget: Option<Budget>,
        out: &Path,
        output: Output,
    ) -> Outcome {
        let Some(budget) = budget else { return self.select_best(prepared, out, output) };
        // Before anything of the data is read.
        let booking = book_selection(budget, &prepared.selection_cost()?, out)?;
        let selected = self.select_best(prepared, out, output);
        booking.settle()?;
        selected
    }

    /// Prints the privacy cost, then trains and selects the best run.
    fn select_best(&self, prepared: &Prepared, out: &Path, output: Output) -> Outcome {
        let planned = prepared.plan_selection()?;
        output::note(format_args!(
            "selecting among {} settings with about {:.1} runs costs ε ≤ {} at δ = {:e} in total \
             (rdp, an upper bound)",
            prepared.runs().len(),
            planned.runs.mean(),
            output::up(planned.epsilon),
            planned.delta
        ));
        if self.list {
            list(&prepared.runs().iter().collect::<Vec<_>>(), output);
            return Ok(());
        }
        if self.launcher.is_none() {
            self.device.device()?;
        }
        // The selection pays once for all of its runs.
        let launch = Launch { budget: Vec::new(), ..self.launch()? };
        let selected = prepared.select(&planned, &launch)?;
        if output.json {
            output::json(&selected);
            return Ok(());
        }
        match (&selected.name, selected.score) {
            (Some(name), Some(score)) => {
                output::line(format_args!("Selected: {name} ({}: {score:.4})", selected.metric));
                output::line(format_args!("Model: {}", out.join("selected").display()));
            }
            (Some(name), None) => output::line(format_args!("Selected: {name}")),
            _ => output::line("No run was drawn, so nothing is released."),
        }
        output::line(format_args!("{}.", selected.guarantee));
        output::line(format_args!(
            "Ledger: {}; the other runs were removed.",
            undertone_run::RunPaths::new(out).ledger().display()
        ));
        Ok(())
    }

    fn launch(&self) -> Outcome<Launch> {
        let usual = if self.device.is_gpu() { 1 } else { (cores() / 4).max(1) };
        let jobs = self.jobs.map_or(usual, usize::from);
        let words = self.launcher.iter().flat_map(|words| words.split_whitespace());
        let launcher: Vec<String> = words.map(str::to_owned).collect();
        if self.launcher.is_some() && launcher.is_empty() {
            return Err(Failure::arguments("--launcher is empty; omit it"));
        }
        Ok(Launch {
            program: std::env::current_exe()
                .map_err(|e| Failure::write(Path::new("undertone"), e))?,
            device: self.device.again(),
            budget: self.budget.again(),
            jobs,
            // Another machine may have a different number of cores.
            threads: launcher.is_empty().then(|| threads(jobs)),
            launcher,
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads per run: an equal share of the cores, unless RAYON_NUM_THREADS is set.
fn threads(jobs: usize) -> usize {
    let said = std::env::var("RAYON_NUM_THREADS").ok().and_then(|threads| threads.parse().ok());
    said.filter(|&threads| threads > 0).unwrap_or_else(|| (cores() / jobs).max(1))
}

/// Prints the runs of the sweep.
fn list(runs: &[&Run], output: Output) {
    #[derive(Serialize)]
    struct Listed<'a> {
        name: &'a str,
        folder: &'a str,
        plan: RunFile,
    }
    if output.json {
        let all: Vec<Listed> = runs
            .iter()
            .map(|Run { name, folder, plan }| Listed { name, folder, plan: plan.file() })
            .collect();
        output::json(&all);
        return;
    }
    runs.iter().for_each(|run| output::line(&run.name));
    output::line(format_args!("{} runs", runs.len()));
}
