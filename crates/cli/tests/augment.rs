//! Copies of examples with replaced tokens, through the program.

use crate::bench::*;
use std::fs;

const MASKS: [&str; 2] = ["--set", "data.augment={ copies = 3, share = 0.3 }"];

/// Copies belong to the unit of their original: the ledger does not change, and what is trained
/// does.
#[test]
fn copies_cost_no_privacy() {
    let bench = Bench::classifier();
    let plain = bench.train("plain", &["--seed", "3"]);
    let summary = bench.train("copies", &[&MASKS[..], &["--seed", "3"]].concat());
    for key in ["guarantee", "steps"] {
        assert_eq!(summary[key], plain[key], "{key}");
    }
    assert_eq!(summary["resolved"]["units"], 120);
    let weights = |run: &str| bench.bytes(&format!("{run}/model/model.safetensors"));
    assert!(weights("plain") != weights("copies"));
    bench.train("again", &[&MASKS[..], &["--seed", "3"]].concat());
    assert!(weights("again") == weights("copies"), "the same seed has the same copies");
}

#[test]
fn a_masked_language_model_fills_the_gaps() {
    let bench = Bench::classifier();
    let masked = bench.path("masked");
    fs::create_dir_all(&masked).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("models/bert-masked-lm").join(file), masked.join(file)).unwrap();
    }
    let tokenizer = masked.join("tokenizer.json");
    fs::copy(fixture("tokenizer-wordpiece/tokenizer.json"), &tokenizer).unwrap();
    let with = |model: &str| {
        let model = bench.path(model);
        format!("data.augment={{ copies = 2, share = 0.3, infill = {model:?} }}")
    };
    let filled = with("masked");
    bench.train("masks", &["--seed", "3", "--set", "data.augment={ copies = 2, share = 0.3 }"]);
    bench.train("filled", &["--seed", "3", "--set", &filled]);
    let weights = |run: &str| bench.bytes(&format!("{run}/model/model.safetensors"));
    assert!(weights("masks") != weights("filled"));
    let ledger =
        |run: &str| fs::read_to_string(bench.path(&format!("{run}/ledger.jsonl"))).unwrap();
    let assumed = "fills in copies of texts";
    assert!(ledger("filled").contains(assumed) && !ledger("masks").contains(assumed));
    bench.refused("out", &["--set", &with("model")], "has no masked-language-modelling head");
    fs::copy(fixture("tokenizer-bpe/tokenizer.json"), &tokenizer).unwrap();
    bench.refused("out", &["--set", &filled], "has another vocabulary");
}

#[test]
fn copies_are_refused_where_they_have_no_meaning() {
    let bench = Bench::classifier();
    let with = |set: &[&str], about: &str| {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
        bench.refused("out", &set, about);
    };
    with(&["data.augment={ copies = 1 }"], "data.augment.copies is 1");
    with(&["data.augment={ share = 0 }"], "data.augment.share is 0");
    with(&["data.augment={ word = 2 }"], "word");
    with(&[MASKS[1], "privacy.method=dp-forward", "model.tuning=head"], "gradient methods");
    let writing = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modelling\"");
    writing.refused("out", &MASKS, "[data.augment] is for classification");
}
