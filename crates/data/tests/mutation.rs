//! Files with randomly changed bytes produce rows or a typed error, never a panic or a hang.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::path::Path;
use undertone_data::format_of;
use undertone_data::{LongTexts, Tokenizer, read};

use crate::fixture;
use crate::parquet_files;

/// One change to a file, of the kinds that most often break readers.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Cut(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(b"\"\t\n\r,{}[]:\\\0\xFF\x7F\x80".to_vec())];
    prop_oneof![
        8 => (any::<usize>(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (any::<usize>(), byte).prop_map(|(at, byte)| Change::Insert(at, byte)),
        2 => any::<usize>().prop_map(Change::Remove),
        1 => any::<usize>().prop_map(Change::Cut),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let length = bytes.len().max(1);
        match *change {
            Change::Set(at, byte) => {
                bytes.iter_mut().skip(at % length).take(1).for_each(|old| *old = byte)
            }
            Change::Insert(at, byte) => bytes.insert((at % length).min(bytes.len()), byte),
            Change::Remove(at) if at % length < bytes.len() => drop(bytes.remove(at % length)),
            Change::Remove(_) => {}
            Change::Cut(at) => bytes.truncate(at % length),
        }
    }
    bytes
}

/// Passes 1000 mutated files to `reading`, which must not panic.
fn mutate(name: &str, bytes: &[u8], reading: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    // A fixed sequence, so the test is deterministic.
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let changes = prop::collection::vec(change(), 1..6);
    let outcome = runner.run(&changes, |changes| {
        std::fs::write(&file, changed(bytes.to_vec(), &changes)).unwrap();
        reading(&file);
        Ok(())
    });
    outcome.unwrap();
}

fn read_all(path: &Path) {
    let format = format_of(path, None).unwrap();
    let _ = read::columns(path, format);
    if let Ok(rows) = read::rows(path, format, &["text", "number"]) {
        let _ = rows.take(10_000).collect::<Result<Vec<_>, _>>();
    }
}

const TEXTS: [&str; 5] = ["a plain text", "with, a comma", "a \"quote\"", "Ünïcödé ✓", "the end"];

#[test]
fn tsv() {
    mutate(
        "a.tsv",
        b"text\tnumber\na plain text\t1\n\xC3\x9Cn\xC3\xAFc\xC3\xB6d\xC3\xA9\t2\r\n\t3\n",
        read_all,
    );
}

#[test]
fn csv() {
    mutate("a.csv", b"text,number\n\"two\nlines\",1\r\n\"a \"\"quote\"\"\",2\nplain,3\n", read_all);
}

#[test]
fn jsonl() {
    mutate(
        "a.jsonl",
        b"{\"text\": \"a \\u00e9\", \"number\": 1}\n\n{\"number\": -2e3, \"text\": \"b\"}\n",
        read_all,
    );
}

#[test]
fn json_array() {
    mutate(
        "a.json",
        b"[{\"text\": \"a]\", \"number\": 1},\n {\"number\": [2], \"text\": \"b\"}]\n",
        read_all,
    );
}

#[test]
fn gzip() {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"text\tnumber\na plain text\t1\nanother\t2\n").unwrap();
    mutate("a.tsv.gz", &encoder.finish().unwrap(), read_all);
}

#[test]
fn parquet() {
    let bytes = parquet_files::written(&TEXTS, &[1, 2, 3, 4, 5], &[true, false, true, true, false]);
    mutate("a.parquet", &bytes, read_all);
}

#[test]
fn tokenizer() {
    let bytes = fixture::bert().to_string().into_bytes();
    mutate("tokenizer.json", &bytes, |path| {
        if let Ok(tokenizer) = Tokenizer::load(path) {
            let _ =
                tokenizer.text("a b c [MASK] Ω").and_then(|tokens| tokenizer.decode(&tokens.ids));
            let _ = tokenizer.pair("a b", "c d");
            let _ = tokenizer.language("a b c", LongTexts::Split { at_most: 3 });
            let _ = tokenizer.completion("a b c", "d e f");
        }
    });
}
