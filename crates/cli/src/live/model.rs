//! What is known of a run under way, whoever tells it.

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
    /// ε that it may spend.
    pub target: Option<f64>,
    /// ε that it has spent, by the ledger's upper bound.
    pub spent: Option<f64>,
    pub step: u64,
    /// Steps in all; 0 if it is not known yet.
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
    /// How much noise each parameter has relative to the mean, where it is not the same.
    pub allocation: Vec<(String, f64)>,
    /// Throughput, in examples per second.
    pub speed: Option<f64>,
    /// Whether it has ended, and how.
    pub ended: Option<String>,
}

/// One step, as it was written down.
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
    /// Of a run that has not begun.
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

    /// What the plan came to.
    pub fn ready(&mut self, noise: Vec<f64>, done: u64, steps: u64) {
        (self.noise, self.step, self.steps) = (noise, done, steps);
    }

    /// A step was taken; what an earlier life of the run said of later ones is forgotten.
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

    /// The last loss, what was measured last, ε and speed, in one line.
    pub fn line(&self) -> String {
        let mut parts = vec![format!("step {}/{}", self.step, self.steps)];
        parts.extend(self.losses.last().map(|(_, loss)| format!("loss {loss:.4}")));
        parts.extend(self.measured.last().map(|(_, value)| format!("{} {value:.2}", self.metric)));
        parts.push(self.budget());
        parts.extend(self.speed.map(|speed| format!("{speed:.1} examples/s")));
        parts.join(", ")
    }

    /// The same for programs.
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
            ended: self.ended.as_deref(),
        }
    }
}

/// Where a run stands, as `watch --json` prints it.
#[derive(Serialize)]
pub struct Standing<'a> {
    step: u64,
    /// 0 while the run has not said how many there are.
    steps: u64,
    epoch: u64,
    loss: Option<f64>,
    metric: Option<&'static str>,
    value: Option<f64>,
    epsilon: Option<f64>,
    target_epsilon: Option<f64>,
    /// Why ε is not a guarantee, where it is none.
    caveat: Option<&'static str>,
    examples_per_second: Option<f64>,
    /// How the run ended, once it has.
    ended: Option<&'a str>,
}

/// A setting as a run file has it.
fn name(setting: &impl Serialize) -> String {
    serde_json::to_value(setting)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

impl From<&Record> for Point {
    fn from(record: &Record) -> Self {
        let measured = record.validation.as_ref().map(|metrics| match metrics {
            Metrics::Classification(found) => ("accuracy, %", 100.0 * found.accuracy),
            Metrics::Language(found) => ("perplexity", found.perplexity),
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
    /// Whether something was measured after the step.
    pub fn is_measured(&self) -> bool {
        self.measured.is_some()
    }
}
