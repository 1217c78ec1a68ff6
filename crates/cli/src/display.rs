//! Progress of a run on the terminal.

use crate::before_training::{self, LoadedRun, Siblings};
use crate::live::{Live, Point, View, in_words, seconds_left};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use undertone::evaluate::Metrics;
use undertone::train::{SpentEpsilon, TrainingEvent};
use undertone_run::{ParameterCounts, Record, Resolved, Throughput};

/// Progress of a run: a bar on a terminal, otherwise a line every few seconds.
pub struct Display {
    pub bar: Option<ProgressBar>,
    said: Option<Instant>,
    steps: u64,
    /// The time at which this process finished its first step, and the number of steps completed by
    /// then. The first step takes longer because it compiles kernels and allocates memory.
    began: Option<(Instant, u64)>,
    /// Whether a line with the GPU memory has been printed, and one with the remaining time.
    said_memory: bool,
    said_left: bool,
    /// Display name of the privacy units.
    units: &'static str,
    /// Whether the run file declares the number of units.
    declares_units: bool,
    /// The folder of the run and its siblings, if only the curator sees the output, which may then
    /// include row counts and earlier runs.
    pub beside: Option<Siblings>,
    /// State of the live view, until the view opens.
    pub live: Option<Live>,
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
            TrainingEvent::Sums { message } => output::note(message),
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
                self.show_start(resolved, *examples, *parameters, *done);
            }
            TrainingEvent::Step { record, throughput, epsilon, gpu_memory_bytes } => {
                self.show_step(record, *throughput, *epsilon, *gpu_memory_bytes);
            }
        }
    }

    fn show_start(
        &mut self,
        resolved: &Resolved,
        examples: usize,
        parameters: ParameterCounts,
        done: u64,
    ) {
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
            units if units == examples => format!("{examples} {}", self.units),
            units if self.units == "examples" => {
                format!("{examples} pieces of {units} texts")
            }
            units => format!("{examples} examples of {units} {}", self.units),
        };
        output::note(format_args!(
            "{data}, {} of {} parameters trainable, {} steps, {noise}{}",
            parameters.trainable,
            parameters.total,
            self.steps,
            if done > 0 { format!(", resuming after step {done}") } else { String::new() }
        ));
        if let Some(mut live) = self.live.take() {
            live.ready(resolved.noise_multipliers.clone(), done, self.steps);
            self.view = Some(View::open(live));
        } else {
            self.show_bar(done);
        }
    }

    fn show_step(
        &mut self,
        record: &Record,
        throughput: Throughput,
        epsilon: Option<SpentEpsilon>,
        gpu_memory_bytes: Option<u64>,
    ) {
        if let Some(view) = self.view.take_if(|view| !view.is_open()) {
            drop(view);
            self.show_bar(record.step);
        }
        let (since, first) = *self.began.get_or_insert_with(|| (Instant::now(), record.step));
        let left = seconds_left(since.elapsed(), first, record.step, self.steps);
        if let Some(view) = &self.view {
            view.tell(|live| {
                live.add(&Point::from(record));
                live.speed = Some(throughput.examples_per_second);
                live.spent = epsilon.map(|spent| spent.epsilon).or(live.spent);
                live.seconds_left = left;
            });
            return;
        }
        let loss = record.loss.map_or("–".to_owned(), |loss| format!("{loss:.4}"));
        let spent = epsilon.map_or(String::new(), |spent| match spent.step == record.step {
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
        let released = record.released.map(|metric| format!(", released: {metric}"));
        let released = released.unwrap_or_default();
        let of_epoch = |metrics: &Metrics| format!(", {}{released}", short(metrics));
        let validation = record.validation.as_ref().map(of_epoch);
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
        Metrics::Classification(scores) => format!("accuracy {:.2} %", 100.0 * scores.accuracy),
        Metrics::Language(scores) => format!("perplexity {:.3}", scores.perplexity),
    }
}
