//! `undertone model`: inspects a model folder.

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use undertone::model::folder::{LoadOptions, Outline, locate};
use undertone::model::tuning::{
    AdapterSettings, Ia3Settings, LoraSettings, PromptSettings, Tuning,
};
use undertone::model::{Frozen, Model, TaskHead};
use undertone_run::TaskName;

/// Inspect a model
#[derive(Subcommand)]
pub enum ModelVerb {
    Show(Show),
}

impl ModelVerb {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::Show(show) => show.run(output),
        }
    }
}

/// Show a model's architecture, parameters and memory requirements
///
/// Lists the memory of each kind of fine-tuning. Reads and checks config.json and the headers of
/// the weight files, without loading the weights.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone model show models/gpt2 --json")]
pub struct Show {
    /// Model folder, or model name on the Hugging Face Hub, with @revision if not main
    #[arg(value_name = "DIR|NAME")]
    model: String,
    /// Task to show the model for [default: the model's own, or classification]
    #[arg(long, value_enum)]
    task: Option<TaskName>,
}

/// A kind of fine-tuning and its requirements.
struct Row {
    name: &'static str,
    trainable: usize,
    /// In f32, as on a CPU.
    f32_bytes: u64,
    /// With frozen matrices in bf16, as on a GPU.
    bf16_bytes: u64,
    /// With linear layers in NF4, as set by `model.quantize`.
    nf4_bytes: u64,
}

impl Show {
    fn run(self, output: Output) -> Outcome {
        let folder = locate(&self.model)?;
        let outline = self.outline(&folder)?;
        let rows = rows(&outline.model);
        let facts = facts(&outline, &folder);
        if output.json {
            let mut answer = facts;
            answer["tuning"] = rows.iter().map(as_json).collect();
            output::json(&answer);
            return Ok(());
        }
        tell(&facts, &rows);
        Ok(())
    }

    fn outline(&self, folder: &Path) -> Outcome<Outline> {
        let read = |task_head: Option<TaskHead>| {
            Outline::read(folder, &LoadOptions { task_head, ..LoadOptions::default() })
        };
        let given = self.task.map(TaskHead::of);
        // A base model without a head is shown with the head it would be given.
        let usual = Some(TaskHead::SequenceClassification);
        read(given).or_else(|error| match given {
            Some(_) => Err(Failure::from(error)),
            None => read(usual).map_err(|_| Failure::from(error)),
        })
    }
}

/// The kinds of fine-tuning that the model supports.
fn rows(model: &Model) -> Vec<Row> {
    let all_linear = LoraSettings { targets: vec!["all-linear".into()], ..LoraSettings::default() };
    let kinds = [
        ("full", Tuning::Full),
        ("lora", Tuning::Lora(LoraSettings::default())),
        ("lora, all", Tuning::Lora(all_linear)),
        ("ia3", Tuning::Ia3(Ia3Settings::default())),
        ("adapter", Tuning::Adapter(AdapterSettings::default())),
        ("prompt", Tuning::Prompt(PromptSettings::default())),
        ("bitfit", Tuning::Bitfit),
        ("head", Tuning::Head),
    ];
    let row = |(name, tuning): (&'static str, Tuning)| {
        let mut tuned = model.clone();
        tuned.apply_tuning(&tuning, 0).ok()?;
        let bytes = |frozen: Frozen| {
            let memory = tuned.training_memory(frozen);
            memory.weights + memory.states
        };
        let (trainable, _) = tuned.parameters.count();
        Some(Row {
            name,
            trainable,
            f32_bytes: bytes(Frozen::F32),
            bf16_bytes: bytes(Frozen::Bf16),
            nf4_bytes: bytes(Frozen::Nf4),
        })
    };
    kinds.into_iter().filter_map(row).collect()
}

fn as_json(row: &Row) -> Value {
    json!({
        "name": row.name,
        "trainable_parameters": row.trainable,
        "memory_bytes": row.f32_bytes,
        "memory_bytes_bf16": row.bf16_bytes,
        "memory_bytes_nf4": row.nf4_bytes,
    })
}

fn facts(outline: &Outline, folder: &Path) -> Value {
    let (model, weights) = (&outline.model, &outline.weights);
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    for name in weights.names() {
        let dtype = weights.dtype(name).map_or_else(String::new, |dtype| format!("{dtype:?}"));
        *types.entry(dtype).or_default() += 1;
    }
    let (_, parameters) = model.parameters.count();
    json!({
        "folder": folder,
        "architecture": outline.architecture.model_type(),
        "class": outline.architecture.class_name(outline.task_head),
        "parameters": parameters,
        "layers": model.network.blocks.len(),
        "hidden": model.network.head.width(),
        "vocabulary": model.network.vocabulary,
        "max_tokens": model.network.max_positions,
        "tied_embeddings": !model.tied_parameters().is_empty(),
        "random_at_first": model.fresh,
        "files": weights.shards(),
        "file_bytes": weights.bytes(),
        "types": types,
        "activation_bytes_per_token": 4 * model.numbers_per_token(),
    })
}

fn tell(facts: &Value, rows: &[Row]) {
    let text = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| facts[key].as_u64().unwrap_or_default();
    let types: Vec<&str> =
        facts["types"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    output::line(format_args!("{}, {}", text("class"), text("folder")));
    let lines = [
        ("parameters", grouped(number("parameters"))),
        ("layers", number("layers").to_string()),
        ("hidden size", number("hidden").to_string()),
        ("vocabulary", grouped(number("vocabulary"))),
        ("longest text", format!("{} tokens", grouped(number("max_tokens")))),
        (
            "weights",
            format!(
                "{} in {} ({})",
                size(number("file_bytes")),
                match number("files") {
                    1 => "one file".to_owned(),
                    files => format!("{files} files"),
                },
                types.join(", ")
            ),
        ),
        ("activations", format!("{} a token, at most", size(number("activation_bytes_per_token")))),
    ];
    for (name, value) in lines {
        output::line(format_args!("  {name:<14}{value}"));
    }
    let fresh: Vec<&str> = facts["random_at_first"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !fresh.is_empty() {
        output::line(format_args!("  {:<14}{}", "random", fresh.join(", ")));
    }
    output::line("");
    output::line(format_args!(
        "{:<10}{:>18}{:>14}{:>16}{:>9}",
        "tuning", "trainable", "memory, f32", "frozen in bf16", "in nf4"
    ));
    for row in rows {
        output::line(format_args!(
            "{:<10}{:>18}{:>14}{:>16}{:>9}",
            row.name,
            grouped(row.trainable as u64),
            size(row.f32_bytes),
            size(row.bf16_bytes),
            size(row.nf4_bytes)
        ));
    }
    output::line("Memory: weights, sums of gradients and Adam's moments, without activations.");
}

/// A number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        let shown = [0, 999, 1000, 1234567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([999, 2_000_000, 3_500_000_000].map(size), ["1.0 kB", "2.0 MB", "3.50 GB"]);
    }
}
