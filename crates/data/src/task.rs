//! Fine-tuning tasks.

use super::error::{Error, Result};
use super::template::Template;
use serde::{Deserialize, Serialize};

/// A fine-tuning task and the columns it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Sequence classification of a text, or of a pair of texts.
    Classification {
        /// One or two text columns.
        text: Vec<String>,
        /// The label column; `None` for prediction.
        label: Option<String>,
    },
    /// Causal language modeling: the next token of a text.
    LanguageModeling {
        /// The text column.
        text: String,
    },
    /// Masked language modeling: the original tokens of masked positions of a text.
    MaskedLanguageModeling {
        /// The text column.
        text: String,
    },
    /// Completion of a prompt; only the completion's tokens are predicted.
    Completion {
        /// Column of the prompt, or a template for it.
        prompt: String,
        /// Column of the completion, or a template for it.
        completion: String,
    },
    /// Conversations, in which the assistant's turns are predicted.
    Chat {
        /// The column of the messages.
        messages: String,
    },
}

impl Task {
    /// The task's columns: its texts in order, then the label, if any.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Task::Classification { text, label } => {
                text.iter().chain(label).map(String::as_str).collect()
            }
            Task::LanguageModeling { text } | Task::MaskedLanguageModeling { text } => vec![text],
            Task::Completion { prompt, completion } => {
                let of_prompt = Template::parse_prompt(prompt).map(Template::columns);
                let of_completion = Template::parse(completion).map(Template::columns);
                let of_prompt = of_prompt.unwrap_or_else(|_| vec![prompt]);
                [of_prompt, of_completion.unwrap_or_else(|_| vec![completion])].concat()
            }
            Task::Chat { messages } => vec![messages],
        }
    }

    /// Whether a column may contain lists and objects, which are read as JSON.
    pub fn reads_nested(&self) -> bool {
        matches!(self, Task::Chat { .. })
    }

    /// Prompt and completion of a row, from the values of its columns.
    pub fn prompt_and_completion(&self, values: &[String]) -> Result<Option<(String, String)>> {
        let Task::Completion { prompt, completion } = self else { return Ok(None) };
        let (prompt, completion) = (Template::parse_prompt(prompt)?, Template::parse(completion)?);
        let (of_prompt, rest) = values.split_at(prompt.len().min(values.len()));
        Ok(Some((prompt.fill(of_prompt), completion.fill(rest))))
    }

    /// The label column, if there is one.
    pub fn label(&self) -> Option<&str> {
        match self {
            Task::Classification { label, .. } => label.as_deref(),
            _ => None,
        }
    }

    /// The same task without its label column.
    pub fn without_label(&self) -> Task {
        match self {
            Task::Classification { text, .. } => {
                Task::Classification { text: text.clone(), label: None }
            }
            other => other.clone(),
        }
    }

    /// Rejects classification of zero or more than two texts, and malformed templates.
    pub fn check(&self) -> Result<()> {
        match self {
            Task::Completion { prompt, completion } => {
                Template::parse_prompt(prompt)?;
                Template::parse(completion).map(drop)
            }
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
        let filled = Task::Completion {
            prompt: "{place}: {question}\nAnswer:".into(),
            completion: " {answer}".into(),
        };
        assert_eq!(filled.columns(), ["place", "question", "answer"]);
        let values = ["Bath", "why?", "so"].map(str::to_owned);
        let (prompt, completion) = filled.prompt_and_completion(&values).unwrap().unwrap();
        assert_eq!((prompt.as_str(), completion.as_str()), ("Bath: why?\nAnswer:", " so"));
        let open = Task::Completion { prompt: "{place".into(), completion: "answer".into() };
        assert!(open.check().unwrap_err().to_string().contains("braces"));
    }

    #[test]
    fn three_texts_are_refused() {
        let text = vec!["a".into(), "b".into(), "c".into()];
        assert!(Task::Classification { text, label: None }.check().is_err());
        assert!(Task::Classification { text: vec![], label: None }.check().is_err());
    }
}
