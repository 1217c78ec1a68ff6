//! What private prediction was asked for, and what follows from it.

use super::Choice;
use crate::data::Tokenizer;
use crate::error::{Error, Result};
use crate::synthesize::{Classes, check, plan};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use undertone_accounting::calibrate::least_noise;
use undertone_accounting::ledger::{Terms, USERS_BY_COLUMN};
use undertone_accounting::{Accountant, Adjacency, Composition, Event, Mode, Part, Threat, Unit};
use undertone_run::{DataSection, RunPaths, SynthesisSection, SyntheticFormat};

/// Log-probabilities that differ by more are those of tokens that are never drawn. With this bound,
/// sums over 2²⁴ units do not overflow.
const MOST_CLIP: f64 = 64.0;

/// The settings of private prediction: the contents of `private/prediction.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Version of the folder's layout.
    pub format: u32,
    /// Folder of the model, or its name on the Hugging Face Hub.
    pub model: String,
    /// The private file and its columns.
    pub data: DataSection,
    /// The values of each control code.
    pub codes: BTreeMap<String, Vec<String>>,
    /// Number of texts.
    pub rows: u64,
    /// Hash of the examples, which must not change between texts.
    pub digest: String,
    /// Format of the rows.
    pub data_format: SyntheticFormat,
    pub temperature: f64,
    pub top_k: usize,
    /// Maximum number of tokens of a text.
    pub most_tokens: u64,
    /// Target ε.
    pub epsilon: f64,
    pub delta: f64,
    /// Range of the change of the scores of a token when a unit is added or removed.
    pub range: f64,
    /// Number of units from which the divisor follows.
    pub units: u64,
    /// Whether that number was declared rather than counted.
    pub units_are_declared: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Prediction {
    /// Reads the settings in a folder.
    pub fn read(folder: &RunPaths) -> Result<Self> {
        let path = folder.prediction();
        let text = undertone_run::read_settings(&path).map_err(Error::io(&path))?;
        let damaged = |e| Error::folder(&path, format!("is damaged ({e}); start anew"));
        serde_json::from_str(&text).map_err(damaged)
    }

    /// Writes them to a folder.
    pub fn write(&self, folder: &RunPaths) -> Result<()> {
        Ok(folder.keep_prediction(self)?)
    }

    /// How tokens are chosen: the clip is the largest that the range allows.
    pub fn choice(&self) -> Choice {
        let (divisor, temperature) = (self.units_per_text(), self.temperature);
        // Slightly less, for the rounding of scores.
        let clip = 0.5 * self.range * divisor * temperature * (1.0 - 1e-9);
        Choice { clip: clip.min(MOST_CLIP), divisor, temperature, top_k: self.top_k }
    }

    /// Expected number of units that steer a text.
    pub fn units_per_text(&self) -> f64 {
        self.units as f64 / self.rows as f64
    }

    /// What the rows depend on beside the secret and the data: the first line of their journal,
    /// which may be shared.
    pub(super) fn journaled(&self) -> serde_json::Value {
        let Self { format, rows, temperature, top_k, most_tokens, range, data, .. } = self;
        json!({
            "format": format, "method": "private-prediction", "rows": rows,
            "temperature": temperature, "top_k": top_k, "most_tokens": most_tokens,
            "range": range, "completion": data.completion,
        })
    }

    /// The ledger's only entry.
    pub fn announced(&self) -> Vec<Part> {
        vec![Part { event: Event::Exponential { range: self.range }, count: self.most_tokens }]
    }

    /// Why the rows are not private, if they are not.
    pub fn not_private_because(&self) -> Option<String> {
        let seed = self.seed?;
        Some(format!("anyone who knows the seed ({seed}) can predict the tokens"))
    }
}

/// The releases of all texts together, each of which has at most `most_tokens` tokens.
pub fn releases(range: f64, most_tokens: u64) -> Composition {
    Composition::new(Adjacency::AddRemove).with(Event::Exponential { range }, most_tokens)
}

/// The largest range with which the tokens of a text stay within the budget.
pub fn calibrate(epsilon: f64, delta: f64, most_tokens: u64) -> Result<f64> {
    let compose = |noise: f64| releases(1.0 / noise, most_tokens);
    let limits = (1e-2, 1e8);
    let calibrated = least_noise(epsilon, delta, Accountant::Auto, limits, compose)?;
    Ok(1.0 / calibrated.noise)
}

/// The classes of texts: all combinations of the declared control codes.
pub fn classes_of(
    data: &DataSection,
    codes: &BTreeMap<String, Vec<String>>,
    tokenizer: &Tokenizer,
) -> Result<Classes> {
    let section = SynthesisSection { codes: codes.clone(), ..SynthesisSection::default() };
    check(data, &section)?;
    let columns = plan::codes(data)?;
    let values: Vec<Vec<String>> =
        columns.iter().map(|column| codes.get(column).cloned().unwrap_or_default()).collect();
    Classes::new(&data.prompt, columns, &values, tokenizer, Vec::new())
}

/// The terms of the ledger.
pub fn terms(prediction: &Prediction, classes: &Classes, id: String) -> Result<Terms> {
    let Prediction { data, range, .. } = prediction;
    let event = Event::Exponential { range: *range };
    event.validate().map_err(Error::Accounting)?;
    let mut assumptions = Vec::new();
    if !prediction.units_are_declared {
        let units = prediction.units;
        let what = format!("the number of units in the training file ({units}) is public");
        assumptions.push(what);
    }
    assumptions.extend(classes.assumption());
    assumptions.extend([
        "the model that the run began from does not depend on the training file".to_owned(),
        "rounding in f32 and bf16 arithmetic, through which one unit changes the last digits of \
         the log-probabilities of others, reveals nothing"
            .to_owned(),
        "the folder private/, secret.key, the displayed progress, and the time and memory of the \
         run are not released: they depend on the data without noise"
            .to_owned(),
    ]);
    assumptions.extend(data.author.iter().map(|author| format!("{USERS_BY_COLUMN}{author}")));
    Ok(Terms {
        id,
        run: None,
        unit: unit(data),
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: if prediction.seed.is_some() { Mode::Seeded } else { Mode::Proved },
        assumptions,
        announced: prediction.announced(),
    })
}

/// The privacy unit of a file.
pub fn unit(data: &DataSection) -> Unit {
    if data.author.is_some() { Unit::User } else { Unit::Example }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_accounting::epsilon;

    /// The budget is used up and not exceeded, and a clip twice as large would exceed it.
    #[test]
    fn the_range_uses_the_budget() {
        for (target, delta, tokens) in [(8.0, 1e-6, 64), (1.0, 1e-5, 200), (20.0, 1e-6, 1)] {
            let range = calibrate(target, delta, tokens).unwrap();
            let at = |range: f64| {
                epsilon(&releases(range, tokens), delta, Accountant::Auto).unwrap().epsilon.upper
            };
            assert!(at(range) <= target && at(range) > 0.99 * target, "{}", at(range));
            assert!(at(2.0 * range) > 1.3 * target);
        }
        assert!(calibrate(0.0, 1e-6, 64).is_err());
    }
}
