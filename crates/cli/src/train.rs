//! `undertone train`: from a run file to a trained model.

use crate::arguments::ChangeArguments;
use crate::before_training::Siblings;
use crate::device::DeviceArguments;
use crate::display::{Display, short};
use crate::dry_run::dry_run;
use crate::failure::{Failure, Outcome};
use crate::live::Live;
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use crate::register::{Booking, Ended, RegisterArguments};
use crate::source::{self, KeyArguments, SourceArguments};
use crate::stop::Stop;
use crate::typical::TypicalArguments;
use clap::Args;
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::train::{Error, Start, TrainingEvent, finish_stopped, train_until};
use undertone_report::plot;
use undertone_run::{RunFolder, RunPaths, Summary, WrittenRun};

/// Fine-tune a model from a run file
///
/// Writes the model, its privacy ledger and its metrics to one folder. An interrupted run can be
/// resumed with `--resume`, or finished as it is with `--finish`.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone train run.toml --out runs/first --set \
     privacy.epsilon=2\n  undertone train run.toml --dry-run\n  undertone train --model \
     sentence-transformers/all-MiniLM-L6-v2 --data letters.csv --text text --label topic \
     --epsilon 8\n  undertone train run.toml --register budgets.jsonl --dataset letters\n  \
     undertone train --out runs/first --resume\n  undertone train --out runs/first \
     --finish")]
pub struct Train {
    /// Run file (TOML), as written by `undertone init`; flags can be used instead
    run: Option<PathBuf>,
    /// Folder of the run [default: a new folder in runs/, named after the run file, or `first` for
    /// run.toml]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    set: ChangeArguments,
    /// Random seed; makes the run reproducible, and therefore not private
    #[arg(long)]
    seed: Option<u64>,
    /// Resume the run in `--out`
    #[arg(long, conflicts_with = "seed")]
    resume: bool,
    /// Write the model of a stopped run in `--out` as it is after its last saved step, with the ε
    /// of the steps taken
    #[arg(long, conflicts_with_all = ["seed", "resume", "tui", "run"])]
    finish: bool,
    /// Write into `--out` even if it holds files that are not of a run
    #[arg(long, requires = "out", conflicts_with_all = ["resume", "finish"])]
    force: bool,
    /// Check everything and time a step on synthetic tokens, without training or writing anything
    #[arg(long, conflicts_with_all = ["resume", "finish", "out", "tui"])]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceArguments,
    /// Show loss, metrics, ε, speed and noise in a live terminal view; press q to return to the
    /// progress bar
    #[arg(long)]
    tui: bool,
    /// Exit when standard input is closed, for programs that start runs
    #[arg(long, hide = true)]
    until_input_ends: bool,
    #[command(flatten)]
    typical: TypicalArguments,
    #[command(flatten)]
    keys: KeyArguments,
    #[command(flatten)]
    source: SourceArguments,
    #[command(flatten)]
    budget: RegisterArguments,
    #[command(flatten)]
    ranks: RankArguments,
}

