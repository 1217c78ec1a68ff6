//! The run file with every default, as far as it is shown.

use serde::Deserialize;
use serde_json::Value;

/// The run file.
#[derive(Clone, Debug, Deserialize)]
pub struct Plan {
    /// Which model.
    pub model: Model,
    /// What it learns from.
    pub data: Data,
    /// What is guaranteed.
    pub privacy: Privacy,
    /// How it learns.
    pub training: Training,
}

/// Which model.
#[derive(Clone, Debug, Deserialize)]
pub struct Model {
    /// Its folder.
    pub path: Option<String>,
    /// Or its name on the hub.
    pub hub: Option<String>,
    /// What of it is trained.
    pub tuning: Value,
}

/// What it learns from.
#[derive(Clone, Debug, Deserialize)]
pub struct Data {
    /// What is to be learnt.
    pub task: String,
    /// The private file.
    pub train: String,
    /// The file that the trained model is measured on.
    pub validation: Option<String>,
    /// The labels, where they were given.
    pub labels: Option<Vec<String>>,
    /// Longest sequence.
    pub max_tokens: u64,
    /// Column that names the author.
    pub author: Option<String>,
    /// The most examples of an author.
    pub most_per_author: u64,
}

/// What is guaranteed, and how.
#[derive(Clone, Debug, Deserialize)]
pub struct Privacy {
    /// The method.
    pub method: String,
    /// Proved, or as published.
    #[serde(default = "proved")]
    pub mode: String,
    /// How each unit's gradient is bounded.
    pub clip: Value,
    /// How the noise is spread over the epochs.
    pub schedule: String,
}

fn proved() -> String {
    "proved".to_owned()
}

/// How it learns.
#[derive(Clone, Debug, Deserialize)]
pub struct Training {
    /// Passes over the data.
    pub epochs: u64,
    /// Units in a step; on average, if the run is private.
    pub batch: u64,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// How it rises and falls.
    pub learning_rate_schedule: String,
    /// The optimiser.
    pub optimiser: String,
    /// Makes the run repeatable, and not private.
    pub seed: Option<u64>,
}

impl Plan {
    /// Where the model came from.
    pub fn origin(&self) -> &str {
        self.model.path.as_deref().or(self.model.hub.as_deref()).unwrap_or("unknown")
    }

    /// What was trained, in words.
    pub fn tuning(&self) -> String {
        in_words(&self.model.tuning)
    }

    /// How gradients were bounded, in words; records are bounded in their own way.
    pub fn clip(&self) -> Option<String> {
        let perturbs_records =
            ["dp-forward", "ew-ft", "mvg", "none"].contains(&self.privacy.method.as_str());
        (!perturbs_records).then(|| in_words(&self.privacy.clip))
    }
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
            // What is off or empty says nothing.
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

    #[test]
    fn settings_are_told_in_words() {
        assert_eq!(in_words(&json!("full")), "full");
        let lora = json!({ "lora": { "alpha": 16.0, "dropout": 0.0, "rank": 8, "rank_stabilised": false, "targets": ["query", "value"] } });
        assert_eq!(in_words(&lora), "lora (alpha 16, rank 8, targets query and value)");
        assert_eq!(in_words(&json!({ "per_layer": 2.5 })), "per layer 2.5");
    }
}
