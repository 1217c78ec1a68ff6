//! The model card's loading instructions: metadata for the Hugging Face Hub, and a command and
//! Python code that work in the card's folder.

use super::saved::{Library, Saved};
use super::{name, shown_metrics};
use crate::model::TaskHead;
use serde_json::{Value, json};
use undertone_run::{MethodName, Metrics, Summary, printable_line};

/// The heading of the section on loading the model.
pub const HEADING: &str = "## How to load it";

/// A YAML, Python or shell string: all of them accept JSON strings without `$` and backquotes.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// The YAML metadata block of the card.
pub fn metadata(summary: &Summary, saved: &Saved) -> String {
    let pipeline = match TaskHead::of(summary.plan.data.task) {
        TaskHead::SequenceClassification => "text-classification",
        TaskHead::MaskedLanguageModel => "fill-mask",
        _ => "text-generation",
    };
    let mut lines = vec![
        "---".to_owned(),
        format!("library_name: {}", saved.library.name()),
        format!("pipeline_tag: {pipeline}"),
    ];
    if let Some(hub) = super::hub_name(summary) {
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
pub fn loading(task_head: TaskHead, saved: &Saved) -> String {
    let mut text =
        format!("{HEADING}\n\nIn this folder:\n\n```sh\n{}\n```\n", command(task_head, saved));
    if let Some(python) = python(task_head, saved) {
        text.push_str(&format!("\n```python\n{python}\n```\n"));
    }
    text
}

/// The base model, if its path or name can be shown as it is.
fn shown_base(saved: &Saved) -> Option<&str> {
    let base = saved.base.as_deref()?;
    let plain = |c: char| !"\"'`$\\".contains(c);
    (printable_line(base) == base && base.chars().all(plain)).then_some(base)
}

fn command(task_head: TaskHead, saved: &Saved) -> String {
    let (verb, more) = match task_head {
        TaskHead::SequenceClassification => ("predict", "--data new.jsonl --out predicted.jsonl"),
        TaskHead::MaskedLanguageModel => ("eval", "--data new.jsonl"),
        _ => ("generate", "--prompt \"…\""),
    };
    let base = || {
        let base = shown_base(saved).unwrap_or("path/to/base/model");
        let revision = saved.revision.as_ref().map_or(String::new(), |it| format!("@{it}"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
        match base.chars().all(plain) {
            true => format!("{base}{revision}"),
            false => quoted(base),
        }
    };
    let model = match saved.whole {
        true => "--model .".to_owned(),
        false => format!("--model {} --adapter .", base()),
    };
    format!("undertone {verb} {model} {more}")
}

/// Python that loads the model and its tokenizer and uses them; `None` if only Undertone can load
/// it.
fn python(task_head: TaskHead, saved: &Saved) -> Option<String> {
    let class = match task_head {
        TaskHead::SequenceClassification => "ModelForSequenceClassification",
        TaskHead::MaskedLanguageModel => "ModelForMaskedLM",
        _ => "ModelForCausalLM",
    };
    let adapter = match saved.library {
        Library::Undertone => return None,
        Library::Peft => true,
        Library::Transformers => false,
    };
    let mut lines = Vec::new();
    let labels = saved.named_labels().filter(|_| task_head == TaskHead::SequenceClassification);
    // PEFT has no automatic class for masked language models.
    let by_hand = adapter && task_head == TaskHead::MaskedLanguageModel;
    if by_hand {
        let mut base = quoted(shown_base(saved).unwrap_or("path/to/base/model"));
        base.extend(saved.revision.iter().map(|it| format!(", revision={}", quoted(it))));
        lines.extend([
            "from peft import PeftModel".to_owned(),
            format!("from transformers import Auto{class}, AutoTokenizer\n"),
            format!("model = Auto{class}.from_pretrained({base})"),
            "model = PeftModel.from_pretrained(model, \".\")".to_owned(),
        ]);
    } else if adapter {
        lines.extend([
            format!("from peft import AutoPeft{class}"),
            "from transformers import AutoTokenizer\n".to_owned(),
        ]);
        if let Some(labels) = labels {
            lines.extend([
                format!("labels = {}", json!(labels)),
                format!("model = AutoPeft{class}.from_pretrained("),
                "    \".\",".to_owned(),
                "    id2label=dict(enumerate(labels)),".to_owned(),
                "    label2id={label: i for i, label in enumerate(labels)},".to_owned(),
                ")".to_owned(),
            ]);
        } else {
            // The base model's configuration states the number of classes of its own head.
            let classes = match task_head {
                TaskHead::SequenceClassification => format!(", num_labels={}", saved.labels.len()),
                _ => String::new(),
            };
            lines.push(format!("model = AutoPeft{class}.from_pretrained(\".\"{classes})"));
        }
    } else {
        lines.extend([
            format!("from transformers import Auto{class}, AutoTokenizer\n"),
            format!("model = Auto{class}.from_pretrained(\".\")"),
        ]);
    }
    lines.push("tokenizer = AutoTokenizer.from_pretrained(\".\")".to_owned());
    let cut = saved
        .max_tokens
        .map_or(String::new(), |most| format!(", truncation=True, max_length={most}"));
    match task_head {
        TaskHead::SequenceClassification => lines.extend([
            format!("inputs = tokenizer(\"A new text.\"{cut}, return_tensors=\"pt\")"),
            "best = model(**inputs).logits.argmax().item()".to_owned(),
            match (labels, adapter) {
                (Some(_), true) => "print(labels[best])".to_owned(),
                (Some(_), false) => "print(model.config.id2label[best])".to_owned(),
                (None, _) => "print(best)".to_owned(),
            },
        ]),
        TaskHead::MaskedLanguageModel => lines.extend([
            format!("inputs = tokenizer(\"A new text.\"{cut}, return_tensors=\"pt\")"),
            "print(model(**inputs).logits.shape)".to_owned(),
        ]),
        _ => lines.extend([
            "inputs = tokenizer(\"A new text\", return_tensors=\"pt\")".to_owned(),
            "tokens = model.generate(**inputs, max_new_tokens=40)".to_owned(),
            "print(tokenizer.decode(tokens[0], skip_special_tokens=True))".to_owned(),
        ]),
    }
    Some(lines.join("\n"))
}