impl Train {
    pub fn run(self, output: Output) -> Outcome {
        if self.until_input_ends {
            std::thread::spawn(end_with_input);
        }
        if !self.dry_run && !self.typical.is_empty() {
            return Err(Failure::arguments(
                "--typical-tokens and --sample are for the estimate of --dry-run; leave them out",
            ));
        }
        let place = self.ranks.place()?;
        if let (Some(place), true) = (&place, self.dry_run)
            && place.ranks > 1
        {
            return Err(Failure::arguments("a dry run uses a single process; omit --ranks"));
        }
        // Only rank 0 prints.
        let speaks = place.as_ref().is_none_or(|place| place.rank == 0);
        self.ranks.leave_speaking_to_rank_0(place);
        if self.dry_run && !self.budget.is_empty() {
            return Err(Failure::arguments(
                "a dry run releases nothing, so it needs no budget; omit --register",
            ));
        }
        let budget = match self.resume || self.finish {
            true => None,
            false => self.budget.open()?,
        };
        let (mut plan, out) = match &self.out {
            None if self.resume => {
                return Err(Failure::arguments("specify the run to resume with --out DIR"));
            }
            None if self.finish => {
                return Err(Failure::arguments("specify the run to finish with --out DIR"));
            }
            Some(out) if self.resume || self.finish => (self.resumed_plan(out)?, out.clone()),
            _ => {
                let mut written = self.source.read(self.run.as_deref(), &self.keys, &self.set)?;
                if let Some(budget) = &budget {
                    let set = self.set.with(budget.units(&written)?);
                    written = self.source.read(self.run.as_deref(), &self.keys, &set)?;
                }
                let device = self.device.device()?;
                let resolved = source::resolve(&written, self.run.as_deref(), &device)?;
                if self.dry_run {
                    let precision = self.device.precision();
                    return dry_run(resolved, precision, &device, &self.typical, output);
                }
                if speaks {
                    source::tell_choices(&resolved);
                }
                let out = self.out.clone().unwrap_or_else(|| {
                    if !speaks {
                        return PathBuf::new();
                    }
                    let folder = source::new_folder(self.run.as_deref());
                    output::note(format_args!("writing the run to {}", folder.display()));
                    folder
                });
                (resolved.plan, out)
            }
        };
        if speaks && !(self.resume || self.finish || self.force) {
            RunFolder::check_nothing_foreign(&out)?;
        }
        let device = self.device.device()?;
        if self.seed.is_some() {
            plan.training.seed = self.seed;
        }
        if let Some(precision) = self.device.precision() {
            plan.compute.precision = Some(precision);
        }
        let booking = match budget {
            // Before anything of the data is read.
            Some(budget) if speaks => Some(budget.reserve(&mut plan, "train", &out)?),
            _ if speaks && (self.resume || self.finish) => {
                let booking = Booking::of_run(&out, &self.budget)?;
                booking.iter().try_for_each(Booking::check_open)?;
                booking
            }
            _ => None,
        };
        let mut display = Display::new();
        // Programs that start runs, such as a sweep, save the output in a log.
        if !self.until_input_ends {
            display.beside = Some(Siblings::of(&out));
        }
        if self.tui && speaks && std::io::stdout().is_terminal() {
            display.live = Some(Live::new(out.display().to_string(), &plan.file()));
        }
        let ranks = self.ranks.join(place)?;
        let start =
            Start { plan, out: &out, resume: self.resume, device, data: None, ranks, tape: None };
        let stop = Stop::listen();
        let mut announcement = None;
        let mut show = |event: TrainingEvent| {
            if speaks {
                display.show(&event);
            }
            if matches!(event, TrainingEvent::Ready { .. }) {
                stop.steps_begin();
                let bar = display.bar.clone();
                announcement = speaks.then(|| stop.announce(move || announce_stop(bar)));
            }
        };
        let summary = match self.finish {
            true => finish_stopped(start, &mut show),
            false => train_until(&stop.asked, start, &mut show),
        };
        drop(announcement);
        display.end();
        if let Some(booking) = &booking {
            booking.conclude(match &summary {
                Ok(_) => Ended::Finished,
                Err(Error::Stopped { .. }) => Ended::Stopped,
                Err(_) => Ended::Failed,
            })?;
            booking.announce()?;
        }
        let summary = match summary {
            Err(Error::Stopped { step, steps }) => {
                return Err(Failure::Stopped(format!(
                    "stopped after step {step} of {steps}; resume with: undertone train --out {out} \
                     --resume; or write the model as it is with: undertone train --out {out} \
                     --finish",
                    out = quoted(&out)
                )));
            }
            Err(full @ Error::FullDisk { .. }) => {
                let resume = format!("undertone train --out {} --resume", quoted(&out));
                return Err(Failure::FullDisk { source: full, resume });
            }
            done => done?,
        };
        if !speaks {
            return Ok(());
        }
        draw(&summary, &out)?;
        if output.json {
            output::json(&summary);
        } else {
            tell(&summary, &out);
        }
        Ok(())
    }

    /// The plan of a resumed run. The recipe's choices and the seed, which may have come from the
    /// command line, are read from the folder.
    fn resumed_plan(&self, out: &Path) -> Outcome<Plan> {
        let paths = RunPaths::new(out);
        if !paths.plan().exists() {
            return Err(Failure::arguments(format!(
                "{} contains no run to resume or finish",
                out.display()
            )));
        }
        if !self.source.is_empty() || !self.keys.is_empty() {
            return Err(Failure::arguments(
                "a resumed run keeps its model, data and budget; omit their flags",
            ));
        }
        let begun = Plan::read(&paths.plan(), &[])?;
        let Some(path) = &self.run else {
            return Ok(Plan::read(&paths.plan(), &self.set.changes())?);
        };
        let written = WrittenRun::read(path, &self.set.changes())?;
        let mut plan = Plan::resolve_as(&written, &begun)?;
        plan.training.seed = begun.training.seed;
        Ok(plan)
    }
}

