//! `events.jsonl` or `events.csv`: the figures of a run that may be shared, for experiment trackers
//! (`compute.log`).
//!
//! Each line of `events.jsonl` is an object with `version` and `event`:
//!
//! ```text
//! begin   private, privacy_units, steps, settings (by dotted key; without paths)
//! step    step, epoch, metrics (number by name)
//! end     step, private, guarantee, metrics
//! ```
//!
//! Unless `compute.log_private` is set, `metrics` contains only figures covered by the guarantee:
//! the learning rate, ε, the norm of adaptive clipping in a private run and, if the validation file
//! is public, the metrics on it. No line contains a time, because times depend on the lengths of
//! private texts.

use crate::metrics::{Metrics, Record};
use crate::tensorboard::scalars;
use crate::{ComputeSection, LogFormat, Resolved, RunFile, RunPaths, Summary};
use crate::{Error, Result, read_bytes, write_atomically};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone_accounting::Guarantee;

/// Version of the events. It changes when a field's meaning changes; fields may be added.
pub const EVENTS_VERSION: u32 = 1;

/// Keys of a run file that contain paths or texts of the user.
const NOT_SETTINGS: [&str; 9] =
    ["path", "train", "validation", "public", "file", "text", "prompt", "completion", "labels"];

/// Columns of `events.csv` after step and epoch.
const SHARED: [&str; 7] = [
    "learning_rate",
    "epsilon",
    "clip",
    "validation/accuracy",
    "validation/f1",
    "validation/perplexity",
    "validation/loss",
];

/// Additional columns with `compute.log_private`.
const PRIVATE: [&str; 4] = ["loss", "gradient_norm", "clipped", "units"];

/// A line of `events.jsonl`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Begin {
        private: bool,
        privacy_units: usize,
        steps: u64,
        settings: BTreeMap<String, Value>,
    },
    Step {
        step: u64,
        epoch: u64,
        metrics: BTreeMap<&'static str, f64>,
    },
    End {
        step: u64,
        private: bool,
        guarantee: Option<&'a Guarantee>,
        metrics: BTreeMap<&'static str, f64>,
    },
}

/// A serialized line.
#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    event: Event<'a>,
}

/// The part of a line needed to resume.
#[derive(Deserialize)]
struct StepOnly {
    event: String,
    #[serde(default)]
    step: u64,
}

/// Appends the figures of each step.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: File,
    rules: Rules,
}

/// Selects which figures are written, and how.
#[derive(Clone, Copy, Debug)]
struct Rules {
    format: LogFormat,
    /// Whether the run's guarantee holds.
    private: bool,
    /// Whether metrics on the validation file are written.
    measured: bool,
    /// Whether figures computed from private data without noise are written.
    all: bool,
}

impl Rules {
    fn of(plan: &RunFile, private: bool) -> Option<Self> {
        let ComputeSection { log, log_private, .. } = plan.compute;
        let measured = log_private || private && plan.data.validation_is_public;
        Some(Self { format: log?, private, measured, all: log_private })
    }

    fn path(self, paths: &RunPaths) -> PathBuf {
        match self.format {
            LogFormat::Jsonl => paths.events(),
            LogFormat::Csv => paths.events_csv(),
        }
    }

    /// The figures of a step to be written, by name.
    fn metrics(self, record: &Record) -> BTreeMap<&'static str, f64> {
        let is_written = |name: &str| match name {
            "learning_rate" | "epsilon" => true,
            name if name.starts_with("validation/") => self.measured,
            _ => self.all,
        };
        let written = scalars(record).into_iter().filter(|(name, _)| is_written(name));
        let mut metrics: BTreeMap<&str, f64> = written.filter(|(_, x)| x.is_finite()).collect();
        if let Some(clip) = record.clip.filter(|_| self.private || self.all) {
            metrics.insert("clip", clip);
        }
        if self.all {
            metrics.insert("units", record.units as f64);
        }
        metrics
    }

    fn columns(self) -> Vec<&'static str> {
        SHARED.into_iter().chain(PRIVATE.into_iter().filter(|_| self.all)).collect()
    }

    fn step(self, record: &Record) -> String {
        let metrics = self.metrics(record);
        match self.format {
            LogFormat::Jsonl => {
                let (step, epoch) = (record.step, record.epoch);
                line(Event::Step { step, epoch, metrics })
            }
            LogFormat::Csv => {
                let cell = |name: &&str| metrics.get(name).map_or(String::new(), f64::to_string);
                let cells: Vec<String> = self.columns().iter().map(cell).collect();
                format!("{},{},{}\n", record.step, record.epoch, cells.join(","))
            }
        }
    }

    /// The step of a line to keep on resuming: 0 for the first line, `None` for the last.
    fn step_of(self, text: &str) -> Option<u64> {
        match self.format {
            LogFormat::Jsonl => {
                let line: StepOnly = serde_json::from_str(text).ok()?;
                (line.event != "end").then_some(line.step)
            }
            LogFormat::Csv if text.starts_with("step,") => Some(0),
            LogFormat::Csv => text.split(',').next()?.parse().ok(),
        }
    }
}

