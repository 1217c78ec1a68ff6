//! `undertone train`: from a run file to a trained model.

use crate::arguments::ChangeArguments;
use crate::before_training;
use crate::device::DeviceArguments;
use crate::dry_run::dry_run;
use crate::failure::{Failure, Outcome};
use crate::live::{Live, Point, View};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use crate::source::{self, SourceArguments};
use crate::stop::Stop;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use undertone::Plan;
use undertone::evaluate::Metrics;
use undertone::train::{Error, Start, TrainingEvent, train_until};
use undertone_report::plot;
use undertone_run::{RunPaths, Summary, WrittenRun};

/// Fine-tune a model as a run file says; private, resumable, in one folder
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone train run.toml --out runs/first --set \
     privacy.epsilon=2\n  undertone train run.toml --dry-run\n  undertone train --model \
     sentence-transformers/all-MiniLM-L6-v2 --data letters.csv --text text --label topic \
     --epsilon 8\n  undertone train --out runs/first --resume")]
pub struct Train {
    /// The run file (TOML), which `undertone init` writes; flags can take its place
    run: Option<PathBuf>,
    /// Folder of the run [default: a new one in runs, named after the run file]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    set: ChangeArguments,
    /// Make the run repeatable; it is then not private
    #[arg(long)]
    seed: Option<u64>,
    /// Go on with the run in the folder
    #[arg(long, conflicts_with = "seed")]
    resume: bool,
    /// Resolve everything, time a step on synthetic tokens and tell; release and write nothing
    #[arg(long, conflicts_with_all = ["resume", "out", "tui"])]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceArguments,
    /// Show loss, metric, ε, speed and noise live, on a terminal; q goes back to the bar
    #[arg(long)]
    tui: bool,
    /// End as soon as nobody holds the other end of standard input: for programs that start runs
    #[arg(long, hide = true)]
    until_input_ends: bool,
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
        let place = self.ranks.place()?;
        if let (Some(place), true) = (&place, self.dry_run)
            && place.ranks > 1
        {
            return Err(Failure::arguments("a dry run is of one process; leave --ranks out"));
        }
        // Rank 0 speaks for all.
        let speaks = place.as_ref().is_none_or(|place| place.rank == 0);
        self.ranks.leave_speaking_to_rank_0(place);
        let (mut plan, out) = match &self.out {
            None if self.resume => {
                return Err(Failure::arguments("say which run to go on with: --out DIR"));
            }
            Some(out) if self.resume => (self.resumed_plan(out)?, out.clone()),
            _ => {
                let written = self.source.read(self.run.as_deref(), &self.set)?;
                let device = self.device.device()?;
                let resolved = source::resolve(&written, self.run.as_deref(), &device)?;
                if self.dry_run {
                    return dry_run(resolved, self.device.precision(), &device, output);
                }
                if speaks {
                    source::tell_choices(&resolved);
                }
                let out = self.out.clone().unwrap_or_else(|| {
                    if !speaks {
                        return PathBuf::new();
                    }
                    let folder = source::new_folder(self.run.as_deref());
                    output::note(format_args!("the run goes to {}", folder.display()));
                    folder
                });
                (resolved.plan, out)
            }
        };
        let device = self.device.device()?;
        if self.seed.is_some() {
            plan.training.seed = self.seed;
        }
        if let Some(precision) = self.device.precision() {
            plan.compute.precision = Some(precision);
        }
        let mut display = Display::new();
        if self.tui && speaks && std::io::stdout().is_terminal() {
            display.live = Some(Live::new(out.display().to_string(), &plan.file()));
        }
        let ranks = self.ranks.join(place)?;
        let start = Start { plan, out: &out, resume: self.resume, device, data: None, ranks };
        let stop = Stop::listen();
        let summary = train_until(&stop.asked, start, &mut |event| {
            if speaks {
                display.show(&event);
            }
            if matches!(event, TrainingEvent::Ready { .. }) {
                stop.steps_begin();
            }
        });
        display.end();
        let summary = match summary {
            Err(Error::Stopped { step, steps }) => {
                return Err(Failure::Stopped(format!(
                    "stopped after step {step} of {steps}; go on with: undertone train --out {} \
                     --resume",
                    quoted(&out)
                )));
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

    /// The plan of a run that goes on. What the recipe chose and the seed, which may have come from
    /// the command line, are those of the folder.
    fn resumed_plan(&self, out: &Path) -> Outcome<Plan> {
        let paths = RunPaths::new(out);
        if !paths.plan().exists() {
            return Err(Failure::arguments(format!(
                "{} holds no run that has begun; start one without --resume",
                out.display()
            )));
        }
        if !self.source.is_empty() {
            return Err(Failure::arguments(
                "a run that goes on has its model, data and budget; leave their flags out",
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

/// A path as a shell reads it.
fn quoted(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A run can be broken off at any moment, and whoever started this one is gone.
fn end_with_input() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(1);
}

/// A bar on a terminal, a line now and then elsewhere.
pub struct Display {
    bar: Option<ProgressBar>,
    said: Option<Instant>,
    steps: u64,
    done: u64,
    /// When the first step began.
    began: Instant,
    /// What the run's privacy units are called, in the plural.
    units: &'static str,
    /// What a live view shows once there is something to show.
    live: Option<Live>,
    view: Option<View>,
}

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

impl Display {
    pub fn new() -> Self {
        let (bar, said, live, view) = (None, None, None, None);
        let began = Instant::now();
        Self { bar, said, steps: 0, done: 0, began, units: "units", live, view }
    }

    /// What happens before the first step.
    fn show_preparation(&mut self, what: &str, done: u64, all: u64) {
        let due = self.said.is_none_or(|said| said.elapsed() > LINE_EVERY);
        if std::io::stderr().is_terminal() {
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
            TrainingEvent::Loaded { plan, resolved, data, labels_were_found, parameters } => {
                self.units = before_training::units(plan, resolved.units);
                before_training::notes(plan, resolved, data, *labels_were_found, *parameters)
                    .iter()
                    .for_each(output::note);
            }
            TrainingEvent::Sums { told } => output::note(told),
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
                (self.steps, self.done, self.began) = (*steps, *done, Instant::now());
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
                    if *done > 0 { format!(", going on after step {done}") } else { String::new() }
                ));
                if let Some(mut live) = self.live.take() {
                    live.ready(resolved.noise_multipliers.clone(), *done, *steps);
                    self.view = Some(View::open(live));
                } else {
                    self.show_bar(*done);
                }
            }
            TrainingEvent::Step { record, throughput, epsilon } => {
                if let Some(view) = self.view.take_if(|view| !view.is_open()) {
                    drop(view);
                    self.show_bar(record.step);
                }
                if let Some(view) = &self.view {
                    view.tell(|live| {
                        live.add(&Point::from(*record));
                        live.speed = Some(throughput.examples_per_second);
                        live.spent = epsilon.map(|spent| spent.epsilon).or(live.spent);
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
                let taken = (record.step - self.done).max(1) as f64;
                let to_go = self.steps.saturating_sub(record.step) as f64;
                let left = left(self.began.elapsed().as_secs_f64() / taken * to_go);
                let text = format!("loss {loss}{spent}, {speed:.1} examples/s, {left} left");
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
                    || self.said.is_none_or(|said| said.elapsed() > LINE_EVERY)
                {
                    output::note(format_args!(
                        "step {}/{}, {text}{}",
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
        if !std::io::stderr().is_terminal() {
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

/// A time to wait, as people say it.
fn left(seconds: f64) -> String {
    match seconds {
        ..100.0 => format!("{seconds:.0} s"),
        ..6000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A measurement in a few words.
pub fn short(metrics: &Metrics) -> String {
    match metrics {
        Metrics::Classification(found) => format!("accuracy {:.2} %", 100.0 * found.accuracy),
        Metrics::Language(found) => format!("perplexity {:.3}", found.perplexity),
    }
}

/// Draws the allocation of noise to parameters, unless it is uniform, and the relevance that it
/// follows.
fn draw(summary: &Summary, out: &Path) -> Outcome {
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
            format!("ε = {:.4} at δ = {:e}, by the paper's own count", claim.epsilon, claim.delta),
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
                "no ε: layers below the noise were trained on the examples without it, and the \
                 final weights show them"
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
    if let Some(bytes) = summary.peak_memory_bytes {
        rows.push(("memory", format!("{:.2} GB", bytes as f64 / 1e9)));
    }
    rows.push(("folder", out.display().to_string()));
    output::rows(&rows);
}
