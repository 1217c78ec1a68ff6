//! Damaged model folders: each either loads correctly or gives a clear error. Nothing panics, and
//! memory stays proportional to the file.

use crate::common::fixture;
use std::fs;
use std::path::Path;
use undertone_data::{Batch, Example, Tokenizer};
use undertone_model::folder::{LoadOptions, load};
use undertone_model::tuning::load_adapter;

/// A small deterministic generator, so that every run applies the same damage.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n.max(1)
    }

    /// Applies one to four changes: a changed byte, a truncation, a duplicated or removed piece, an
    /// enlarged number.
    fn damage(&mut self, original: &[u8], within: usize) -> Vec<u8> {
        let mut bytes = original.to_vec();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(within.min(bytes.len()));
            match self.below(6) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes.truncate(at),
                2 => {
                    let end = (at + 1 + self.below(20)).min(bytes.len());
                    bytes.drain(at..end);
                }
                3 => {
                    let end = (at + 1 + self.below(20)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                4 => bytes[at] ^= 1 << self.below(8),
                _ => {
                    // Makes a number huge or negative.
                    if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                        let huge: &[u8] =
                            [&b"99999999999999999999"[..], b"-1", b"4294967296", b"1e300", b"0"]
                                [self.below(5)];
                        bytes.splice(at + digit..=at + digit, huge.iter().copied());
                    }
                }
            }
        }
        bytes
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// A model that loads must also run, whatever was changed.
fn try_folder(folder: &Path) -> bool {
    match load(folder, &LoadOptions::default()) {
        Ok(model) => {
            let example = Example { tokens: vec![1, 2, 3], ..Example::default() };
            let _ = model.logits(&Batch::pack([&example]), None);
            true
        }
        Err(error) => {
            assert!(error.to_string().len() > 10, "an error says something");
            false
        }
    }
}

fn damaged(name: &str, file: &str, times: usize, within: usize, seed: u64) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixture(name), folder.path());
    let target = folder.path().join(file);
    let original = fs::read(&target).unwrap();
    let mut chance = Chance(seed);
    let mut counts = (0, 0);
    for _ in 0..times {
        fs::write(&target, chance.damage(&original, within)).unwrap();
        if try_folder(folder.path()) {
            counts.0 += 1;
        } else {
            counts.1 += 1;
        }
    }
    counts
}

#[test]
fn damaged_weights() {
    for (name, seed) in [("bert-classification", 1), ("gpt2-causal-lm", 2), ("llama-untied", 3)] {
        // The header, which contains all sizes.
        let (_, refused) = damaged(name, "model.safetensors", 350, 2_000, seed);
        assert!(refused > 175, "{name}: damage to the header is noticed");
        damaged(name, "model.safetensors", 50, usize::MAX, seed + 10);
    }
    damaged("bert-sharded", "model.safetensors.index.json", 100, usize::MAX, 7);
}

#[test]
fn damaged_configurations() {
    for (name, seed) in [
        ("bert-classification", 1),
        ("distilbert-classification", 2),
        ("roberta-masked-lm", 3),
        ("gpt2-causal-lm", 4),
        ("llama-rope-scaled", 5),
        ("llama-yarn", 6),
        ("smollm3-causal-lm", 7),
        ("gemma2-causal-lm", 8),
        ("gemma3-causal-lm", 9),
        ("phi3-longrope", 10),
        ("modernbert-classification", 11),
        ("mpnet-classification", 12),
        ("deberta-classification", 13),
    ] {
        damaged(name, "config.json", 150, usize::MAX, seed);
    }
}

#[test]
fn damaged_adapters() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixture("lora-bert"), folder.path());
    let base = load(&fixture("bert-classification"), &LoadOptions::default()).unwrap();
    let mut chance = Chance(5);
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let target = folder.path().join(file);
        let original = fs::read(&target).unwrap();
        for _ in 0..200 {
            fs::write(&target, chance.damage(&original, 1_500)).unwrap();
            let _ = load_adapter(&mut base.clone(), folder.path());
        }
        fs::write(&target, original).unwrap();
    }
    load_adapter(&mut base.clone(), folder.path()).unwrap();
}

#[test]
fn damaged_tokenizers() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("tokenizer.json");
    for (i, kind) in
        ["tokenizer-wordpiece", "tokenizer-bpe", "tokenizer-unigram"].into_iter().enumerate()
    {
        let original = fs::read(fixture("..").join(kind).join("tokenizer.json")).unwrap();
        let mut chance = Chance(i as u64 + 1);
        for _ in 0..500 {
            fs::write(&target, chance.damage(&original, usize::MAX)).unwrap();
            if let Ok(tokenizer) = Tokenizer::load(&target) {
                let _ = tokenizer.text("A small text, with punctuation; and ünïcode.");
            }
        }
    }
}

#[test]
fn a_pickle_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture("bert-classification").join("config.json"), folder.path().join("config.json"))
        .unwrap();
    let missing = load(folder.path(), &LoadOptions::default()).unwrap_err().to_string();
    assert!(missing.contains("safetensors"), "{missing}");
    fs::write(folder.path().join("pytorch_model.bin"), b"PK").unwrap();
    let pickle = load(folder.path(), &LoadOptions::default()).unwrap_err().to_string();
    assert!(pickle.contains("save_pretrained"), "{pickle}");
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixture("bert-classification"), folder.path());
    let path = folder.path().join("config.json");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replace("\"intermediate_size\": 32", "\"intermediate_size\": 48");
    fs::write(&path, text).unwrap();
    let said = load(folder.path(), &LoadOptions::default()).unwrap_err().to_string();
    assert!(
        said.contains("intermediate.dense.weight")
            && said.contains("[32, 16]")
            && said.contains("[48, 16]"),
        "{said}"
    );
}
