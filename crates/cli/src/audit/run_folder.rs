//! A finished run, as an auditor loads it.

use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use undertone::data::{Example, Tokeniser};
use undertone::evaluate::{Limits, predict};
use undertone::model::folder::{LoadOptions, load, locate, write_json};
use undertone::model::tuning::load_adapted;
use undertone::model::{Model, Purpose};
use undertone::train::Plan;

/// A run's folder with its plan.
pub struct FinishedRun {
    pub folder: PathBuf,
    pub plan: Plan,
    summary: Value,
}

impl FinishedRun {
    pub fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join("summary.json");
        let text = std::fs::read_to_string(&path).map_err(|_| {
            Failure::arguments(format!(
                "{} is no folder of a finished run; it has no summary.json",
                folder.display()
            ))
        })?;
        let summary = serde_json::from_str(&text)
            .map_err(|e| Failure::arguments(format!("{} is damaged: {e}", path.display())))?;
        Ok(Self {
            folder: folder.to_owned(),
            plan: Plan::read(&folder.join("plan.toml"), &[])?,
            summary,
        })
    }

    /// The upper end of the ε that the run printed, and its δ; none for a run that promises
    /// nothing.
    pub fn promised(&self) -> Option<(f64, f64)> {
        if self.summary["private"] != true {
            return None;
        }
        let guarantee = &self.summary["guarantee"];
        Some((guarantee["epsilon"]["upper"].as_f64()?, guarantee["delta"].as_f64()?))
    }

    /// The folder of the model that the run began from.
    fn origin(&self) -> Outcome<PathBuf> {
        let name =
            self.plan.model.path.as_deref().or(self.plan.model.hub.as_deref()).unwrap_or_default();
        Ok(locate(name)?)
    }

    /// The tokenizer of the run's model, cutting as the run did.
    pub fn tokeniser(&self, model: &Model) -> Outcome<Tokeniser> {
        Ok(model.tokeniser(&self.origin()?, self.plan.data.max_tokens)?)
    }

    /// What the run read of a text.
    pub fn reader(&self) -> Outcome<Reader> {
        let tokeniser =
            Tokeniser::load(&self.origin()?)?.with_max_tokens(self.plan.data.max_tokens)?;
        let tokens = tokeniser.room() * self.plan.data.long_texts.most_per_text();
        Ok(Reader { tokeniser, tokens })
    }

    /// The model that was trained, or the one that it began from.
    pub fn model(&self, trained: bool, device: &DeviceArguments) -> Outcome<Model> {
        let origin = self.origin()?;
        let options = LoadOptions {
            purpose: Some(self.plan.purpose()),
            labels: self.plan.data.labels.clone(),
            seed: 0,
        };
        let (whole, adapter) = (self.folder.join("model"), self.folder.join("adapter"));
        let mut model = match (trained, whole.is_dir()) {
            (true, true) => load(&whole, &options)?,
            (true, false) => load_adapted(&origin, Some(&adapter), options)?,
            (false, _) => load(&origin, &options)?,
        };
        model.to_device(&device.device()?)?;
        Ok(model)
    }

    /// What earlier attacks left in audit.json; a damaged file is not taken for an empty one, since
    /// what it held would be lost.
    fn all_kept(&self) -> Outcome<Map<String, Value>> {
        let path = self.folder.join("audit.json");
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| {
                Failure::arguments(format!(
                    "{} is damaged: {e}; move it away and attack again",
                    path.display()
                ))
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
            Err(e) => Err(Failure::arguments(format!("{} cannot be read: {e}", path.display()))),
        }
    }

    /// What an earlier attack left in audit.json under a name; null if nothing.
    pub fn kept(&self, name: &str) -> Outcome<Value> {
        Ok(self.all_kept()?.remove(name).unwrap_or_default())
    }

    /// Puts results under a name into audit.json, beside those of other attacks.
    pub fn keep(&self, name: &str, found: Value) -> Outcome {
        let path = self.folder.join("audit.json");
        let mut all = self.all_kept()?;
        all.insert(name.to_owned(), found);
        write_json(&path, &all).map_err(|e| Failure::write(&path, e))
    }
}

/// Knows where a run stopped reading.
pub struct Reader {
    tokeniser: Tokeniser,
    tokens: usize,
}

impl Reader {
    /// How many bytes of a text were read.
    pub fn bytes(&self, text: &str) -> Outcome<usize> {
        let tokens = self.tokeniser.with_bytes(text)?;
        Ok(if tokens.len() <= self.tokens {
            text.len()
        } else {
            tokens[self.tokens.max(1) - 1].1.end
        })
    }
}

/// Refuses a run of anything but a language model.
pub fn language_model(run: &FinishedRun, attack: &str) -> Outcome {
    if run.plan.purpose() == Purpose::CausalLanguageModel {
        return Ok(());
    }
    Err(Failure::arguments(format!(
        "{attack} is for language models; of a classifier, audit membership or one-run"
    )))
}

/// The loss of each example.
pub fn losses(model: &Model, examples: &[Example]) -> Outcome<Vec<f64>> {
    let found = predict(model, examples, Limits::default(), false)?;
    Ok(found.iter().map(|said| said.loss.map_or(f64::NAN, f64::from)).collect())
}
