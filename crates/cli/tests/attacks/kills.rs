//! Runs, predictions and sweeps that are killed at random moments and then resumed.

use super::classify::{Class, Tally};
use super::commands::PREDICT_PRIVATE;
use super::invoke::{End, Ended, Surroundings, command, drain, kill_group};
use super::random::Random;
use super::runs::{Left, SCHEMES, Scheme, is_under_counted, releases};
use super::world::words;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// An uninterrupted run.
pub struct Whole {
    took: Duration,
    left: Left,
}

impl Whole {
    /// One run of each scheme.
    pub fn all(folder: &Path) -> Vec<Self> {
        SCHEMES.iter().map(|scheme| Self::new(folder, scheme)).collect()
    }

    fn new(folder: &Path, scheme: &Scheme) -> Self {
        let start = Instant::now();
        let ended = run(folder, &scheme.start("whole"), FOREVER).expect("a minute is enough");
        assert!(ended.is_success(), "{}: {}", scheme.name, ended.said());
        let (took, out) = (start.elapsed(), folder.join("whole"));
        let left =
            Left::read(&out, scheme.model).unwrap_or_else(|e| panic!("{}: {e}", scheme.name));
        fs::remove_dir_all(out).unwrap();
        Self { took, left }
    }
}

/// Runs the program, and kills it after some time if it is still running.
fn run(folder: &Path, arguments: &[OsString], after: Duration) -> Option<Ended> {
    let start = Instant::now();
    let mut child = command(folder, arguments, Surroundings::Ordinary).spawn().unwrap();
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let end = End::Code(status.code().unwrap_or(-1));
            let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
            return Some(Ended { end, stdout, stderr });
        }
        if start.elapsed() >= after {
            // A sweep starts its own processes.
            if arguments[0] == "sweep" {
                kill_group(&mut child);
            } else {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            return None;
        }
        std::thread::sleep(Duration::from_micros(300).min(after));
    }
}

const FOREVER: Duration = Duration::from_secs(60);

/// Kills and resumes until the requested number of processes has been killed.
pub struct Killer<'a> {
    /// A copy of the world.
    folder: &'a Path,
    seed: u64,
    kills: usize,
    pub tally: Tally,
    done: usize,
}

impl<'a> Killer<'a> {
    pub fn new(folder: &'a Path, seed: u64, kills: usize) -> Self {
        Self { folder, seed, kills, tally: Tally::default(), done: 0 }
    }

    /// Runs the chains of kills `first`, `first + every`, and so on.
    pub fn run(&mut self, wholes: &[Whole], first: u64, every: u64) {
        let mut chain = first;
        while self.done < self.kills {
            let mut random = Random::new(self.seed, chain);
            match random.below(SCHEMES.len() + 3) {
                0 => self.kill_predictions(&mut random, chain),
                1 => self.kill_sweep(&mut random, chain),
                2 => self.race_predictions(chain),
                other => {
                    let at = other - 3;
                    self.kill_run(&mut random, chain, &SCHEMES[at], &wholes[at]);
                }
            }
            chain += every;
        }
    }

    /// Counts a killed or finished process.
    fn add(&mut self, class: Class, chain: u64, what: impl FnOnce() -> String) {
        self.tally.add(class, format!("seed {}, chain {chain}, {}", self.seed, what()));
    }

    /// The moment at which to kill, which may be after the end.
    fn moment(&self, random: &mut Random, took: Duration) -> Duration {
        let kill = self.done < self.kills && random.below(5) > 0;
        if kill { took.mul_f64(1.1 * random.part()) } else { FOREVER }
    }

    /// A single run that is killed and resumed until it is finished.
    fn kill_run(&mut self, random: &mut Random, chain: u64, scheme: &Scheme, whole: &Whole) {
        let out = format!("killed-{chain}");
        let folder = self.folder.join(&out);
        let resume = words(&["train", "--json", "--resume", "--out", &out]);
        let (mut arguments, mut moments) = (scheme.start(&out), Vec::new());
        loop {
            let moment = self.moment(random, whole.took);
            let Some(ended) = run(self.folder, &arguments, moment) else {
                self.done += 1;
                moments.push(moment.as_millis());
                let wrong = scheme.by_step && is_under_counted(&folder);
                let class = if wrong { Class::UnderCounted } else { Class::Answered };
                self.add(class, chain, || format!("{}, killed after {moments:?} ms", scheme.name));
                arguments = resume.clone();
                continue;
            };
            if ended.is_success() || folder.join("summary.json").exists() {
                break;
            }
            let has_begun = folder.join("plan.toml").exists();
            if arguments == resume && !has_begun {
                arguments = scheme.start(&out);
                continue;
            }
            let said = ended.said();
            self.add(Class::Lost, chain, || {
                format!("{}, killed after {moments:?} ms: {said}", scheme.name)
            });
            return;
        }
        let state = Left::read(&folder, scheme.model)
            .map_err(|e| (Class::Lost, e))
            .and_then(|left| left.compare(&whole.left, scheme.seed));
        match state {
            Ok(()) => fs::remove_dir_all(folder).unwrap(),
            Err((class, what)) => self.add(class, chain, || {
                format!("{}, killed after {moments:?} ms: {what}", scheme.name)
            }),
        }
    }

