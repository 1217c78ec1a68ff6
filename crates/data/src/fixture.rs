//! Small tokenizers for tests: every letter from `a` to `z` is a word, with ids from 5 for `a` to
//! 30 for `z`.

// Several test binaries share this file, and none uses all of it.
#![allow(dead_code)]

use serde_json::{Value, json};
use std::path::Path;

/// A BERT tokenizer: `[CLS] … [SEP]`, and `[CLS] … [SEP] … [SEP]` for pairs, with segments. Its
/// file configures truncation and padding, which must be ignored.
pub fn bert() -> Value {
    let special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"];
    let mut tokenizer = letters(&special, "[UNK]");
    tokenizer["truncation"] =
        json!({"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0});
    tokenizer["padding"] = json!({
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"
    });
    let token =
        |name: &str, segment: u32| json!({"SpecialToken": {"id": name, "type_id": segment}});
    let text = |name: &str, segment: u32| json!({"Sequence": {"id": name, "type_id": segment}});
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)],
        "pair": [
            token("[CLS]", 0), text("A", 0), token("[SEP]", 0), text("B", 1), token("[SEP]", 1)
        ],
        "special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}
        }
    });
    tokenizer
}

/// A GPT-2 tokenizer: no special tokens around a text, and `<|endoftext|>` (id 0) as end-of-text
/// token.
pub fn gpt() -> Value {
    letters(&["<|endoftext|>", "<1>", "<2>", "<unk>", "<4>"], "<unk>")
}

/// A Llama tokenizer: `<s>` (id 1) before a text, and `</s>` (id 2) as end-of-text token.
pub fn llama() -> Value {
    let mut tokenizer = letters(&["<unk>", "<s>", "</s>", "<3>", "<4>"], "<unk>");
    let start = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [start, text("A")],
        "pair": [start, text("A"), text("B")],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
    });
    tokenizer
}

/// Writes `tokenizer.json` into a model folder.
pub fn write(folder: &Path, tokenizer: &Value) {
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

fn letters(special: &[&str; 5], unknown: &str) -> Value {
    let letters = ('a'..='z').map(String::from);
    let words = special.iter().map(|token| token.to_string()).chain(letters);
    let vocabulary: serde_json::Map<String, Value> =
        words.zip((0..).map(|id: u32| json!(id))).collect();
    let added: Vec<Value> = (0..special.len())
        .map(|id| {
            json!({
                "id": id, "content": special[id], "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true
            })
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown}
    })
}
