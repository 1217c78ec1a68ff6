//! How to load the model: metadata for the Hugging Face hub, and commands.

use super::{Saved, base, name, shown_metrics};
use crate::model::TaskHead;
use serde_json::Value;
use undertone_run::{MethodName, Metrics, Summary, Tuning};

/// The library that loads the saved model or adapter.
enum Loads {
    Transformers,
    Peft,
    Undertone,
}

fn loads(summary: &Summary) -> Loads {
    match (&summary.plan.model.tuning, summary.records.is_some()) {
        (_, true) => Loads::Undertone,
        (Tuning::Full, _) => Loads::Transformers,
        (Tuning::Lora(_) | Tuning::Ia3(_), _) => Loads::Peft,
        _ => Loads::Undertone,
    }
}

/// A YAML string: YAML reads JSON strings.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// The YAML metadata block of the card.
pub fn metadata(summary: &Summary) -> String {
    let library = match loads(summary) {
        Loads::Transformers => "transformers",
        Loads::Peft => "peft",
        Loads::Undertone => "undertone",
    };
    let pipeline = match TaskHead::of(summary.plan.data.task) {
        TaskHead::SequenceClassification => "text-classification",
        TaskHead::MaskedLanguageModel => "fill-mask",
        _ => "text-generation",
    };
    let mut lines = vec![
        "---".to_owned(),
        format!("library_name: {library}"),
        format!("pipeline_tag: {pipeline}"),
    ];
    if let Some(hub) = &summary.plan.model.hub {
        lines.push(format!("base_model: {}", quoted(hub)));
    }
    lines.extend(["tags:".to_owned(), "- undertone".to_owned()]);
    if summary.private {
        lines.push("- differential-privacy".to_owned());
    }
    if summary.plan.privacy.method != MethodName::None {
        lines.push(format!("- {}", name(summary.plan.privacy.method)));
    }
    if let Some(metrics) = shown_metrics(summary) {
        let names: &[&str] = match metrics {
            Metrics::Classification(_) => &["accuracy", "f1"],
            Metrics::Language(_) => &["perplexity"],
        };
        lines.push("metrics:".to_owned());
        lines.extend(names.iter().map(|name| format!("- {name}")));
    }
    lines.push("---\n".to_owned());
    lines.join("\n")
}

/// The section on loading the model.
pub fn loading(summary: &Summary, saved: Saved) -> String {
    let task_head = TaskHead::of(summary.plan.data.task);
    let classifies = task_head == TaskHead::SequenceClassification;
    let (class, verb, more) = match task_head {
        TaskHead::SequenceClassification => {
            ("AutoModelForSequenceClassification", "predict", "--data new.jsonl --out said.jsonl")
        }
        TaskHead::MaskedLanguageModel => ("AutoModelForMaskedLM", "eval", "--data new.jsonl"),
        _ => ("AutoModelForCausalLM", "generate", "--prompt \"…\""),
    };
    let python = match loads(summary) {
        Loads::Undertone => None,
        Loads::Transformers => Some(format!(
            "from transformers import AutoTokenizer, {class}\n\nmodel = \
             {class}.from_pretrained(\"path/to/this/folder\")\ntokenizer = \
             AutoTokenizer.from_pretrained(\"path/to/this/folder\")"
        )),
        Loads::Peft => {
            let classes =
                if classifies { format!(", num_labels={}", saved.classes) } else { String::new() };
            let from = quoted(&base(summary));
            Some(format!(
                "from peft import PeftModel\nfrom transformers import {class}\n\nmodel = \
                 {class}.from_pretrained({from}{classes})\nmodel = \
                 PeftModel.from_pretrained(model, \"path/to/this/folder\")"
            ))
        }
    };
    let arguments = if saved.whole {
        "--model path/to/this/folder"
    } else {
        "--model path/to/base/model --adapter path/to/this/folder"
    };
    let mut text =
        format!("## How to load it\n\n```sh\nundertone {verb} {arguments} {more}\n```\n");
    if let Some(python) = python {
        text.push_str(&format!("\n```python\n{python}\n```\n"));
    }
    text
}
