//! A provider that serves a small task, and owners with texts.

use crate::bench::Bench;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// The program with these arguments.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone-provider"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The output of a command, which must succeed.
pub fn json(command: &mut Command) -> Value {
    let output = command.arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A task and its files.
pub struct World {
    pub bench: Bench,
    task: String,
    /// The store's address, unless it is in the task's folder.
    store: Option<String>,
}

/// A provider's server; killed when it is dropped.
pub struct Server {
    child: Child,
    pub url: String,
    pub fingerprint: Option<String>,
}

impl World {
    /// A task with these lines of [privacy] instead of the usual ones.
    pub fn new(privacy: &str) -> Self {
        let world = Self { bench: Bench::classifier(), task: "task".into(), store: None };
        world.make_task("task", privacy);
        world
    }

    pub fn usual() -> Self {
        Self::new(USUAL)
    }

    /// Creates a task in a folder.
    pub fn make_task(&self, folder: &str, privacy: &str) -> Value {
        let file = self.bench.path(&format!("{folder}.toml"));
        let text = format!(
            "[model]\npath = {:?}\ntuning = \"head\"\n[data]\ntext = \"sentence\"\nlabels = \
             [\"bad\", \"neutral\", \"good\"]\nmax_tokens = 16\n[privacy]\n{privacy}",
            self.bench.path("model")
        );
        fs::write(&file, text).unwrap();
        let out = self.bench.path(folder);
        json(program(&["init"]).arg(file).arg("--out").arg(out))
    }

    /// The same world with another of its tasks.
    pub fn with_task(&mut self, folder: &str) {
        self.task = folder.into();
    }

    /// Uses a store at another address.
    pub fn keep_in(&mut self, store: &str) {
        self.store = Some(store.into());
    }

    pub fn folder(&self) -> PathBuf {
        self.bench.path(&self.task)
    }

    /// A provider's command for its task.
    fn provider(&self, words: &[&str]) -> Command {
        let mut command = program(&[]);
        command.args(words).arg(self.folder());
        if let Some(store) = &self.store {
            command.args(["--store", store]);
        }
        command
    }

    /// Starts a server. `listen` may name a port that was used before.
    pub fn serve(&self, listen: &str, more: &[&str]) -> Server {
        self.serve_with(listen, more, |_| {})
    }

    /// Starts a server with a modified command.
    pub fn serve_with(
        &self,
        listen: &str,
        more: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Server {
        let mut command = self.provider(&["serve", "--listen", listen, "--json"]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::null());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        Server { child, url: text("url").unwrap(), fingerprint: text("fingerprint") }
    }

    pub fn insecure(&self) -> Server {
        self.serve("127.0.0.1:0", &["--insecure"])
    }

    /// Creates a token for an owner; returns its file.
    pub fn token(&self, owner: &str) -> PathBuf {
        let made = json(&mut self.provider(&["tokens", "new", "--owner", owner]));
        let file = self.bench.path(&format!("{owner}.token"));
        fs::write(&file, made["token"].as_str().unwrap()).unwrap();
        file
    }

    /// Writes a file of texts and labels, which differ between owners; returns the number of texts.
    pub fn texts(&self, owner: &str, count: usize) -> PathBuf {
        let word = |i: usize| crate::bench::WORDS[i % 8];
        // All texts are different: four words from a list of eight.
        let text = |i: usize| {
            let i = i + owner.bytes().map(usize::from).sum::<usize>() * 37;
            [word(i), word(i / 8), word(i / 64), word(i / 512)].join(" ")
        };
        let rows: String =
            (0..count).map(|i| format!("{}\t{}\n", text(i), ["bad", "good"][i % 2])).collect();
        let file = self.bench.path(&format!("{owner}.tsv"));
        fs::write(&file, format!("sentence\tlabel\n{rows}")).unwrap();
        file
    }

    pub fn home(&self, owner: &str) -> PathBuf {
        self.bench.path(&format!("{owner}.owner"))
    }

    /// `contribute` or `query` for an owner with a token.
    pub fn owner(&self, verb: &str, owner: &str, url: &str) -> Command {
        let mut command = program(&[verb, "--task", url, "--device", "cpu"]);
        command.arg("--token-file").arg(self.bench.path(&format!("{owner}.token")));
        command.arg("--owner").arg(self.home(owner));
        command
    }

    pub fn contribute(&self, owner: &str, url: &str) -> Command {
        let mut command = self.owner("contribute", owner, url);
        command.arg("--data").arg(self.bench.path(&format!("{owner}.tsv")));
        command.args(["--text", "sentence", "--epsilon-at-most", "8"]);
        command
    }

    /// Number of stored releases of each owner, by name.
    pub fn stored(&self) -> Vec<(String, u64)> {
        let owners = json(&mut self.provider(&["tokens", "list"]));
        let stored_of = |owner: &Value| {
            (owner["owner"].as_str().unwrap().to_owned(), owner["releases"].as_u64().unwrap())
        };
        owners.as_array().unwrap().iter().map(stored_of).collect()
    }

    /// Lines of an owner's ledger after the first, for its only task.
    pub fn ledger(&self, owner: &str, purpose: &str) -> Vec<Value> {
        let Ok(tasks) = self.home(owner).join("tasks").read_dir() else { return Vec::new() };
        let mut lines = Vec::new();
        for task in tasks {
            let path = task.unwrap().path().join(format!("{purpose}.jsonl"));
            let text = fs::read_to_string(path).unwrap_or_default();
            lines.extend(text.lines().skip(1).map(|l| serde_json::from_str(l).unwrap()));
        }
        lines
    }

    pub fn train(&self, out: &str) -> Value {
        let mut command = self.provider(&["train"]);
        command.arg("--out").arg(self.bench.path(out));
        command.arg("--public").arg(self.bench.path("rows.tsv")).args(["--text", "sentence"]);
        json(&mut command)
    }
}

pub const USUAL: &str = "method = \"ew-ft\"\nepsilon = 8.0\ndelta = 1e-5\n[privacy.local]\n\
                         dims = [4]\n";

impl Server {
    /// `kill -9`, or the closest equivalent.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Requests a stop; returns whether the server ended without a failure.
    pub fn stop(mut self) -> bool {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().unwrap();
        self.child.wait().unwrap().success()
    }

    /// The address without its scheme.
    pub fn address(&self) -> String {
        self.url.split_once("://").unwrap().1.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last line that a command printed on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
