//! Runs a training run in its own process, so that a crash does not affect the others and all of
//! its memory is freed.

use crate::audit::{AuditSection, has_weights};
use crate::cells::Run;
use crate::runner::{Finished, Outcome};
use crate::state::{State, look, wait_until_free};
use crate::write_whole;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use undertone_run::{Audit, RunPaths, Summary};

/// How to start runs.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The `undertone` program.
    pub program: PathBuf,
    /// Arguments of `undertone train` and `audit` that choose the device.
    pub device: Vec<String>,
    /// Further arguments of `undertone train`: the budget that pays for the runs.
    pub budget: Vec<String>,
    /// Number of concurrent runs.
    pub jobs: usize,
    /// Threads per run; `None` lets each run decide on the machine that it runs on.
    pub threads: Option<usize>,
    /// Command placed in front of the program to start it elsewhere, such as `srun -N1 --gpus=1`.
    pub launcher: Vec<String>,
}

impl Launch {
    /// The command that starts a run.
    fn command(&self) -> Command {
        let Some((first, rest)) = self.launcher.split_first() else {
            return Command::new(&self.program);
        };
        let mut command = Command::new(first);
        command.args(rest).arg(&self.program);
        command
    }
}

/// Settings shared by all runs of a sweep.
#[derive(Debug)]
pub struct Children<'a> {
    pub launch: &'a Launch,
    /// The folder that holds the runs' folders.
    pub folder: PathBuf,
    /// Whether trained weights are kept.
    pub keep_weights: bool,
    /// Attacks on every run.
    pub audit: Option<&'a AuditSection>,
}

