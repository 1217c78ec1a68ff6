//! `undertone demo`: fine-tunes on private letters with and without privacy, and compares the
//! models' accuracy and what they reveal.

mod attack;
mod corpus;
mod files;
mod model;
mod synthetic;
mod tell;

use crate::display::Display;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, line};
use crate::report::{self, Format};
use attack::Attacked;
use clap::Args;
use corpus::Patient;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use synthetic::SyntheticLetters;
use undertone::collective::Ranks;
use undertone::tensor::Device;
use undertone::train::{Plan, Start, Summary, train};
use undertone_report::Options;

/// Train, attack and report on a built-in corpus, offline, in a few minutes
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone demo\n  undertone demo --quick\n  \
                  undertone demo --out runs/letters --data-only")]
pub struct Demo {
    /// Folder for the data and the runs; an earlier demo in it is replaced
    #[arg(long, value_name = "FOLDER", default_value = "runs/demo")]
    out: PathBuf,
    /// Number of private training letters, from 256 to 1000000; a quarter as many are used for
    /// validation [default: 4000, or 2400 with --quick]
    #[arg(long)]
    letters: Option<usize>,
    /// Train and attack only the classifiers, in about 20 seconds
    #[arg(long, conflicts_with = "data_only")]
    quick: bool,
    /// Write the model, the letters and the run files, without training
    #[arg(long)]
    data_only: bool,
    /// Recreate the built-in model in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    pretrain: Option<PathBuf>,
}

/// Allowed number of letters.
const LETTERS: std::ops::RangeInclusive<usize> = 256..=1_000_000;

/// Number of letters by default, and with `--quick`.
const USUAL: usize = 4_000;
const QUICK: usize = 2_400;

/// The purpose of a demo model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// A classifier: which topic has a letter?
    Sort,
    /// A language model that writes like the patients.
    Write,
}

/// A run of the demo.
struct DemoRun {
    job: Job,
    /// Name of its folder.
    name: &'static str,
    /// Changes to the job's run file.
    changes: &'static [&'static str],
    /// Further changes with `--quick`: fewer and larger steps.
    quick: &'static [&'static str],
}

/// Without privacy, and at ε = 8 as in the run files. Non-private runs need no privacy unit.
static RUNS: [DemoRun; 4] = [
    DemoRun {
        job: Job::Sort,
        name: "sort-non-private",
        changes: &[
            "privacy.method=none",
            "-privacy.epsilon",
            "-privacy.delta",
            "-data.author",
            "training.epochs=3",
            "training.learning_rate=1e-3",
            "training.batch=64",
        ],
        quick: &["training.epochs=1", "training.learning_rate=4e-3"],
    },
    DemoRun {
        job: Job::Sort,
        name: "sort-epsilon-8",
        changes: &[],
        quick: &["training.epochs=3", "training.learning_rate=8e-3"],
    },
    DemoRun {
        job: Job::Write,
        name: "write-non-private",
        changes: &[
            "privacy.method=none",
            "-privacy.epsilon",
            "-privacy.delta",
            "-data.author",
            "training.epochs=20",
            "training.learning_rate=2e-3",
            "training.batch=16",
        ],
        quick: &[],
    },
    DemoRun { job: Job::Write, name: "write-epsilon-8", changes: &[], quick: &[] },
];

/// Writes the demo's model, letters and run files into a folder, which must be new or that of an
/// earlier demo.
pub fn write_data(folder: &Path, letters: usize) -> Outcome {
    if !LETTERS.contains(&letters) {
        return Err(Failure::arguments(format!(
            "the number of letters must be from {} to {}",
            LETTERS.start(),
            LETTERS.end()
        )));
    }
    clear(folder)?;
    files::prepare(folder, letters).map(|_| ())
}

