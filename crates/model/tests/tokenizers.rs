//! Compares tokenizers of every kind with the tokenizers library in Python.
//! `fixtures/make_tokenizers.py` creates the fixtures.

use crate::common::fixture;
use serde_json::Value;
use undertone_data::Tokenizer;

#[test]
fn every_kind_of_tokenizer_equals_the_library() {
    for kind in ["tokenizer-wordpiece", "tokenizer-bpe", "tokenizer-unigram"] {
        let folder = fixture("..").join(kind);
        let tokenizer = Tokenizer::load(&folder).unwrap().with_max_tokens(4096).unwrap();
        let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let numbers =
            |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        // A text without tokens gets the end-of-text token here.
        let is_something = |row: &&Value| row["ids"] != Value::Array(Vec::new());
        for row in expected["texts"].as_array().unwrap().iter().filter(is_something) {
            let framed = tokenizer.text(&text(&row["text"])).unwrap();
            assert_eq!(framed.ids, numbers(&row["ids"]), "{kind}: {row}");
        }
        // GPT-2's tokenizer has no template for pairs.
        let pairs = expected["pairs"].as_array().filter(|_| kind != "tokenizer-bpe");
        for row in pairs.into_iter().flatten() {
            let framed = tokenizer.pair(&text(&row["a"]), &text(&row["b"])).unwrap();
            assert_eq!(framed.ids, numbers(&row["ids"]), "{kind}: {row}");
            let segments = numbers(&row["type_ids"]);
            let given =
                if framed.segments.is_empty() { vec![0; segments.len()] } else { framed.segments };
            assert_eq!(given, segments, "{kind}: {row}");
        }
    }
}