impl Children<'_> {
    /// Starts a run with its attacks, resumes it, or finds it finished. Returns its outcome or why
    /// it failed. `tell` receives its progress messages.
    pub fn run(&self, run: &Run, tell: &dyn Fn(&str)) -> Outcome {
        let folder = self.folder.join(&run.folder);
        if !wait_until_free(&folder) {
            return Err(format!("{} is in use by another run", folder.display()));
        }
        let plan = beside(&folder, "toml");
        let text = run.plan.file().to_toml().map_err(|e| e.to_string())?;
        write_whole(&plan, &text).map_err(|e| e.to_string())?;
        match look(&folder, run) {
            State::Finished(summary) => {
                if self.is_attacked(&folder) || has_weights(&RunPaths::new(&folder)) {
                    return self.attacked(&folder, summary, tell);
                }
                // The sweep had no attacks before, and the weights are gone.
                if run.plan.training.seed.is_none() && run.plan.is_private() {
                    return Err(format!(
                        "{} has no weights left to attack, and a private run is not repeated; \
                         choose another folder",
                        folder.display()
                    ));
                }
                self.remove(&folder)?;
            }
            State::Begun => {
                let ended = self.train(&["--resume".into()], &plan, &folder, tell)?;
                if ended.status.success() {
                    return self.finished(&folder, run, tell);
                }
                // Exit code 2 means that the run cannot resume, for example with another number of
                // threads. A seeded run can be repeated.
                if ended.status.code() != Some(2) || run.plan.training.seed.is_none() {
                    return Err(ended.sentence());
                }
                self.remove(&folder)?;
            }
            State::Stale | State::New => self.remove(&folder)?,
            State::Precious => {
                return Err(format!("{} holds a private run of another plan", folder.display()));
            }
            State::Contradictory(sentence) => return Err(sentence),
        }
        let ended = self.train(&[], &plan, &folder, tell)?;
        match ended.status.success() {
            true => self.finished(&folder, run, tell),
            false => Err(ended.sentence()),
        }
    }

    /// The outcome of a finished run, without starting anything.
    pub fn found(&self, run: &Run) -> Outcome {
        let folder = self.folder.join(&run.folder);
        match look(&folder, run) {
            State::Finished(summary) if self.is_attacked(&folder) => {
                let audit = self.audit.map(|_| Audit::read(&RunPaths::new(&folder).audit()));
                let audit = audit.transpose().map_err(|e| e.to_string())?;
                Ok(Finished { summary, audit })
            }
            State::Finished(_) => Err("has not been attacked yet".to_owned()),
            State::Contradictory(sentence) => Err(sentence),
            State::New | State::Stale => Err("has not been started yet".to_owned()),
            State::Begun => Err("is not finished yet".to_owned()),
            State::Precious => {
                Err(format!("{} holds a private run of another plan", folder.display()))
            }
        }
    }

    fn train(
        &self,
        more: &[String],
        plan: &Path,
        folder: &Path,
        tell: &dyn Fn(&str),
    ) -> Result<Ended, String> {
        let mut command = self.launch.command();
        command.arg("train").arg(plan).arg("--out").arg(folder).arg("--until-input-ends");
        command.args(&self.launch.budget);
        self.start(command.args(more), &beside(folder, "log"), tell)
    }

    /// Runs a process to its end and keeps its output as a log.
    fn start(
        &self,
        command: &mut Command,
        log: &Path,
        tell: &dyn Fn(&str),
    ) -> Result<Ended, String> {
        let mut kept = std::fs::File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        if let Some(threads) = self.launch.threads {
            command.env("RAYON_NUM_THREADS", threads.to_string());
        }
        let mut child = command
            .args(&self.launch.device)
            // Held open by this process only: if it dies, the run notices and ends too.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| {
                let first = self.launch.launcher.first().map(PathBuf::from);
                let started = first.as_ref().unwrap_or(&self.launch.program);
                format!("{} cannot be started: {e}", started.display())
            })?;
        let input = child.stdin.take();
        let mut last = String::new();
        if let Some(errors) = child.stderr.take() {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // The log is optional; a full disk is reported elsewhere.
                let _ = writeln!(kept, "{line}");
                tell(&line);
                last = line;
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        drop(input);
        Ok(Ended { status, last })
    }

    /// Whether the requested attacks have been run.
    fn is_attacked(&self, folder: &Path) -> bool {
        let made = || std::fs::read_to_string(beside(folder, "audit")).ok();
        self.audit.is_none_or(|audit| made() == Some(audit.identity()))
    }

    /// Runs the attacks on a finished run, unless they have been run.
    fn attacked(&self, folder: &Path, summary: Box<Summary>, tell: &dyn Fn(&str)) -> Outcome {
        let paths = RunPaths::new(folder);
        let mut audit = None;
        if let Some(section) = self.audit {
            if !self.is_attacked(folder) {
                for attack in &section.attacks {
                    let mut command = self.launch.command();
                    command.arg("audit").args(section.arguments(*attack)).arg("--run").arg(folder);
                    let log = beside(folder, &format!("{}.log", attack.name()));
                    let ended = self.start(&mut command, &log, tell)?;
                    if !ended.status.success() {
                        return Err(ended.sentence());
                    }
                }
                // Written last: without it the attacks are run again.
                write_whole(&beside(folder, "audit"), &section.identity())
                    .map_err(|e| e.to_string())?;
            }
            audit = Some(Audit::read(&paths.audit()).map_err(|e| e.to_string())?);
        }
        self.tidy(folder);
        Ok(Finished { summary, audit })
    }

    /// Removes a run and the record of its attacks.
    fn remove(&self, folder: &Path) -> Result<(), String> {
        let made = beside(folder, "audit");
        match std::fs::remove_file(&made) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {e}", made.display()));
            }
            _ => {}
        }
        RunPaths::new(folder).remove_run().map_err(|e| e.to_string())
    }

    fn finished(&self, folder: &Path, run: &Run, tell: &dyn Fn(&str)) -> Outcome {
        match look(folder, run) {
            State::Finished(summary) => self.attacked(folder, summary, tell),
            State::Contradictory(sentence) => Err(sentence),
            _ => Err(format!("{} holds no summary", folder.display())),
        }
    }

    /// Removes large files that the table does not need.
    fn tidy(&self, folder: &Path) {
        let paths = RunPaths::new(folder);
        let _ = std::fs::remove_file(paths.checkpoint());
        if !self.keep_weights {
            let _ = std::fs::remove_dir_all(paths.model());
            let _ = std::fs::remove_dir_all(paths.adapter());
        }
    }
}

/// How a process ended.
struct Ended {
    status: ExitStatus,
    /// The last line of its output.
    last: String,
}

impl Ended {
    /// Why it failed.
    fn sentence(&self) -> String {
        match (self.last.strip_prefix("error: "), self.status.code()) {
            (Some(sentence), _) => sentence.to_owned(),
            (None, Some(code)) => format!("ended with code {code} ({})", self.last),
            (None, None) => format!("was killed ({})", self.status),
        }
    }
}

/// A file next to a folder: the folder's full name with an extension appended.
fn beside(folder: &Path, extension: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(extension);
    folder.with_file_name(name)
}
