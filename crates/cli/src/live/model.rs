//! The state of a run in progress, independent of its source.

use crate::output;
use serde::Serialize;
use undertone::evaluate::Metrics;
use undertone_run::{MethodName, ModeName, Record, RunFile, printable_line};

/// A run as the live view shows it.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Its folder or name.
    pub title: String,
    /// Its method and schedule.
    pub method: String,
    /// Whether ε is a guarantee; if not, why.
    pub caveat: Option<&'static str>,
    /// Target ε.
    pub target: Option<f64>,
    /// ε spent, by the ledger's upper bound.
    pub spent: Option<f64>,
    pub step: u64,
    /// Total number of steps; 0 if not known yet.
    pub steps: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// Noise multipliers by epoch.
    pub noise: Vec<f64>,
    /// (step, training loss).
    pub losses: Vec<(f64, f64)>,
    /// (step, validation metric).
    pub measured: Vec<(f64, f64)>,
    /// Name of the validation metric.
    pub metric: &'static str,
    /// Noise of each parameter relative to the mean, if it differs.
    pub allocation: Vec<(String, f64)>,
    /// Throughput, in examples per second.
    pub speed: Option<f64>,
    /// Seconds that the remaining steps are expected to take.
    pub seconds_left: Option<f64>,
    /// How it ended, if it has.
    pub ended: Option<String>,
}

/// Expected seconds for the steps after `step`, given how long those after `first` took.
pub fn seconds_left(
    elapsed: std::time::Duration,
    first: u64,
    step: u64,
    steps: u64,
) -> Option<f64> {
    let taken = step.checked_sub(first).filter(|taken| *taken > 0)?;
    Some(elapsed.as_secs_f64() / taken as f64 * steps.saturating_sub(step) as f64)
}