/// Confirms that a signal was received, above the progress bar if there is one.
fn announce_stop(bar: Option<ProgressBar>) {
    let say = || output::note("stopping after this step … (Ctrl-C again stops at once)");
    match bar {
        Some(bar) => bar.suspend(say),
        None => say(),
    }
}

/// A path quoted for the shell.
fn quoted(path: &std::path::Path) -> String {
    shell_quoted(&path.display().to_string())
}

/// A word quoted for the shell.
pub fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Exits when standard input is closed: the parent process is gone, and a run may be interrupted at
/// any time.
fn end_with_input() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(1);
}

/// Plots the noise per parameter, unless it is uniform, and the relevance it was derived from.
pub fn draw(summary: &Summary, out: &Path) -> Outcome {
    let paths = RunPaths::new(out);
    let noise = &summary.noise_by_parameter;
    if noise.iter().any(|(_, number)| (number - 1.0).abs() > 1e-6) {
        plot::heat_map(&paths.noise_figure(), "Noise, relative to the mean", noise)?;
    }
    if !summary.relevance_by_parameter.is_empty() {
        plot::heat_map(
            &paths.relevance_figure(),
            "Relevance, mean of [0, 1]",
            &summary.relevance_by_parameter,
        )?;
    }
    Ok(())
}

fn tell(summary: &Summary, out: &Path) {
    let mut rows = Vec::new();
    match (&summary.not_private_because, &summary.guarantee) {
        (Some(why), _) => rows.push(("not private", why.clone())),
        (None, Some(guarantee)) => rows.push(("guarantee", guarantee.to_string())),
        (None, None) => {}
    }
    if let (Some(claim), Some(guarantee)) = (&summary.claimed, &summary.guarantee) {
        rows.push((
            "claimed",
            format!(
                "ε = {:.4} at δ = {:e}, by the paper's own \
                     accounting",
                claim.epsilon, claim.delta
            ),
        ));
        if summary.plan.privacy.method.is_local() {
            rows.push((
                "local",
                format!(
                    "{guarantee} This covers the perturbed embeddings, against a provider who \
                     sees each of them."
                ),
            ));
            rows.push((
                "central",
                "no ε: the layers below the noise were trained on the raw examples, and the final \
                 weights depend on them"
                    .to_owned(),
            ));
        } else {
            rows.push(("central", guarantee.to_string()));
        }
    }
    if let Some(guarantee) = &summary.guarantee
        && guarantee.delta * summary.resolved.units as f64 >= 1.0
    {
        rows.push((
            "beware",
            format!(
                "δ = {:e} is not below one over the number of units ({}): publishing one of them \
                 in full would be allowed; choose a smaller one",
                guarantee.delta, summary.resolved.units
            ),
        ));
    }
    if let Some(stop) = &summary.early_stop {
        let all = summary.plan.training.epochs;
        let planned =
            if summary.guarantee.is_some() { "; ε is that of all planned steps" } else { "" };
        rows.push((
            "early stop",
            format!(
                "{} of {all} epochs, the weights of epoch {} are kept{planned}",
                stop.epochs, stop.kept
            ),
        ));
    }
    if let Some(stopped) = &summary.stopped {
        rows.push(("stopped", format!("{} of {} steps", summary.steps, stopped.planned_steps)));
        rows.extend(stopped.caveat().map(|caveat| ("beware", caveat)));
    }
    if let Some(metrics) = &summary.metrics.validation {
        rows.push(("validation", short(metrics)));
    }
    if let Some(metric) = summary.released_metrics.last() {
        let from = format!("{metric} after epoch {}, with noise that ε covers", metric.epoch);
        rows.push(("released", from));
    }
    if let Some(metrics) = &summary.metrics.validation_with_noise {
        rows.push((
            "with noise",
            format!("{} when the validation embeddings are perturbed too", short(metrics)),
        ));
    }
    if let Some(speed) = &summary.throughput {
        rows.push((
            "speed",
            format!("{:.1} examples/s, {:.0} s", speed.examples_per_second, speed.seconds),
        ));
    }
    let gb = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
    match (summary.peak_gpu_memory_bytes, summary.peak_memory_bytes) {
        (Some(gpu), Some(host)) => {
            rows.push(("memory", format!("{} on the GPU, {} on the host", gb(gpu), gb(host))));
        }
        (Some(gpu), None) => rows.push(("memory", format!("{} on the GPU", gb(gpu)))),
        (None, Some(host)) => rows.push(("memory", gb(host))),
        (None, None) => {}
    }
    rows.push(("folder", out.display().to_string()));
    output::rows(&rows);
}
