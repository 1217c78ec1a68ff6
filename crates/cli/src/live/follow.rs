//! Follows a run of another process through its folder, read-only.

use super::model::{Live, Point, seconds_left};
use crate::failure::{Failure, Outcome};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};
use undertone_run::{FinishedRun, Record, RunFile, RunPaths, is_locked, open_regular};

/// Minimum interval between computations of ε.
const EPSILON_EVERY: Duration = Duration::from_secs(2);

/// A run folder and the read position in it.
pub struct Follower {
    paths: RunPaths,
    /// `Some` once the run has written its plan.
    plan: Option<RunFile>,
    pub live: Live,
    read: u64,
    ledger: u64,
    asked: Option<Instant>,
    /// When the first new records were read, their last step, and the examples processed since.
    seen: Option<(Instant, u64, u64)>,
    /// Whether the last steps read contain validation metrics.
    pub measured: bool,
    /// The last steps read.
    pub records: Vec<Record>,
}

impl Follower {
    /// Follows a folder that contains a run, or in which one is about to start.
    pub fn new(folder: &Path) -> Outcome<Self> {
        let paths = RunPaths::new(folder);
        if !paths.plan().exists() && !paths.lock().exists() {
            return Err(Failure::arguments(format!("{} contains no run", folder.display())));
        }
        // A run that is just starting creates its lock a moment later.
        let is_idle = || !paths.plan().exists() && !is_locked(folder);
        if is_idle()
            && (0..10).all(|_| (std::thread::sleep(Duration::from_millis(100)), is_idle()).1)
        {
            return Err(Failure::arguments(format!(
                "{} contains no run, and no process is working there",
                folder.display()
            )));
        }
        let live = Live { title: folder.display().to_string(), ..Live::default() };
        Ok(Self {
            paths,
            plan: None,
            live,
            read: 0,
            ledger: 0,
            asked: None,
            seen: None,
            measured: false,
            records: Vec::new(),
        })
    }

    /// Fails if the run was interrupted, instead of waiting forever.
    pub fn check_that_somebody_is_at_work(&self) -> Outcome {
        if is_locked(self.paths.folder()) || self.paths.is_finished() {
            return Ok(());
        }
        Err(Failure::arguments(format!(
            "no process is training in {0} anymore; `undertone train --resume --out {0}` continues \
             the run",
            self.paths.folder().display()
        )))
    }

    /// Reads new records; returns whether there were any.
    pub fn look(&mut self) -> Outcome<bool> {
        if self.plan.is_none() && !self.begin()? {
            return Ok(false);
        }
        // The summary is written atomically: if it exists, it is complete.
        let finished = match self.paths.is_finished() {
            true => Some(FinishedRun::read(self.paths.folder())?),
            false => None,
        };
        self.records = self.new_records();
        let points: Vec<Point> = self.records.iter().map(Point::from).collect();
        self.measured = points.iter().any(Point::is_measured);
        points.iter().for_each(|point| self.live.add(point));
        let seen = points.iter().fold(0_u64, |all, point| all.saturating_add(point.units));
        self.measure_speed(seen, !points.is_empty());
        self.ask_ledger(finished.is_some())?;
        if let Some(finished) = finished {
            self.end(&finished);
        }
        Ok(!points.is_empty() || self.live.ended.is_some())
    }

    fn begin(&mut self) -> Outcome<bool> {
        let path = self.paths.plan();
        if !path.exists() {
            return Ok(false);
        }
        let plan = RunFile::read(&path, &[])?;
        self.live = Live::new(self.live.title.clone(), &plan);
        if let Ok(resolved) = RunFile::read_resolved(&path) {
            let steps = resolved.steps_per_epoch * u64::from(plan.training.epochs);
            self.live.ready(resolved.noise_multipliers, 0, steps);
        }
        self.plan = Some(plan);
        Ok(true)
    }

    /// New complete lines of metrics.jsonl; all lines if it has shrunk, as it does when a run is
    /// resumed.
    fn new_records(&mut self) -> Vec<Record> {
        let Ok(mut file) = open_regular(&self.paths.metrics()) else {
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
        String::from_utf8_lossy(&text[..whole])
            .lines()
            .filter_map(|line| serde_json::from_str::<Record>(line).ok())
            .collect()
    }

    fn measure_speed(&mut self, examples: u64, any: bool) {
        match &mut self.seen {
            // Earlier records provide no information about the speed.
            None if any => self.seen = Some((Instant::now(), self.live.step, 0)),
            Some((since, first, all)) => {
                *all = all.saturating_add(examples);
                let elapsed = since.elapsed();
                if elapsed.as_secs_f64() > 0.5 && *all > 0 {
                    self.live.speed = Some(*all as f64 / elapsed.as_secs_f64());
                    // Only after a step, so that the estimate does not grow while a step is being
                    // computed.
                    if any {
                        let (step, steps) = (self.live.step, self.live.steps);
                        self.live.seconds_left = seconds_left(elapsed, *first, step, steps);
                    }
                }
            }
            None => {}
        }
    }

    /// Recomputes ε from the ledger when it has grown. A ledger that is being written may be
    /// unreadable for a moment; it is read again later.
    fn ask_ledger(&mut self, now: bool) -> Outcome {
        let path = self.paths.ledger();
        let length = std::fs::metadata(&path).map_or(0, |data| data.len());
        let due = now || self.asked.is_none_or(|asked| asked.elapsed() > EPSILON_EVERY);
        let delta = self.plan.as_ref().and_then(|plan| plan.privacy.delta);
        if let (true, true, Some(delta)) = (due, length != self.ledger, delta) {
            match self.paths.read_ledger() {
                Ok(ledger) => {
                    self.live.spent = Some(ledger.guarantee(delta)?.epsilon.upper);
                    (self.ledger, self.asked) = (length, Some(Instant::now()));
                }
                Err(_) if is_locked(self.paths.folder()) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn end(&mut self, finished: &FinishedRun) {
        let FinishedRun { summary, guarantee, .. } = finished;
        self.live.speed = summary.throughput.map(|throughput| throughput.examples_per_second);
        let said = match (&summary.not_private_because, guarantee) {
            (Some(why), _) => format!("not private: {why}"),
            (None, Some(guarantee)) => guarantee.to_string(),
            (None, None) => "it has no ledger and no guarantee".to_owned(),
        };
        self.live.ended = Some(format!("finished; {said}"));
    }
}
