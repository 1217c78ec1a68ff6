//! One run, as a process of its own: it may crash without harm to the others, and gives all its
//! memory back.

use crate::cells::Run;
use crate::state::{State, look, wait_until_free};
use crate::write_whole;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use undertone_run::{RunPaths, Summary};

/// How runs are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The `undertone` program.
    pub program: PathBuf,
    /// Arguments of `undertone train` that choose the device.
    pub device: Vec<String>,
    /// Runs at a time.
    pub jobs: usize,
    /// Threads of each run.
    pub threads: usize,
}

/// What all runs of a sweep share.
#[derive(Debug)]
pub struct Children<'a> {
    pub launch: &'a Launch,
    /// The folder that holds the runs' folders.
    pub folder: PathBuf,
    /// Whether trained weights stay in them.
    pub keep_weights: bool,
}

impl Children<'_> {
    /// Does a run, goes on with it, or finds it done; its summary, or why there is none. `tell`
    /// hears what it says on the way.
    pub fn run(&self, run: &Run, tell: &dyn Fn(&str)) -> Result<Summary, String> {
        let folder = self.folder.join(&run.folder);
        if !wait_until_free(&folder) {
            return Err(format!("{} is in use by another run", folder.display()));
        }
        let plan = beside(&folder, "toml");
        let text = run.plan.file().to_toml().map_err(|e| e.to_string())?;
        write_whole(&plan, &text).map_err(|e| e.to_string())?;
        match look(&folder, run) {
            State::Finished(summary) => {
                self.tidy(&folder);
                return Ok(*summary);
            }
            State::Begun => {
                let ended = self.start(&["--resume".into()], &plan, &folder, tell)?;
                if ended.status.success() {
                    return self.finished(&folder, run);
                }
                // Code 2 says that it cannot go on, such as with another number of threads. With a
                // seed it can be done again.
                if ended.status.code() != Some(2) || run.plan.training.seed.is_none() {
                    return Err(ended.sentence());
                }
                remove(&folder)?;
            }
            State::Stale | State::New => remove(&folder)?,
            State::Precious => {
                return Err(format!("{} holds a private run of another plan", folder.display()));
            }
            State::Contradictory(sentence) => return Err(sentence),
        }
        let ended = self.start(&[], &plan, &folder, tell)?;
        if ended.status.success() { self.finished(&folder, run) } else { Err(ended.sentence()) }
    }

    fn start(
        &self,
        more: &[String],
        plan: &Path,
        folder: &Path,
        tell: &dyn Fn(&str),
    ) -> Result<Ended, String> {
        let log = beside(folder, "log");
        let mut kept =
            std::fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let mut child = Command::new(&self.launch.program)
            .arg("train")
            .arg(plan)
            .arg("--out")
            .arg(folder)
            .args(["--until-input-ends"])
            .args(&self.launch.device)
            .args(more)
            .env("RAYON_NUM_THREADS", self.launch.threads.to_string())
            // Held open by this process alone: when it dies, the run notices and ends too.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{} cannot be started: {e}", self.launch.program.display()))?;
        let input = child.stdin.take();
        let mut last = String::new();
        if let Some(errors) = child.stderr.take() {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // The log is for whoever wants to know more; a full disk shows elsewhere.
                let _ = writeln!(kept, "{line}");
                tell(&line);
                last = line;
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        drop(input);
        Ok(Ended { status, last })
    }

    fn finished(&self, folder: &Path, run: &Run) -> Result<Summary, String> {
        match look(folder, run) {
            State::Finished(summary) => {
                self.tidy(folder);
                Ok(*summary)
            }
            State::Contradictory(sentence) => Err(sentence),
            _ => Err(format!("{} holds no summary", folder.display())),
        }
    }

    /// Removes what the table does not need, and what there would be much of.
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
    /// What it said last.
    last: String,
}

impl Ended {
    /// Why it did not do its work.
    fn sentence(&self) -> String {
        match (self.last.strip_prefix("error: "), self.status.code()) {
            (Some(sentence), _) => sentence.to_owned(),
            (None, Some(code)) => format!("ended with code {code} ({})", self.last),
            (None, None) => format!("was ended from outside ({})", self.status),
        }
    }
}

fn remove(folder: &Path) -> Result<(), String> {
    RunPaths::new(folder).remove_run().map_err(|e| e.to_string())
}

/// A file beside a folder: the folder's whole name and an extension.
fn beside(folder: &Path, extension: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(extension);
    folder.with_file_name(name)
}
