//! Runs the program in its own process group, with limits on time and memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

const TIME: Duration = Duration::from_secs(20);
const MEMORY_KIB: u64 = 2_000_000_000 / 1024;
/// A training run that is making progress on many requested steps is ended after this time.
const PATIENCE: Duration = Duration::from_secs(12);
/// Maximum number of bytes of output to keep.
const PRINTED: u64 = 1 << 20;

/// How an invocation ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Code(i32),
    Signal(i32),
    /// It took longer than 20 seconds.
    Hang,
    /// It used more than 2 GB.
    Memory,
    /// It was still taking training steps.
    AtWork,
}

pub struct Ended {
    pub end: End,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Ended {
    pub fn is_success(&self) -> bool {
        self.end == End::Code(0)
    }

    /// The text printed on standard error, as one line.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().escape_debug().to_string()
    }
}

/// Restrictions on the streams and limits of an invocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Surroundings {
    Ordinary,
    /// Maximum file size in blocks of 512 bytes.
    FileSize(u32),
    /// Maximum number of open files.
    OpenFiles(u32),
    Closed(Stream),
    /// A device without free space.
    Full(Stream),
    /// A pipe that nobody reads.
    Deaf(Stream),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    In,
    Out,
    Err,
}

/// The program: `UNDERTONE_ATTACKS_BINARY`, or the one built for the tests.
fn binary() -> OsString {
    std::env::var_os("UNDERTONE_ATTACKS_BINARY")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_undertone").into())
}

/// The program with these arguments, in a folder, with an empty standard input.
pub fn command(folder: &Path, arguments: &[OsString], surroundings: Surroundings) -> Command {
    let script = match surroundings {
        Surroundings::FileSize(blocks) => format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""),
        Surroundings::OpenFiles(files) => format!("ulimit -n {files}; exec \"$@\""),
        Surroundings::Closed(Stream::In) => "exec \"$@\" <&-".to_owned(),
        Surroundings::Closed(Stream::Out) => "exec \"$@\" >&-".to_owned(),
        Surroundings::Closed(Stream::Err) => "exec \"$@\" 2>&-".to_owned(),
        _ => String::new(),
    };
    let mut command = if script.is_empty() {
        Command::new(binary())
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(binary());
        command
    };
    command.args(arguments).current_dir(folder).process_group(0);
    // Model names must not be looked up on any network.
    for proxy in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        command.env(proxy, "http://127.0.0.1:9");
    }
    command.env("HF_HOME", folder.join("hub")).env("RAYON_NUM_THREADS", "2");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let instead: Stdio = match surroundings {
        Surroundings::Full(_) => File::create("/dev/full").unwrap().into(),
        // The reading end is dropped immediately.
        _ => std::io::pipe().unwrap().1.into(),
    };
    match surroundings {
        Surroundings::Full(Stream::Out) | Surroundings::Deaf(Stream::Out) => {
            command.stdout(instead);
        }
        Surroundings::Full(Stream::Err) | Surroundings::Deaf(Stream::Err) => {
            command.stderr(instead);
        }
        _ => {}
    }
    command
}

/// Runs the program until it exits or exceeds a limit.
pub fn invoke(folder: &Path, arguments: &[OsString], surroundings: Surroundings) -> Ended {
    let mut child = command(folder, arguments, surroundings).spawn().unwrap();
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let end = wait(&mut child, folder);
    Ended { end, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Reads a pipe to its end and keeps the beginning.
pub fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(PRINTED).read_to_end(&mut kept);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        kept
    })
}

fn wait(child: &mut Child, folder: &Path) -> End {
    let start = Instant::now();
    let mut looked = start;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return match status.code() {
                Some(code) => End::Code(code),
                None => End::Signal(status.signal().unwrap_or_default()),
            };
        }
        let limit = if peak_kib(child.id()) > MEMORY_KIB {
            Some(End::Memory)
        } else if start.elapsed() > PATIENCE && looked.elapsed() > Duration::from_secs(1) {
            looked = Instant::now();
            is_at_work(folder).then_some(End::AtWork)
        } else {
            (start.elapsed() > TIME).then_some(End::Hang)
        };
        if let Some(end) = limit {
            kill_group(child);
            return end;
        }
        thread::sleep(Duration::from_millis(if start.elapsed().as_millis() < 50 { 1 } else { 5 }));
    }
}

/// Kills a process and everything it started.
pub fn kill_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.kill();
    child.wait().unwrap();
}

/// Peak memory of a process, or 0 if it no longer exists.
fn peak_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Whether a run in the folder has taken a step within the last two seconds.
fn is_at_work(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let Ok(data) = entry.metadata() else { return false };
        let recent = |time: SystemTime| time.elapsed().is_ok_and(|age| age.as_secs() < 2);
        (data.is_dir() && is_at_work(&entry.path()))
            || (entry.file_name() == "metrics.jsonl" && data.modified().is_ok_and(recent))
    })
}
