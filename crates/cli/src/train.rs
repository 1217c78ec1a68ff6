//! `undertone train`: from a run file to a trained model.

use crate::arguments::ChangeArguments;
use crate::before_training::{self, LoadedRun, Siblings};
use crate::device::DeviceArguments;
use crate::dry_run::dry_run;
use crate::failure::{Failure, Outcome};
use crate::live::{Live, Point, View, in_words, seconds_left};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use crate::source::{self, KeyArguments, SourceArguments};
use crate::stop::Stop;
use crate::typical::TypicalArguments;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use undertone::Plan;
use undertone::evaluate::Metrics;
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
     --epsilon 8\n  undertone train --out runs/first --resume\n  undertone train --out runs/first \
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
        let (mut plan, out) = match &self.out {
            None if self.resume => {
                return Err(Failure::arguments("specify the run to resume with --out DIR"));
            }
            None if self.finish => {
                return Err(Failure::arguments("specify the run to finish with --out DIR"));
            }
            Some(out) if self.resume || self.finish => (self.resumed_plan(out)?, out.clone()),
            _ => {
                let written = self.source.read(self.run.as_deref(), &self.keys, &self.set)?;
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
        let mut display = Display::new();
        // What a program starts, such as a sweep, is kept in a log.
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

/// Says that a signal was heard, above the progress bar if there is one.
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

/// Progress of a run: a bar on a terminal, otherwise a line every few seconds.
pub struct Display {
    bar: Option<ProgressBar>,
    said: Option<Instant>,
    steps: u64,
    /// When this process finished its first step, and the steps that were done by then. The first
    /// step takes longer: it compiles kernels and fills memory.
    began: Option<(Instant, u64)>,
    /// Whether a line with the GPU memory has been printed, and one with the time left.
    said_memory: bool,
    said_left: bool,
    /// Display name of the privacy units.
    units: &'static str,
    /// Whether the run file declares the number of units.
    declares_units: bool,
    /// The folder of the run and those beside it, if only the curator sees the output: it may then
    /// state counts of rows and earlier runs.
    pub beside: Option<Siblings>,
    /// State of the live view, until the view opens.
    live: Option<Live>,
    view: Option<View>,
}

/// Interval between progress lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

impl Display {
    pub fn new() -> Self {
        let (bar, said, live, view) = (None, None, None, None);
        Self {
            bar,
            said,
            steps: 0,
            began: None,
            said_memory: false,
            said_left: false,
            units: "units",
            declares_units: false,
            beside: None,
            live,
            view,
        }
    }

    /// Shows the progress of work before the first step.
    fn show_preparation(&mut self, what: &str, done: u64, all: u64) {
        let due = self.said.is_none_or(|said| said.elapsed() > LINE_EVERY);
        if std::io::stderr().is_terminal() && !output::is_hushed() {
            let bar = self.bar.get_or_insert_with(|| ProgressBar::new(all));
            bar.set_position(done);
            if done == all {
                bar.finish_and_clear();
                self.bar = None;
            }
        } else if due || done == all {
            output::note(format_args!("{what}: {done} of {all}"));
            self.said = Some(Instant::now());
        }
    }

    pub fn show(&mut self, event: &TrainingEvent) {
        match event {
            TrainingEvent::Loaded {
                plan,
                resolved,
                data,
                labels_were_found,
                parameters,
                planned,
            } => {
                self.units = before_training::units(plan, resolved.units);
                self.declares_units = plan.declared_units().is_some();
                let (labels_were_found, parameters) = (*labels_were_found, *parameters);
                let planned = *planned;
                let run =
                    LoadedRun { plan, resolved, data, labels_were_found, parameters, planned };
                let notes = before_training::notes(&run, self.beside.as_ref());
                notes.iter().for_each(output::note);
            }
            TrainingEvent::Sums { told } => output::note(told),
            TrainingEvent::Warning { message } => output::note(message),
            TrainingEvent::Relevance { done, examples } => {
                self.show_preparation("relevance of examples", *done as u64, *examples as u64);
            }
            TrainingEvent::PublicGradients { done, examples } => {
                let what = "gradients of public examples";
                self.show_preparation(what, *done as u64, *examples as u64);
            }
            TrainingEvent::Adaptation { done, steps } => {
                self.show_preparation("steps of adaptation", *done, *steps)
            }
            TrainingEvent::Ready { resolved, examples, skipped, parameters, done, steps } => {
                (self.steps, self.began) = (*steps, None);
                if *skipped > 0 {
                    output::note(format_args!(
                        "rows of the training file that cannot be read and were skipped: {skipped}"
                    ));
                }
                let noise: Vec<String> =
                    resolved.noise_multipliers.iter().map(|s| format!("{s:.4}")).collect();
                let noise = match noise.as_slice() {
                    [] => "no noise".to_owned(),
                    [first, rest @ ..] if rest.iter().all(|s| s == first) => {
                        format!("noise multiplier {first}")
                    }
                    all => format!("noise multipliers {} by epoch", all.join(", ")),
                };
                let data = match resolved.units {
                    units if self.declares_units => {
                        format!("{examples} examples, {units} {} declared", self.units)
                    }
                    units if units == *examples => format!("{examples} {}", self.units),
                    units if self.units == "examples" => {
                        format!("{examples} pieces of {units} texts")
                    }
                    units => format!("{examples} examples of {units} {}", self.units),
                };
                output::note(format_args!(
                    "{data}, {} of {} parameters trainable, {steps} steps, {noise}{}",
                    parameters.trainable,
                    parameters.total,
                    if *done > 0 { format!(", resuming after step {done}") } else { String::new() }
                ));
                if let Some(mut live) = self.live.take() {
                    live.ready(resolved.noise_multipliers.clone(), *done, *steps);
                    self.view = Some(View::open(live));
                } else {
                    self.show_bar(*done);
                }
            }
            TrainingEvent::Step { record, throughput, epsilon, gpu_memory_bytes } => {
                if let Some(view) = self.view.take_if(|view| !view.is_open()) {
                    drop(view);
                    self.show_bar(record.step);
                }
                let (since, first) =
                    *self.began.get_or_insert_with(|| (Instant::now(), record.step));
                let left = seconds_left(since.elapsed(), first, record.step, self.steps);
                if let Some(view) = &self.view {
                    view.tell(|live| {
                        live.add(&Point::from(*record));
                        live.speed = Some(throughput.examples_per_second);
                        live.spent = epsilon.map(|spent| spent.epsilon).or(live.spent);
                        live.seconds_left = left;
                    });
                    return;
                }
                let loss = record.loss.map_or("–".to_owned(), |loss| format!("{loss:.4}"));
                let spent =
                    epsilon.map_or(String::new(), |spent| match spent.step == record.step {
                        true => format!(", ε {}", output::up(spent.epsilon)),
                        false => {
                            format!(", ε {} at step {}", output::up(spent.epsilon), spent.step)
                        }
                    });
                let speed = throughput.examples_per_second;
                let is_first_estimate = left.is_some() && !self.said_left;
                self.said_left |= left.is_some();
                let left = left.map_or(String::new(), |left| format!(", {} left", in_words(left)));
                let text = format!("loss {loss}{spent}, {speed:.1} examples/s{left}");
                let validation =
                    record.validation.as_ref().map(|metrics| format!(", {}", short(metrics)));
                if let Some(bar) = &self.bar {
                    bar.set_message(text);
                    bar.set_position(record.step);
                    if let Some(validation) = validation {
                        bar.suspend(|| {
                            output::note(format_args!("epoch {}{validation}{spent}", record.epoch))
                        });
                    }
                } else if validation.is_some()
                    || is_first_estimate
                    || self.said.is_none_or(|said| said.elapsed() > LINE_EVERY)
                {
                    let memory = gpu_memory_bytes.filter(|_| !self.said_memory);
                    self.said_memory |= memory.is_some();
                    let memory = memory.map_or(String::new(), |bytes| {
                        format!(", GPU memory {:.2} GB", bytes as f64 / 1e9)
                    });
                    output::note(format_args!(
                        "step {}/{}, {text}{memory}{}",
                        record.step,
                        self.steps,
                        validation.unwrap_or_default()
                    ));
                    self.said = Some(Instant::now());
                }
            }
        }
    }

    fn show_bar(&mut self, done: u64) {
        if !std::io::stderr().is_terminal() || output::is_hushed() {
            return;
        }
        let bar = ProgressBar::new(self.steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.set_position(done);
        self.bar = Some(bar);
    }

    pub fn end(&mut self) {
        self.view = None;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Summary of metrics in a few words.
pub fn short(metrics: &Metrics) -> String {
    match metrics {
        Metrics::Classification(found) => format!("accuracy {:.2} %", 100.0 * found.accuracy),
        Metrics::Language(found) => format!("perplexity {:.3}", found.perplexity),
    }
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