/// A remaining time with a readable unit.
pub fn in_words(seconds: f64) -> String {
    match seconds {
        ..100.0 => format!("{seconds:.0} s"),
        ..6000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// One recorded step.
#[derive(Clone, Debug, Default)]
pub struct Point {
    step: u64,
    epoch: u64,
    pub units: u64,
    loss: Option<f64>,
    epsilon: Option<f64>,
    measured: Option<(&'static str, f64)>,
    allocation: Vec<(String, f64)>,
}

impl Live {
    /// A run that has not started.
    pub fn new(title: String, plan: &RunFile) -> Self {
        let private = plan.privacy.method != MethodName::None;
        let caveat = match (private, plan.training.seed, plan.privacy.mode) {
            (false, ..) => Some("not private"),
            (_, Some(_), _) => Some("no guarantee: the seed is known"),
            (_, _, ModeName::Paper) => Some("no guarantee: as published"),
            _ => None,
        };
        let method =
            format!("{}, {} schedule", name(&plan.privacy.method), name(&plan.privacy.schedule));
        Self {
            title: printable_line(&title).into_owned(),
            method: if private { method } else { "non-private".into() },
            caveat,
            target: plan.privacy.epsilon,
            ..Self::default()
        }
    }

    /// The resolved plan.
    pub fn ready(&mut self, noise: Vec<f64>, done: u64, steps: u64) {
        (self.noise, self.step, self.steps) = (noise, done, steps);
    }

    /// Records a step, and drops later ones that were recorded before a resumption.
    pub fn add(&mut self, point: &Point) {
        let at = point.step as f64;
        self.losses.retain(|&(step, _)| step < at);
        self.measured.retain(|&(step, _)| step < at);
        (self.step, self.epoch) = (point.step, point.epoch);
        self.losses.extend(point.loss.map(|loss| (at, loss)));
        if let Some((name, value)) = point.measured {
            self.metric = name;
            self.measured.push((at, value));
        }
        self.spent = point.epsilon.or(self.spent);
        if !point.allocation.is_empty() {
            self.allocation = point.allocation.clone();
        }
    }

    /// ε in a few words.
    pub fn budget(&self) -> String {
        let spent = self.spent.map_or("–".to_owned(), output::up);
        let of = self.target.map_or(String::new(), |target| format!(" of {target}"));
        match (self.caveat, self.spent.is_some() || self.target.is_some()) {
            (Some(caveat), false) => caveat.to_owned(),
            (Some(caveat), true) => format!("ε {spent}{of} ({caveat})"),
            (None, _) => format!("ε {spent}{of}"),
        }
    }

    /// The expected remaining time, if any remains.
    pub fn time_left(&self) -> Option<String> {
        let seconds =
            self.seconds_left.filter(|_| self.ended.is_none() && self.step < self.steps)?;
        Some(format!("{} left", in_words(seconds)))
    }

    /// The noise multiplier, if it is the same in all epochs.
    pub fn uniform_noise(&self) -> Option<f64> {
        let first = *self.noise.first()?;
        self.noise.iter().all(|noise| *noise == first).then_some(first)
    }

    /// The last loss, metric, ε, speed and time left, in one line.
    pub fn line(&self) -> String {
        let mut parts = vec![format!("step {}/{}", self.step, self.steps)];
        parts.extend(self.losses.last().map(|(_, loss)| format!("loss {loss:.4}")));
        let (name, unit) = self.name_and_unit();
        let measured = self.measured.last().map(|(_, value)| format!("{name} {value:.2}{unit}"));
        parts.extend(measured);
        parts.push(self.budget());
        parts.extend(self.speed.map(|speed| format!("{speed:.1} examples/s")));
        parts.extend(self.time_left());
        parts.join(", ")
    }

    /// The metric's name, and the unit printed after its value.
    pub fn name_and_unit(&self) -> (&'static str, &'static str) {
        match self.metric.strip_suffix(", %") {
            Some(name) => (name, " %"),
            None => (self.metric, ""),
        }
    }

    /// The same state for programs.
    pub fn standing(&self) -> Standing<'_> {
        let value = self.measured.last().map(|&(_, value)| value);
        Standing {
            step: self.step,
            steps: self.steps,
            epoch: self.epoch,
            loss: self.losses.last().map(|&(_, loss)| loss),
            metric: value.map(|_| self.metric),
            value,
            epsilon: self.spent,
            target_epsilon: self.target,
            caveat: self.caveat,
            examples_per_second: self.speed,
            seconds_left: self.seconds_left.filter(|_| self.ended.is_none()),
            ended: self.ended.as_deref(),
        }
    }
}

/// The state of a run, as printed by `watch --json`.
#[derive(Serialize)]
pub struct Standing<'a> {
    step: u64,
    /// 0 if not known yet.
    steps: u64,
    epoch: u64,
    loss: Option<f64>,
    metric: Option<&'static str>,
    value: Option<f64>,
    epsilon: Option<f64>,
    target_epsilon: Option<f64>,
    /// The reason why ε is not a guarantee, if it is not.
    caveat: Option<&'static str>,
    examples_per_second: Option<f64>,
    /// Expected seconds for the remaining steps.
    seconds_left: Option<f64>,
    /// How the run ended, once it has.
    ended: Option<&'a str>,
}

/// A setting as written in a run file.
fn name(setting: &impl Serialize) -> String {
    serde_json::to_value(setting)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

impl From<&Record> for Point {
    fn from(record: &Record) -> Self {
        let measured = record.validation.as_ref().map(|metrics| match metrics {
            Metrics::Classification(scores) => ("accuracy, %", 100.0 * scores.accuracy),
            Metrics::Language(scores) => ("perplexity", scores.perplexity),
        });
        Self {
            step: record.step,
            epoch: record.epoch,
            units: record.units as u64,
            loss: record.loss,
            epsilon: record.epsilon,
            measured,
            allocation: record
                .noise_by_parameter
                .iter()
                .map(|(name, noise)| (printable_line(name).into_owned(), *noise))
                .collect(),
        }
    }
}

impl Point {
    /// Whether a metric was measured after the step.
    pub fn is_measured(&self) -> bool {
        self.measured.is_some()
    }
}
