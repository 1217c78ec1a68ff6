//! `undertone.json` in the folder of a trained model or adapter: how a run read its texts, so that
//! evaluation and prediction read theirs in the same way.
//!
//! It is a separate file because PEFT rejects unknown keys in `adapter_config.json`. Everything in
//! it comes from the run file, so it depends on no row of the training file and may be published.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use undertone_settings::{DataSection, TaskName};

const FILE: &str = "undertone.json";

/// How a run read its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Maximum number of tokens per sequence.
    pub max_tokens: usize,
    /// The task of the run; `None` if only the maximum length is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    /// The text columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<String>,
    /// The label column of a classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Values of the label column that are read as another class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rename_labels: BTreeMap<String, String>,
    /// The prompt column of a completion model, or the template of its prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The completion column of a completion model, or the template of its completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// The conversation column of a chat model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<String>,
}

impl Reading {
    /// The maximum length alone, for a model without a task of its own.
    pub fn up_to(max_tokens: usize) -> Self {
        Self {
            max_tokens,
            task: None,
            text: Vec::new(),
            label: None,
            rename_labels: BTreeMap::new(),
            prompt: None,
            completion: None,
            messages: None,
        }
    }

    /// The task of a run file and the columns that it reads.
    pub fn of_run(data: &DataSection) -> Self {
        let is = |task: TaskName, column: &String| (data.task == task).then(|| column.clone());
        Self {
            max_tokens: data.max_tokens,
            task: Some(data.task),
            text: data.text.clone(),
            label: is(TaskName::Classification, &data.label),
            rename_labels: data.rename_labels.clone(),
            prompt: is(TaskName::Completion, &data.prompt),
            completion: is(TaskName::Completion, &data.completion),
            messages: is(TaskName::Chat, &data.messages),
        }
    }

    /// Writes the file into the folder of a model or adapter.
    pub fn save(&self, folder: &Path) -> Result<()> {
        Ok(undertone_settings::write_json(&folder.join(FILE), self)?)
    }

    /// Reads the file from the folder of a model or adapter; `None` if no run wrote it.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match undertone_settings::read_settings(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        let wrong = |problem: String| Error::Config { path: path.clone(), problem };
        let reading: Self =
            serde_json::from_str(&text).map_err(|e| wrong(format!("is damaged: {e}")))?;
        if reading.max_tokens == 0 {
            return Err(wrong("max_tokens must be at least 1".into()));
        }
        Ok(Some(reading))
    }
}