impl Demo {
    pub fn run(self, output: Output) -> Outcome {
        if let Some(folder) = &self.pretrain {
            model::pretrain(folder)?;
            if output.json {
                output::json(&json!({ "model": folder }));
            }
            return Ok(());
        }
        let letters = self.letters();
        if !LETTERS.contains(&letters) {
            return Err(Failure::arguments(format!(
                "--letters must be from {} to {}",
                LETTERS.start(),
                LETTERS.end()
            )));
        }
        let started = std::time::Instant::now();
        clear(&self.out)?;
        let patients = files::prepare(&self.out, letters)?;
        if self.data_only {
            if output.json {
                output::json(&json!({ "folder": self.out }));
            } else {
                line(format_args!(
                    "Model, letters, the patients' codes, run.toml and write.toml are in {}.",
                    self.out.display()
                ));
            }
            return Ok(());
        }
        let summaries = self.train()?;
        let attacked = attack::all(&self.out, self.runs(), &patients)?;
        let synthetic = match self.quick {
            true => None,
            false => Some(synthetic::run(&self.out)?),
        };
        let report = self.out.join("report.html");
        let names = self.runs().iter().map(|run| run.name);
        let names = names.chain(synthetic.as_ref().map(|_| synthetic::FOLDER));
        let folders: Vec<PathBuf> = names.map(|name| self.out.join(name)).collect();
        report::write(&folders, &report, Format::Html, Options::default())?;
        let seconds = started.elapsed().as_secs_f64();
        let results = Results { summaries, patients, attacked, synthetic, report, seconds };
        match output.json {
            true => self.print_json(&results),
            false => tell::print(&self, &results),
        }
        Ok(())
    }

    fn letters(&self) -> usize {
        self.letters.unwrap_or(if self.quick { QUICK } else { USUAL })
    }

    /// The runs of this demo.
    fn runs(&self) -> &'static [DemoRun] {
        let classifiers = RUNS.iter().take_while(|run| run.job == Job::Sort).count();
        if self.quick { &RUNS[..classifiers] } else { &RUNS }
    }

    /// Trains each run and returns the summaries.
    fn train(&self) -> Outcome<Vec<Summary>> {
        let mut summaries = Vec::new();
        for run in self.runs() {
            output::note(format_args!("\n{}:", run.name));
            let quick = if self.quick { run.quick } else { &[] };
            let changes: Vec<String> =
                run.changes.iter().chain(quick).map(ToString::to_string).collect();
            let plan = Plan::read(&self.out.join(files::run_file(run.job)), &changes)?;
            summaries.push(train_run(plan, &self.out.join(run.name))?);
        }
        Ok(summaries)
    }

    fn print_json(&self, results: &Results) {
        let Results { summaries, patients, attacked, synthetic, report, seconds } = results;
        let runs =
            self.runs().iter().zip(summaries).zip(attacked).map(|((run, summary), attacked)| {
                json!({
                    "name": run.name,
                    "folder": self.out.join(run.name),
                    "accuracy": tell::accuracy(summary),
                    "guarantee": summary.guarantee,
                    "membership": attacked.membership,
                    "exposure": attacked.exposure,
                    "codes_given_away": attacked.given_away(patients),
                })
            });
        output::json(&json!({
            "folder": self.out, "report": report, "seconds": seconds,
            "patients": patients.len(), "runs": runs.collect::<Vec<_>>(), "synthetic": synthetic,
        }));
    }
}

/// What the demo has found.
struct Results {
    summaries: Vec<Summary>,
    patients: Vec<Patient>,
    attacked: Vec<Attacked>,
    /// `None` with `--quick`.
    synthetic: Option<SyntheticLetters>,
    report: PathBuf,
    seconds: f64,
}

/// Trains on the CPU, and shows the progress.
fn train_run(plan: Plan, out: &Path) -> Outcome<Summary> {
    let mut display = Display::new();
    let start = Start {
        plan,
        out,
        resume: false,
        device: Device::Cpu,
        data: None,
        ranks: Ranks::alone(),
        tape: None,
    };
    let done = train(start, &mut |event| display.show(&event));
    display.end();
    Ok(done?)
}

/// Removes only the files of an earlier demo.
fn clear(out: &Path) -> Outcome {
    let is_empty = std::fs::read_dir(out).map_or(true, |mut inside| inside.next().is_none());
    let is_ours = || {
        std::fs::read_to_string(out.join("run.toml"))
            .is_ok_and(|file| file.starts_with(files::MARK))
    };
    if !is_empty && !is_ours() {
        return Err(Failure::arguments(format!(
            "{} contains files that no demo wrote; choose a new folder with --out",
            out.display()
        )));
    }
    // Earlier versions had different runs.
    let earlier = ["model", "open", "non-private", "epsilon-8", "epsilon-1"];
    let earlier = earlier.into_iter().chain([synthetic::FOLDER, synthetic::CLASSIFIER]);
    for name in RUNS.iter().map(|run| run.name).chain(earlier) {
        let folder = out.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|e| Failure::write(&folder, e))?;
        }
    }
    std::fs::create_dir_all(out).map_err(|e| Failure::write(out, e))
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    Ok(undertone_run::write_atomically(path, |out| out.write_all(bytes))?)
}
