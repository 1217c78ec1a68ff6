//! A run that another process is at work on, by what it leaves in its folder. Nothing is written.

use super::model::{Live, Point};
use crate::failure::{Failure, Outcome};
use serde_json::Value;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use undertone::train::Plan;
use undertone_accounting::ledger::Ledger;

/// Between two computations of ε.
const EPSILON_EVERY: Duration = Duration::from_secs(2);

/// A run's folder, and how far it was read.
pub struct Follower {
    folder: PathBuf,
    /// Once the run has written its plan.
    plan: Option<Plan>,
    pub live: Live,
    read: u64,
    ledger: u64,
    asked: Option<Instant>,
    /// Examples of steps that were taken since somebody watches, and since when.
    seen: Option<(Instant, u64)>,
    /// Whether something was measured in the steps that were read last.
    pub measured: bool,
}

/// Whether a run holds the folder. The lock is let go at once.
fn somebody_is_at_work(folder: &Path) -> bool {
    std::fs::File::open(folder.join("run.lock")).is_ok_and(|lock| lock.try_lock_shared().is_err())
}

impl Follower {
    /// Of a folder that holds a run, or one that a run is about to fill.
    pub fn new(folder: &Path) -> Outcome<Self> {
        if !folder.join("plan.toml").exists() && !folder.join("run.lock").exists() {
            return Err(Failure::arguments(format!("{} holds no run", folder.display())));
        }
        // A run that is just beginning has its lock a moment later.
        let is_idle = || !folder.join("plan.toml").exists() && !somebody_is_at_work(folder);
        if is_idle()
            && (0..10).all(|_| (std::thread::sleep(Duration::from_millis(100)), is_idle()).1)
        {
            return Err(Failure::arguments(format!(
                "{} holds no run, and nobody is at work there",
                folder.display()
            )));
        }
        let live = Live { title: folder.display().to_string(), ..Live::default() };
        Ok(Self {
            folder: folder.to_owned(),
            plan: None,
            live,
            read: 0,
            ledger: 0,
            asked: None,
            seen: None,
            measured: false,
        })
    }

    /// Refuses to wait for a run that was broken off.
    pub fn check_that_somebody_is_at_work(&self) -> Outcome {
        if somebody_is_at_work(&self.folder) || self.folder.join("summary.json").exists() {
            return Ok(());
        }
        Err(Failure::arguments(format!(
            "nobody is at work on {0} any more; `undertone train --resume --out {0}` goes on with \
             it",
            self.folder.display()
        )))
    }

    /// Reads what is new; whether there was anything.
    pub fn look(&mut self) -> Outcome<bool> {
        if self.plan.is_none() && !self.begin()? {
            return Ok(false);
        }
        let finished = std::fs::read_to_string(self.folder.join("summary.json")).ok();
        let points = self.new_points();
        self.measured = points.iter().any(Point::is_measured);
        points.iter().for_each(|point| self.live.add(point));
        let seen: u64 = points.iter().map(|point| point.units).sum();
        self.measure_speed(seen, !points.is_empty());
        self.ask_ledger(finished.is_some());
        if let Some(summary) = finished.and_then(|text| serde_json::from_str::<Value>(&text).ok()) {
            self.end(&summary);
        }
        Ok(!points.is_empty() || self.live.ended.is_some())
    }

    fn begin(&mut self) -> Outcome<bool> {
        let path = self.folder.join("plan.toml");
        if !path.exists() {
            return Ok(false);
        }
        let plan = Plan::read(&path, &[])?;
        self.live = Live::new(self.live.title.clone(), &plan);
        let resolved =
            std::fs::read_to_string(&path).ok().and_then(|text| text.parse::<toml::Table>().ok());
        if let Some(resolved) = resolved.as_ref().and_then(|table| table.get("resolved")) {
            let number =
                |key: &str| resolved.get(key).and_then(toml::Value::as_integer).unwrap_or(0) as u64;
            let noise = resolved.get("noise_multipliers").and_then(toml::Value::as_array);
            let noise = noise.into_iter().flatten().filter_map(toml::Value::as_float).collect();
            self.live.ready(noise, 0, number("steps_per_epoch") * u64::from(plan.training.epochs));
        }
        self.plan = Some(plan);
        Ok(true)
    }

    /// The whole lines that metrics.jsonl has grown by; all of them if it has shrunk, which a run
    /// does that is resumed.
    fn new_points(&mut self) -> Vec<Point> {
        let Ok(mut file) = std::fs::File::open(self.folder.join("metrics.jsonl")) else {
            return Vec::new();
        };
        let length = file.metadata().map_or(0, |data| data.len());
        if length < self.read {
            self.read = 0;
        }
        let mut text = Vec::new();
        let grown = file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut text));
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if grown.is_err() || whole == 0 {
            return Vec::new();
        }
        self.read += whole as u64;
        String::from_utf8_lossy(&text[..whole]).lines().filter_map(Point::parse).collect()
    }

    fn measure_speed(&mut self, examples: u64, any: bool) {
        match &mut self.seen {
            // What was there before says nothing about the time that it took.
            None if any => self.seen = Some((Instant::now(), 0)),
            Some((since, all)) => {
                *all += examples;
                let seconds = since.elapsed().as_secs_f64();
                if seconds > 0.5 && *all > 0 {
                    self.live.speed = Some(*all as f64 / seconds);
                }
            }
            None => {}
        }
    }

    /// ε by the ledger itself, when it has grown. A ledger that is being written may not be
    /// readable just now; it is asked again.
    fn ask_ledger(&mut self, now: bool) {
        let path = self.folder.join("ledger.jsonl");
        let length = std::fs::metadata(&path).map_or(0, |data| data.len());
        let due = now || self.asked.is_none_or(|asked| asked.elapsed() > EPSILON_EVERY);
        let delta = self.plan.as_ref().and_then(|plan| plan.privacy.delta);
        if let (true, true, Some(delta)) = (due, length != self.ledger, delta)
            && let Ok(guarantee) = Ledger::read(&path).and_then(|ledger| ledger.guarantee(delta))
        {
            self.live.spent = Some(guarantee.epsilon.upper);
            (self.ledger, self.asked) = (length, Some(Instant::now()));
        }
    }

    fn end(&mut self, summary: &Value) {
        self.live.speed = summary["throughput"]["examples_per_second"].as_f64().or(self.live.speed);
        let delta = self.plan.as_ref().and_then(|plan| plan.privacy.delta);
        let guarantee = || {
            let ledger = Ledger::read(self.folder.join("ledger.jsonl")).ok()?;
            Some(ledger.guarantee(delta?).ok()?.to_string())
        };
        let private = summary["private"].as_bool() == Some(true);
        let said = match summary["not_private_because"].as_str() {
            Some(why) => format!("not private: {why}"),
            None if private => {
                guarantee().unwrap_or_else(|| "its ledger cannot be read".to_owned())
            }
            None => String::new(),
        };
        self.live.ended = Some(format!("finished; {said}"));
    }
}