    /// Private predictions with one ledger, some of which are killed.
    fn kill_predictions(&mut self, random: &mut Random, chain: u64) {
        let folder = self.folder.join(format!("calls-{chain}"));
        fs::create_dir(&folder).unwrap();
        let start = Instant::now();
        let mut took = Duration::from_millis(50);
        for call in 0..6 {
            let arguments = self.prediction(&folder, call);
            let moment = if call == 0 { FOREVER } else { self.moment(random, took) };
            let class = match run(self.folder, &arguments, moment) {
                None => {
                    self.done += 1;
                    Class::Answered
                }
                Some(ended) if ended.is_success() => Class::Answered,
                Some(ended) => {
                    let said = ended.said();
                    self.add(Class::Lost, chain, || format!("private predictions: {said}"));
                    return;
                }
            };
            if call == 0 {
                took = start.elapsed();
            }
            let (answers, releases) = (answers(&folder), releases(&folder.join("calls.jsonl")));
            let class = if answers > releases { Class::UnderCounted } else { class };
            self.add(class, chain, || {
                format!("private predictions, {moment:?}: {answers} answers, {releases} releases")
            });
        }
        fs::remove_dir_all(folder).unwrap();
    }

    fn prediction(&self, folder: &Path, call: usize) -> Vec<OsString> {
        let inside = |name: String| folder.join(name).into_os_string();
        let mut arguments = words(&PREDICT_PRIVATE.split(' ').collect::<Vec<_>>());
        for word in &mut arguments {
            if word == "said.jsonl" {
                *word = inside(format!("said-{call}.jsonl"));
            } else if word == "calls.jsonl" {
                *word = inside("calls.jsonl".into());
            }
        }
        arguments
    }

    /// Two concurrent private predictions with a ledger that does not exist yet.
    fn race_predictions(&mut self, chain: u64) {
        let folder = self.folder.join(format!("race-{chain}"));
        fs::create_dir(&folder).unwrap();
        let calls = [0, 1].map(|call| self.prediction(&folder, call));
        let path = self.folder;
        let ended = std::thread::scope(|scope| {
            let started = calls.each_ref().map(|call| {
                scope.spawn(move || run(path, call, FOREVER).expect("a minute is enough"))
            });
            started.map(|thread| thread.join().unwrap())
        });
        let (answers, releases) = (answers(&folder), releases(&folder.join("calls.jsonl")));
        let fine = ended
            .iter()
            .all(|ended_run| ended_run.is_success() || ended_run.said().contains("in use"));
        let class = match (answers > releases, fine) {
            (true, _) => Class::UnderCounted,
            (false, true) => Class::Answered,
            (false, false) => Class::Lost,
        };
        self.add(class, chain, || {
            let said = ended.map(|ended_run| ended_run.said()).join("; ");
            format!("two predictions at once: {answers} answers, {releases} releases: {said}")
        });
        fs::remove_dir_all(folder).unwrap();
    }

    /// A sweep that is killed together with its runs, and finally writes its table.
    fn kill_sweep(&mut self, random: &mut Random, chain: u64) {
        let out = format!("sweep-{chain}");
        let arguments = words(&["sweep", "sweep.toml", "--jobs", "1", "--out", &out]);
        let mut waited = 0;
        loop {
            let moment = self.moment(random, Duration::from_millis(300));
            let Some(ended) = run(self.folder, &arguments, moment) else {
                self.done += 1;
                self.add(Class::Answered, chain, || "sweep".into());
                continue;
            };
            // A killed run holds its lock until the system has ended the process.
            let said = ended.said();
            if !ended.is_success() && said.contains("in use") && waited < 50 {
                waited += 1;
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let table = self.folder.join(&out).join("table.csv");
            let class = match ended.is_success() && table.exists() {
                true => Class::Answered,
                false => Class::Lost,
            };
            self.add(class, chain, || format!("sweep: {said}"));
            break;
        }
        fs::remove_dir_all(self.folder.join(out)).unwrap();
    }
}

/// The number of prediction files written, completely or partially.
fn answers(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
    let mut calls: Vec<String> = names
        .filter_map(|name| {
            let name = name.to_str()?.strip_prefix("said-")?.to_owned();
            Some(name.split('.').next()?.to_owned())
        })
        .collect();
    calls.sort();
    calls.dedup();
    calls.len()
}
