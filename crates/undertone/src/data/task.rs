//! What is to be learnt from a row.

use super::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A task, and the columns that it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One label for a text, or for a pair of texts.
    Classification {
        /// One or two columns of text.
        text: Vec<String>,
        /// The column of the label; none when labels are to be predicted.
        label: Option<String>,
    },
    /// The next token of a text.
    LanguageModelling {
        /// The column of the text.
        text: String,
    },
    /// The continuation of a prompt.
    Completion {
        /// The column of what is given.
        prompt: String,
        /// The column of what is to be written.
        completion: String,
    },
}

impl Task {
    /// The columns that the task reads: its texts in order, then the label where there is one.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Task::Classification { text, label } => {
                text.iter().chain(label).map(String::as_str).collect()
            }
            Task::LanguageModelling { text } => vec![text],
            Task::Completion { prompt, completion } => vec![prompt, completion],
        }
    }

    /// The column of the label, where there is one.
    pub fn label(&self) -> Option<&str> {
        match self {
            Task::Classification { label, .. } => label.as_deref(),
            _ => None,
        }
    }

    /// The same task on files that have no labels.
    pub fn without_label(&self) -> Task {
        match self {
            Task::Classification { text, .. } => {
                Task::Classification { text: text.clone(), label: None }
            }
            other => other.clone(),
        }
    }

    /// Refuses a classification of no text, or of more than two.
    pub fn check(&self) -> Result<()> {
        match self {
            Task::Classification { text, .. } if !(1..=2).contains(&text.len()) => {
                Err(Error::invalid("the number of text columns", text.len(), "one or two"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_the_order_of_use() {
        let pair = Task::Classification {
            text: vec!["question".into(), "sentence".into()],
            label: Some("label".into()),
        };
        assert_eq!(pair.columns(), ["question", "sentence", "label"]);
        assert_eq!(pair.without_label().columns(), ["question", "sentence"]);
        let completion = Task::Completion { prompt: "mr".into(), completion: "ref".into() };
        assert_eq!(completion.columns(), ["mr", "ref"]);
    }

    #[test]
    fn three_texts_are_refused() {
        let text = vec!["a".into(), "b".into(), "c".into()];
        assert!(Task::Classification { text, label: None }.check().is_err());
        assert!(Task::Classification { text: vec![], label: None }.check().is_err());
    }
}
