//! A tagger finds the same spans as transformers' own pipeline with the same model.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use undertone::audit::spans::Finder;
use undertone::audit::spans::tagger::Tagger;
use undertone::model::folder::{LoadOptions, load};

/// fixtures/audit/make_tagger.py wrote the expected spans.
#[test]
fn a_tagger_finds_what_the_pipeline_of_transformers_finds() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let expected: Value =
        serde_json::from_slice(&fs::read(fixtures.join("audit/tagger.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let original = fixtures.join("models/bert-token-classification");
    fs::copy(original.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    fs::copy(
        fixtures.join("tokenizer-wordpiece/tokenizer.json"),
        folder.path().join("tokenizer.json"),
    )
    .unwrap();
    let write = |labels: &[Value]| {
        let mut config: Value =
            serde_json::from_slice(&fs::read(original.join("config.json")).unwrap()).unwrap();
        config["id2label"] =
            labels.iter().enumerate().map(|(i, l)| (i.to_string(), l.clone())).collect();
        config["label2id"] = labels
            .iter()
            .zip(0..)
            .map(|(l, i)| (l.as_str().unwrap().to_owned(), json!(i)))
            .collect();
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let model = load(folder.path(), &LoadOptions::default()).unwrap();
        let tokenizer = model.tokenizer(folder.path(), 32).unwrap();
        Tagger::new(model, tokenizer)
    };
    let tagger = write(expected["labels"].as_array().unwrap()).unwrap();
    let cases = expected["cases"].as_array().unwrap();
    let texts: Vec<String> =
        cases.iter().map(|case| case["text"].as_str().unwrap().to_owned()).collect();
    let mut spans = 0;
    for (case, spans_of_text) in cases.iter().zip(tagger.find(&texts).unwrap()) {
        let ranges: Vec<[usize; 2]> =
            spans_of_text.iter().map(|span| [span.start, span.end]).collect();
        assert_eq!(json!(ranges), case["spans"], "{case}");
        spans += ranges.len();
    }
    assert!(spans > 10, "only {spans} spans: the fixture says little");
    // A text that exceeds the model's length is read in pieces.
    let long = vec![texts.join(" ")];
    assert!(tagger.find(&long).unwrap()[0].len() > 5);
    let error = write(&[json!("bad"), json!("neutral"), json!("good")]).unwrap_err().to_string();
    assert!(error.contains("no class for people"), "{error}");
}
