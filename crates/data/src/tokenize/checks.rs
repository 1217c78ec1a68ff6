//! Checks for tokenizer.json settings that would make tokens random or exhaust memory.

use serde_json::Value;

/// Maximum factor by which the replacements of the normalizer and the decoder may multiply a text's
/// length.
const LARGEST_GROWTH: f64 = 64.0;

/// Rejects a tokenizer whose tokens are random, or whose replacements can grow a text without
/// bound.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    // Invalid JSON is rejected by the library, with its own message.
    let Ok(tokenizer) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let dropout = &tokenizer["model"]["dropout"];
    if dropout.as_f64().is_some_and(|share| share != 0.0) {
        return Err(format!(
            "it drops merges at random (dropout = {dropout}), so a text is tokenized differently \
             each time; set \"dropout\" to null"
        ));
    }
    for part in ["normalizer", "decoder"] {
        let growth = growth(&tokenizer[part]);
        if growth > LARGEST_GROWTH {
            return Err(format!(
                "its {part} can make a text {growth:.0} times as long, and at most \
                 {LARGEST_GROWTH:.0} times is allowed"
            ));
        }
    }
    Ok(())
}

/// Upper bound on the factor by which a normalizer or decoder can multiply a text's length.
fn growth(part: &Value) -> f64 {
    let length = |key: &str| part[key].as_str().map_or(0.0, |text| text.len() as f64);
    match part["type"].as_str() {
        Some("Sequence") => ["normalizers", "decoders"]
            .iter()
            .filter_map(|key| part[*key].as_array())
            .flatten()
            .map(growth)
            .product(),
        // Each character, and the positions before and after it where a pattern matches the empty
        // string.
        Some("Replace") => {
            let literal = part["pattern"]["String"].as_str().map(|text| text.len() as f64);
            match literal {
                Some(whole) if whole > 0.0 => (length("content") / whole).max(1.0),
                _ => 1.0 + 2.0 * length("content"),
            }
        }
        Some("Prepend") => 1.0 + length("prepend"),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_json(tokenizer: &Value) -> Result<(), String> {
        check(tokenizer.to_string().as_bytes())
    }

    #[test]
    fn ordinary_tokenizers_pass() {
        let llama = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]});
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
        ]});
        let model = json!({"type": "BPE", "dropout": null});
        check_json(&json!({"normalizer": llama, "decoder": decoder, "model": model})).unwrap();
        check_json(&json!({"normalizer": {"type": "BertNormalizer"}})).unwrap();
        check(b"no JSON").unwrap();
    }

    #[test]
    fn random_tokens_and_growing_texts_are_refused() {
        let random = check_json(&json!({"model": {"type": "BPE", "dropout": 0.1}})).unwrap_err();
        assert!(random.contains("at random"), "{random}");
        let once = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"});
        let twice = json!({"type": "Sequence", "normalizers": [once, once]});
        check_json(&json!({"normalizer": once})).unwrap();
        assert!(check_json(&json!({"normalizer": twice})).is_err());
        let nested = json!({"type": "Sequence", "normalizers": [twice, twice]});
        assert!(check_json(&json!({"normalizer": nested})).is_err());
        let everywhere =
            json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "a".repeat(99)});
        assert!(check_json(&json!({"normalizer": everywhere})).is_err());
    }
}
