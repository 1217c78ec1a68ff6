//! A task whose files can be modified, and owners of rows.

use super::super::budget::Bound;
use super::super::fetch::Pinned;
use super::super::home::Home;
use super::super::purpose::Purpose;
use super::super::release::{Pre, classes, release, sources};
use super::super::rows::Row;
use crate::error::Result;
use crate::frame::Frame;
use crate::hex::hash;
use crate::task::{Task, init};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use undertone::tensor::Device;

/// An honest task.
pub struct Honest {
    folder: tempfile::TempDir,
    task: Task,
}

/// A task that a provider may have forged.
pub struct Forged {
    pre: tempfile::TempDir,
    pub task: Task,
}

/// The contents of an owner's folder for a file, as they would be sent.
pub struct Sent {
    pub frames: Vec<Frame>,
    pub bytes: Vec<Vec<u8>>,
    pub untokenized: u64,
}

impl Honest {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir_all(&model).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../undertone/tests/fixtures");
        for (from, to) in [
            ("models/bert-classification/config.json", "config.json"),
            ("models/bert-classification/model.safetensors", "model.safetensors"),
            ("tokenizer-wordpiece/tokenizer.json", "tokenizer.json"),
        ] {
            fs::copy(fixtures.join(from), model.join(to)).unwrap();
        }
        let file = folder.path().join("task.toml");
        let text = format!(
            "[model]\npath = {model:?}\ntuning = \"head\"\n[data]\ntext = \"text\"\nlabels = \
             [\"bad\", \"neutral\", \"good\"]\nmax_tokens = 16\n[privacy]\nmethod = \
             \"ew-ft\"\nepsilon = 8.0\ndelta = 1e-5\n[privacy.local]\ndims = [4]\n"
        );
        fs::write(&file, text).unwrap();
        let made = init(&file, &folder.path().join("task"), &Device::Cpu, 1000).unwrap();
        Self { folder, task: made.task }
    }

    /// A copy that can be modified.
    pub fn copy(&self) -> Forged {
        let pre = tempfile::tempdir().unwrap();
        for file in &self.task.files {
            let from = self.folder.path().join("task/pre").join(&file.name);
            fs::copy(from, pre.path().join(&file.name)).unwrap();
        }
        Forged { pre, task: self.task.clone() }
    }
}

impl Forged {
    /// A file of pre(·).
    pub fn path(&self, name: &str) -> PathBuf {
        self.pre.path().join(name)
    }

    /// Modifies the tokenizer.
    pub fn tokenizer(&self, change: impl FnOnce(&mut Value)) {
        let path = self.path("tokenizer.json");
        let mut tokenizer = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut tokenizer);
        fs::write(path, tokenizer.to_string()).unwrap();
    }

    /// Modifies the values of every tensor in a safetensors file, given the tensor's name.
    pub fn weights(&self, file: &str, mut change: impl FnMut(&str, &mut [f32])) {
        let path = self.path(file);
        let mut bytes = fs::read(&path).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let tensors: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
        for (name, tensor) in tensors.as_object().unwrap() {
            let Some(offsets) = tensor["data_offsets"].as_array() else { continue };
            let at = |i: usize| 8 + header + offsets[i].as_u64().unwrap() as usize;
            let part = &mut bytes[at(0)..at(1)];
            let four = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
            let mut values: Vec<f32> = part.chunks_exact(4).map(four).collect();
            change(name, &mut values);
            let changed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            part.copy_from_slice(&changed);
        }
        fs::write(path, bytes).unwrap();
    }

    /// The task as an owner parses it, or the reason for its refusal; the sanitizer's file agrees
    /// with it.
    pub fn parsed(&self) -> Result<Pinned> {
        let config = serde_json::to_vec(&self.task.sanitizer).unwrap();
        fs::write(self.path("sanitizer.json"), config).unwrap();
        let bytes = serde_json::to_vec(&self.task).unwrap();
        Ok(Pinned { task: Task::parse(&bytes)?, hash: hash(&bytes), is_new: true })
    }

    /// pre(·) as loaded by an owner.
    pub fn pre(&self, pinned: &Pinned) -> Result<Pre> {
        Pre::load(self.pre.path(), &pinned.task, &Device::Cpu)
    }
}

pub fn rows(texts: &[String]) -> Vec<Row> {
    let row = |(i, text): (usize, &String)| Row {
        texts: vec![text.clone()],
        label: Some(["bad", "good"][i % 2].into()),
        line: i as u64 + 2,
    };
    texts.iter().enumerate().map(row).collect()
}

/// Releases rows in a new owner's folder.
pub fn sent(pinned: &Pinned, pre: &Pre, rows: &[Row]) -> Sent {
    let folder = tempfile::tempdir().unwrap();
    let mut home = Home::open(&folder.path().join("owner")).unwrap();
    sent_from(&mut home, pinned, pre, rows)
}

/// Releases the rows that are new to an owner's folder; returns everything waiting to be sent.
pub fn sent_from(home: &mut Home, pinned: &Pinned, pre: &Pre, rows: &[Row]) -> Sent {
    let purpose = Purpose::Contribution;
    let classes = classes(&pinned.task, Path::new("a.csv"), rows).unwrap();
    let sources = sources(home, pinned, purpose, rows, &classes).unwrap();
    let bound = Bound { epsilon: f64::MAX, delta: pinned.task.delta };
    let untokenized = release(home, pinned, purpose, pre, &sources, &bound).unwrap();
    let (waiting, _) = home.book.frames(&pinned.hash, purpose).unwrap();
    let frame = |number: &i64| home.book.frame(*number, purpose).unwrap();
    let frames: Vec<Frame> = waiting.iter().map(frame).collect();
    let bytes = frames.iter().map(|frame| frame.encode(&pinned.task, &pinned.hash)).collect();
    Sent { frames, bytes, untokenized }
}
