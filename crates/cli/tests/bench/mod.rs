//! A folder with a small model, some rows and a run file, and functions to run the program on them.

mod sentences;

pub use sentences::{Sentences, note_sentence};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../undertone/tests/fixtures").join(name)
}

/// A folder with a small model, some rows and a run file.
pub struct Bench {
    pub folder: tempfile::TempDir,
}

pub const WORDS: [&str; 8] = ["cat", "dog", "sun", "the", "warm", "today", "sat", "ran"];

impl Bench {
    pub fn new(architecture: &str, tokenizer: &str, task: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir_all(&model).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(fixture("models").join(architecture).join(file), model.join(file)).unwrap();
        }
        fs::copy(fixture(tokenizer).join("tokenizer.json"), model.join("tokenizer.json")).unwrap();
        let rows: String = (0..120)
            .map(|i| {
                let words: Vec<&str> = (0..3 + i % 5).map(|j| WORDS[(i * 7 + j * 3) % 8]).collect();
                format!("{}\t{}\tperson {}\n", words.join(" "), ["bad", "good"][i % 2], i / 3)
            })
            .collect();
        fs::write(folder.path().join("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
        let run = format!(
            "[model]\npath = {:?}\ntuning = \"full\"\n[data]\n{task}\ntrain = {:?}\nvalidation \
             = {:?}\ntext = \"sentence\"\nmax_tokens = 16\n[privacy]\nmethod = \"dp-sgd\"\n\
             epsilon = 8.0\ndelta = 1e-3\nclip = \"automatic\"\n[training]\nepochs = 2\nbatch = 20\n\
             learning_rate = 1e-3\noptimizer = \"adamw\"\nlearning_rate_schedule = \
             \"constant\"\nwarmup = 0.0\n",
            model,
            folder.path().join("rows.tsv"),
            folder.path().join("rows.tsv"),
        );
        fs::write(folder.path().join("run.toml"), run).unwrap();
        Self { folder }
    }

    pub fn classifier() -> Self {
        Self::new(
            "bert-classification",
            "tokenizer-wordpiece",
            "task = \"classification\"\nlabels = [\"bad\", \"neutral\", \"good\"]",
        )
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A copy of the training rows in a file that is declared public.
    pub fn public(&self) -> PathBuf {
        fs::copy(self.path("rows.tsv"), self.path("public.tsv")).unwrap();
        self.path("public.tsv")
    }

    pub fn command(&self, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.arg("train").arg(self.path("run.toml")).arg("--out").arg(self.path(out)).args(more);
        command
    }

    pub fn train(&self, out: &str, more: &[&str]) -> Value {
        let output = self.command(out, more).arg("--json").output().unwrap();
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts a run and kills it after `steps` recorded steps; returns whether it was still
    /// running.
    pub fn kill_after(&self, out: &str, more: &[&str], steps: usize) -> bool {
        let mut child =
            self.command(out, more).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let metrics = self.path(out).join("metrics.jsonl");
        let start = Instant::now();
        while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < steps
            && child.try_wait().unwrap().is_none()
            && start.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        !self.path(out).join("summary.json").exists()
    }

    fn resumed(&self, out: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.args(["train", "--resume", "--json", "--out"]).arg(self.path(out)).output().unwrap()
    }

    /// Resumes a run and returns its summary.
    pub fn resume(&self, out: &str) -> Value {
        let resumed = self.resumed(out);
        assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
        serde_json::from_slice(&resumed.stdout).unwrap()
    }

    /// Checks that the run cannot be resumed, for the given reason.
    pub fn resume_refused(&self, out: &str, about: &str) {
        refused(&self.resumed(out), about);
    }

    /// Checks that a resumed run equals an uninterrupted one in the model's file, the metrics and
    /// the number of ledger entries.
    pub fn assert_same_runs(&self, run: &str, other: &str, file: &str) {
        let weights = |out: &str| self.bytes(&format!("{out}/{file}"));
        assert!(weights(run) == weights(other), "{run}: the model");
        assert_eq!(self.metrics(run), self.metrics(other), "{run}: the metrics");
        let entries = |out: &str| {
            fs::read_to_string(self.path(out).join("ledger.jsonl")).unwrap().lines().count()
        };
        assert_eq!(entries(run), entries(other), "{run}: every release is in the ledger once");
    }

    /// Checks for a single sentence and exit code 2.
    pub fn refused(&self, out: &str, more: &[&str], about: &str) {
        refused(&self.command(out, more).output().unwrap(), about);
    }

    /// The metrics of each step without ε: after a crash the ledger is ahead of the repeated steps.
    pub fn metrics(&self, out: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(out).join("metrics.jsonl")).unwrap();
        let mut records: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        records.iter_mut().for_each(|record| record["epsilon"] = Value::Null);
        records
    }

    /// All parameters of a saved model, ordered by name.
    pub fn parameters(&self, file: &str) -> Vec<f32> {
        let bytes = self.bytes(file);
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut names = tensors.names();
        names.sort();
        let data =
            names.iter().flat_map(|name| tensors.tensor(name).unwrap().data().chunks_exact(4));
        data.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

pub fn refused(output: &Output, about: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    note_sentence(&error);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(about) && !error.contains("panicked"), "said {error}, not {about}");
}

/// Runs the program, which must succeed; returns its output.
pub fn run(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