impl EventLog {
    /// Opens the log of a run, if it has one, and keeps the lines up to step `done`; a resumed run
    /// writes the later ones again.
    pub fn open(
        paths: &RunPaths,
        plan: &RunFile,
        resolved: &Resolved,
        private: bool,
        done: u64,
    ) -> Result<Option<Self>> {
        let Some(rules) = Rules::of(plan, private) else { return Ok(None) };
        let path = rules.path(paths);
        let before = match read_bytes(&path, u64::MAX) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io(&path)(e)),
        };
        let keeps = |text: &&str| rules.step_of(text).is_some_and(|step| step <= done);
        let mut kept: String =
            before.lines().filter(keeps).map(|line| format!("{line}\n")).collect();
        if kept.is_empty() {
            kept = match rules.format {
                LogFormat::Jsonl => line(Event::Begin {
                    private,
                    privacy_units: resolved.units,
                    steps: resolved.steps_per_epoch * u64::from(plan.training.epochs),
                    settings: settings(plan),
                }),
                LogFormat::Csv => format!("step,epoch,{}\n", rules.columns().join(",")),
            };
        }
        if kept != before {
            write_atomically(&path, |out| out.write_all(kept.as_bytes()))?;
        }
        let file = OpenOptions::new().append(true).open(&path).map_err(Error::io(&path))?;
        Ok(Some(Self { path, file, rules }))
    }

    /// Appends a step.
    pub fn add(&mut self, record: &Record) -> Result<()> {
        let text = self.rules.step(record);
        self.file.write_all(text.as_bytes()).map_err(Error::io(&self.path))
    }

    /// Appends the end of a run.
    pub fn end(paths: &RunPaths, summary: &Summary) -> Result<()> {
        let Some(rules) = Rules::of(&summary.plan, summary.private) else { return Ok(()) };
        if rules.format == LogFormat::Csv {
            return Ok(());
        }
        let validation = summary.metrics.validation.as_ref().filter(|_| rules.measured);
        let end = Event::End {
            step: summary.steps,
            private: summary.private,
            guarantee: summary.guarantee.as_ref(),
            metrics: validation.map_or_else(BTreeMap::new, of_validation),
        };
        let path = rules.path(paths);
        append(&path, &line(end))
    }
}

fn append(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(Error::io(path))
}

fn line(event: Event) -> String {
    let line = Line { version: EVENTS_VERSION, event };
    // Named numbers and strings can always be serialized.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

fn of_validation(metrics: &Metrics) -> BTreeMap<&'static str, f64> {
    let figures = match metrics {
        Metrics::Classification(metrics) => vec![
            ("validation/accuracy", metrics.accuracy),
            ("validation/f1", metrics.f1),
            ("validation/loss", metrics.loss),
        ],
        Metrics::Language(metrics) => {
            vec![("validation/perplexity", metrics.perplexity), ("validation/loss", metrics.loss)]
        }
    };
    figures.into_iter().filter(|(_, figure)| figure.is_finite()).collect()
}

/// The settings of a run file by dotted key, without paths, columns and label names.
fn settings(plan: &RunFile) -> BTreeMap<String, Value> {
    let mut flat = BTreeMap::new();
    if let Ok(Value::Object(sections)) = serde_json::to_value(plan) {
        flatten("", &sections, &mut flat);
    }
    flat
}

fn flatten(prefix: &str, members: &Map<String, Value>, flat: &mut BTreeMap<String, Value>) {
    for (key, value) in members {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Object(members) => flatten(&name, members, flat),
            Value::Null => {}
            _ if NOT_SETTINGS.contains(&key.as_str()) => {}
            other => {
                flat.insert(name, other.clone());
            }
        }
    }
}
