//! Settings of a run file in words.

use serde::Serialize;
use serde_json::Value;
use undertone_run::{MethodName, RunFile};

/// The base model's folder or hub name.
pub fn base_model(file: &RunFile) -> String {
    match file.model.name() {
        name if name.is_empty() => "unknown".to_owned(),
        name => name,
    }
}

/// The fine-tuning method.
pub fn tuning(file: &RunFile) -> String {
    words_of(&file.model.tuning)
}

/// Gradient clipping in words; `None` if the method does not clip gradients.
pub fn clip(file: &RunFile) -> Option<String> {
    let method = file.privacy.method;
    let clips_gradients = !method.is_local() && method != MethodName::None;
    clips_gradients.then(|| words_of(&file.privacy.clip))
}

/// A setting from a run file, in words.
pub fn words_of(setting: &impl Serialize) -> String {
    serde_json::to_value(setting).map(|value| in_words(&value)).unwrap_or_default()
}

/// `"full"` as full, `{ lora: { rank: 8 } }` as lora (rank 8).
fn in_words(value: &Value) -> String {
    match value {
        Value::String(name) => name.replace('_', " "),
        Value::Object(map) => {
            let part = |(key, value): (&String, &Value)| match value {
                Value::Object(_) => {
                    format!("{key} ({})", in_words(value))
                }
                other => format!("{} {}", key.replace('_', " "), in_words(other)),
            };
            // Omit values that are off or empty.
            let silent = |value: &Value| {
                matches!(value, Value::Null | Value::Bool(false))
                    || value.as_f64() == Some(0.0)
                    || value.as_array().is_some_and(Vec::is_empty)
            };
            map.iter().filter(|(_, value)| !silent(value)).map(part).collect::<Vec<_>>().join(", ")
        }
        Value::Array(list) => list.iter().map(in_words).collect::<Vec<_>>().join(" and "),
        other => other.as_f64().map_or_else(|| other.to_string(), |number| number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use undertone_run::{LoraSettings, Tuning};

    #[test]
    fn settings_are_told_in_words() {
        assert_eq!(in_words(&json!("full")), "full");
        let targets = vec!["query".to_owned(), "value".to_owned()];
        let lora = Tuning::Lora(LoraSettings { targets, ..LoraSettings::default() });
        assert_eq!(words_of(&lora), "lora (alpha 16, rank 8, targets query and value)");
        assert_eq!(in_words(&json!({ "per_layer": 2.5 })), "per layer 2.5");
    }
}
