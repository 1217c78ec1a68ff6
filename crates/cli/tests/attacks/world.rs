//! The attacked files: models, data, and run folders created by training.

use super::invoke::{Surroundings, command};
use crate::bench::{WORDS, fixture};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

#[allow(dead_code)]
#[path = "../../../data/tests/parquet_files/mod.rs"]
mod data_parquet;

/// A folder with everything that the commands read; attacks work on copies of it.
pub struct World {
    folder: tempfile::TempDir,
}

/// Run folders that contain files with the same names.
const RUNS: [&str; 6] = ["private", "lora", "local", "letters", "broken", "broken-secret"];

/// LoRA on a few layers.
pub const LORA: &str = "model.tuning={ lora = { rank = 2, targets = [\"query\", \"value\"] } }";

impl World {
    /// The world shared by all concurrent tests.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<World>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        shared.upgrade().unwrap_or_else(|| {
            let world = Arc::new(Self::new());
            *shared = Arc::downgrade(&world);
            world
        })
    }

    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        world.write_models();
        world.write_data();
        world.write_run_files();
        world.train();
        world
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A copy to be damaged, with the folders that a command names and the base models.
    pub fn copy(&self, command: &str) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.path(), copy.path(), &|folder| {
            ["model", "lm"].contains(&folder) || command.contains(folder)
        });
        copy
    }

    /// The file of the same name in another run.
    pub fn twin(&self, file: &str) -> Option<Vec<u8>> {
        let (run, name) = file.split_once('/')?;
        let others = RUNS.iter().filter(|other| **other != run);
        others.filter_map(|other| fs::read(self.path().join(other).join(name)).ok()).next()
    }

    fn write_models(&self) {
        for (folder, model) in [
            ("model", "bert-classification"),
            ("lm", "gpt2-causal-lm"),
            ("shards", "bert-sharded"),
            ("half", "bert-f16"),
            ("distilbert", "distilbert-classification"),
            ("roberta", "roberta-classification"),
            ("llama", "llama-rope-scaled"),
        ] {
            let to = self.path().join(folder);
            fs::create_dir(&to).unwrap();
            for file in fs::read_dir(fixture("models").join(model)).unwrap().flatten() {
                // The model folder also contains reference results of other programs, which are not
                // copied.
                let name = file.file_name();
                if name != "expected.safetensors" && name != "inputs.json" {
                    fs::copy(file.path(), to.join(name)).unwrap();
                }
            }
            let tokenizer = fixture("tokenizer-wordpiece").join("tokenizer.json");
            fs::copy(tokenizer, to.join("tokenizer.json")).unwrap();
        }
    }

    fn write_data(&self) {
        let write = |name: &str, text: String| fs::write(self.path().join(name), text).unwrap();
        let sentence = |i: usize| {
            let words: Vec<&str> = (0..3 + i % 5).map(|j| WORDS[(i * 7 + j * 3) % 8]).collect();
            words.join(" ")
        };
        let label = |i: usize| ["bad", "good"][i % 2];
        let rows = |row: &dyn Fn(usize) -> String| (0..60).map(row).collect::<String>();
        let tsv = rows(&|i| format!("{}\t{}\tperson {}\n", sentence(i), label(i), i / 3));
        write("rows.tsv", format!("sentence\tlabel\twho\n{tsv}"));
        let csv = rows(&|i| format!("\"{}\",{}\n", sentence(i), label(i)));
        write("rows.csv", format!("sentence,label\n{csv}"));
        let json = |i| serde_json::json!({ "sentence": sentence(i), "label": label(i) });
        write("rows.jsonl", rows(&|i| format!("{}\n", json(i))));
        let texts: Vec<String> = (0..60).map(sentence).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let parquet = data_parquet::written(&texts, &[1; 60], &[true; 60]);
        fs::write(self.path().join("rows.parquet"), parquet).unwrap();
        // Letters are in every model's vocabulary.
        let letters = rows(&|i| format!("{} b c\t{}\n", ["a", "d"][i % 2], label(i)));
        write("letters.tsv", format!("sentence\tlabel\n{letters}"));
        write("lines.txt", "the cat sat\non the warm mat\n".into());
        write("names.txt", "cat the\nsun\n".into());
        let canary = |text: &str, secret: &str| {
            serde_json::json!({ "text": text, "secret": secret }).to_string() + "\n"
        };
        write("canaries.jsonl", canary("the cat sat ##", "42") + &canary("dog ###", "123"));
    }

    fn write_run_files(&self) {
        let write = |name: &str, text: String| fs::write(self.path().join(name), text).unwrap();
        let run = |model: &str, task: &str| {
            format!(
                "[model]\npath = \"./{model}\"\ntuning = \"full\"\n[data]\ntask = {task}\ntrain = \
                 \"rows.tsv\"\nvalidation = \"rows.tsv\"\ntext = \"sentence\"\nmax_tokens = \
                 16\n[privacy]\nmethod = \"dp-sgd\"\nepsilon = 8.0\ndelta = \
                 1e-3\nclip = \"automatic\"\n[training]\nepochs = 2\nbatch = 20\nlearning_rate = \
                 1e-3\noptimizer = \"adamw\"\n"
            )
        };
        let labels = "\"classification\"\nlabels = [\"bad\", \"neutral\", \"good\"]";
        write("run.toml", run("model", labels));
        write("lm.toml", run("lm", "\"language-modeling\""));
        let sweep = "base = \"run.toml\"\nmetric = \"accuracy\"\nseeds = [1]\n\
                     set = { \"training.epochs\" = 1 }\n[grid]\n\"privacy.epsilon\" = [4, 8.0]\n";
        write("sweep.toml", sweep.into());
    }

    /// Creates the run folders, the predictions and their ledger.
    fn train(&self) {
        let none = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
        let local = ["--set", "privacy.method=dp-forward", "--set", "model.tuning=head"];
        let runs: [(&str, &str, &[&str]); 5] = [
            ("run.toml", "private", &[]),
            ("run.toml", "lora", &["--set", LORA, "--set", "privacy.method=anadp"]),
            ("run.toml", "plain", &[&none[..], &["--unset", "privacy.delta"]].concat()),
            ("run.toml", "local", &local),
            ("lm.toml", "letters", &[]),
        ];
        for (file, out, more) in runs {
            self.run(&[&["train", file, "--out", out], more].concat());
        }
        // Interrupted once the ledger exceeds a size limit, at the same step in every world.
        for (out, more) in [("broken", &["--seed", "3"][..]), ("broken-secret", &[])] {
            let often = ["--set", "training.epochs=24", "--set", "compute.checkpoint_every=5"];
            let start = ["train", "run.toml", "--out", out, "--set", "model.tuning=head"];
            let arguments = words(&[&start[..], &often, more].concat());
            let ended = command(self.path(), &arguments, Surroundings::FileSize(16)).output();
            assert!(!ended.unwrap().status.success(), "{out} was to be broken off");
            assert!(self.path().join(out).join("checkpoint.safetensors").exists());
        }
        self.run(&["audit", "membership", "--run", "private"]);
        self.run(&["sweep", "sweep.toml", "--out", "swept", "--jobs", "1"]);
        self.run(&super::commands::PREDICT_PRIVATE.split(' ').collect::<Vec<_>>());
        fs::remove_file(self.path().join("said.jsonl")).unwrap();
    }

    fn run(&self, arguments: &[&str]) {
        let arguments = words(arguments);
        let output = command(self.path(), &arguments, Surroundings::Ordinary).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
    }
}

/// Arguments as OS strings.
pub fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Copies all files, and the selected folders with their contents.
fn copy_folder(from: &Path, to: &Path, is_wanted: &dyn Fn(&str) -> bool) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), target).unwrap();
        } else if entry.file_name().to_str().is_some_and(is_wanted) {
            fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target, &|_| true);
        }
    }
}
