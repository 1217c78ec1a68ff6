//! The model card: README.md next to the trained model, with the metadata that the Hugging Face Hub
//! reads.
//!
//! A card is published with the model, so it only contains what the guarantee covers or assumes to
//! be public: no training losses, no times, no data paths. A private run's metrics are shown if the
//! validation file is declared public: anyone who has the model can compute them.

mod loading;
mod merged;
mod saved;

pub use merged::card_of_merged;
pub use saved::{Library, Saved};

use crate::error::Result;
use crate::model::TaskHead;
use loading::{loading, metadata};
use serde_json::Value;
use std::path::Path;
use undertone_accounting::{Guarantee, rounded_up};
use undertone_run::{Metrics, ModeName, Stopped, Summary, escape_markdown, last_component};

/// The card of the model or adapter in a folder, as Markdown.
pub fn card(summary: &Summary, folder: &Path) -> Result<String> {
    let saved = Saved::read(folder)?;
    let parts = [
        metadata(summary, &saved),
        format!("# {}\n", title(summary)),
        guaranteed(summary),
        training(summary),
        quality(summary),
        loading(TaskHead::of(summary.plan.data.task), &saved),
        not_promised(summary),
    ];
    Ok(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n"))
}

/// The base model's name on the Hub, if it is not a folder.
fn hub_name(summary: &Summary) -> Option<&str> {
    let model = &summary.plan.model;
    let path = model.path.as_deref();
    // `model.path` also accepts a name on the Hub, which is not the path of a folder.
    let named = path.filter(|path| {
        let is_name = !path.starts_with(['/', '.']) && !path.contains(['\\', ':']);
        is_name && path.split('/').count() == 2
    });
    model.hub.as_deref().or_else(|| named.filter(|path| !Path::new(path).is_dir()))
}

/// The base model's name, without its local path.
pub(crate) fn base(summary: &Summary) -> String {
    let local = || summary.plan.model.path.as_deref().map(last_component);
    hub_name(summary).or_else(local).unwrap_or("model").to_owned()
}

/// The serialized name of a value, such as `example` or `dp-sgd`.
fn name(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

fn title(summary: &Summary) -> String {
    let how =
        if summary.private { "with differential privacy" } else { "without a privacy guarantee" };
    format!("{}, fine-tuned {how}", escape_markdown(&base(summary)))
}

pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let row = |(name, value): &(&str, String)| {
        format!("| {} | {} |\n", escape_markdown(name), escape_markdown(value))
    };
    let rows = rows.iter().map(row);
    format!("| | |\n|---|---|\n{}", rows.collect::<String>())
}

pub(crate) fn guaranteed(summary: &Summary) -> String {
    let hash = summary.ledger_hash.as_deref();
    match (&summary.not_private_because, &summary.guarantee) {
        (None, Some(guarantee)) => {
            let caveat = summary.stopped.as_ref().and_then(Stopped::caveat);
            let caveat = caveat.map_or(String::new(), |text| {
                format!(
                    "\nThe run was stopped before its last planned step. {}\n",
                    escape_markdown(&text)
                )
            });
            let network: Vec<String> = summary.trusted_network().into_iter().collect();
            holds(guarantee, hash, &caveat, &network)
        }
        (why, guarantee) => {
            let why = why.as_deref().unwrap_or("the run has no ledger");
            let claim = summary.claimed.as_ref().map_or(String::new(), |claim| {
                format!(
                    "\nThe method's own paper would claim ε = {:.4} at δ = {:e}; this is not \
                     proved for this run.\n",
                    claim.epsilon, claim.delta
                )
            });
            holds_not(why, &claim, guarantee.as_ref(), hash)
        }
    }
}

/// The section on the guarantee of a ledger without a run.
pub(crate) fn guarantee_of(guarantee: &Guarantee, not_because: Option<&str>, hash: &str) -> String {
    match not_because {
        None => holds(guarantee, Some(hash), "", &[]),
        Some(why) => holds_not(why, "", Some(guarantee), Some(hash)),
    }
}

const GUARANTEED: &str = "## What is guaranteed\n\n";

fn holds(guarantee: &Guarantee, hash: Option<&str>, caveat: &str, network: &[String]) -> String {
    let assumptions = guarantee.assumptions.iter().chain(network);
    let assumptions = assumptions.map(|what| format!("- {}\n", escape_markdown(what)));
    format!(
        "{GUARANTEED}**{}.**\n\n{}{caveat}\nThis holds if:\n\n{}",
        escape_markdown(&guarantee.to_string()),
        in_full(guarantee, "ε, proved", hash),
        assumptions.collect::<String>()
    )
}

fn holds_not(why: &str, claim: &str, guarantee: Option<&Guarantee>, hash: Option<&str>) -> String {
    let mut text = format!("{GUARANTEED}**No guarantee: {}.**\n{claim}", escape_markdown(why));
    if let Some(guarantee) = guarantee {
        text.push_str(&format!("\n{}", in_full(guarantee, "ε of the ledger alone", hash)));
    }
    text
}

fn in_full(guarantee: &Guarantee, epsilon: &'static str, hash: Option<&str>) -> String {
    let mut rows = vec![
        (epsilon, format!("at most {}", rounded_up(guarantee.epsilon.upper))),
        ("δ", format!("{:e}", guarantee.delta)),
        ("unit", name(guarantee.unit)),
        ("adjacency", name(guarantee.adjacency)),
        ("threat model", name(guarantee.threat)),
        ("mode", name(guarantee.mode)),
    ];
    rows.extend(hash.map(|hash| ("hash of the ledger", hash.to_owned())));
    table(&rows)
}

fn training(summary: &Summary) -> String {
    let (plan, resolved) = (&summary.plan, &summary.resolved);
    let method = match (plan.privacy.method, plan.privacy.mode) {
        (method, ModeName::Paper) => format!("{}, as published", name(method)),
        (method, ModeName::Proved) => name(method),
    };
    let mut rows = vec![
        ("base model", base(summary)),
        ("task", name(plan.data.task)),
        ("method", method),
        (
            "fine-tuning",
            format!(
                "{}: {} of {} parameters are trainable",
                plan.model.tuning.name(),
                summary.parameters.trainable,
                summary.parameters.total
            ),
        ),
        (
            match plan.privacy.units {
                Some(_) => "privacy units, as declared",
                None => "privacy units in the training data",
            },
            resolved.units.to_string(),
        ),
        ("epochs", plan.training.epochs.to_string()),
        (
            "steps",
            match &summary.stopped {
                Some(stopped) => format!("{} of {} planned", summary.steps, stopped.planned_steps),
                None => summary.steps.to_string(),
            },
        ),
        (
            "batch size",
            format!(
                "{}{}",
                plan.training.batch,
                if plan.privacy.method.is_central() { ", expected" } else { "" }
            ),
        ),
        (
            "optimizer",
            format!(
                "{}, learning rate {}",
                name(plan.training.optimizer),
                plan.training.learning_rate
            ),
        ),
    ];
    if let Some(examples) = resolved.examples {
        rows.push(("sampling", examples.to_string()));
    }
    let mut noise: Vec<String> =
        resolved.noise_multipliers.iter().map(|s| format!("{s:.4}")).collect();
    noise.dedup();
    if !noise.is_empty() {
        rows.push(("noise multiplier", noise.join(", ")));
    }
    format!("## Training\n\n{}", table(&rows))
}

/// The metrics that the card may show: for a private run, only those on a public validation file.
fn shown_metrics(summary: &Summary) -> Option<&Metrics> {
    let is_public = summary.plan.data.validation_is_public;
    summary.metrics.validation.as_ref().filter(|_| !summary.private || is_public)
}

fn quality(summary: &Summary) -> String {
    let Some(metrics) = shown_metrics(summary) else { return String::new() };
    let rows = match metrics {
        Metrics::Classification(scores) => vec![
            ("accuracy", format!("{:.2} %", 100.0 * scores.accuracy)),
            ("F1", format!("{:.4}", scores.f1)),
            ("examples", scores.examples.to_string()),
        ],
        Metrics::Language(scores) => {
            vec![
                ("perplexity", format!("{:.3}", scores.perplexity)),
                ("tokens", scores.tokens.to_string()),
            ]
        }
    };
    let file = match summary.plan.data.validation_is_public {
        true => "On a validation file that was declared public",
        false => "On a validation file, without a guarantee",
    };
    format!("## Metrics\n\n{file}:\n\n{}", table(&rows))
}

fn not_promised(summary: &Summary) -> String {
    let heading = "## What is not guaranteed\n\n";
    if !summary.private {
        return format!(
            "{heading}Anything. The model may reveal its training data to anyone who has it. Do \
             not publish it if the data are private.\n"
        );
    }
    let items = [
        "That the model reveals nothing about the data as a whole: it learns what many examples \
         have in common.",
        "Anything about the pretraining data of the base model: only the fine-tuning is covered.",
        "The same ε for a group: k units together are protected with k times ε, and a larger δ.",
        "Anything about other releases from the same data, such as other models, statistics or \
         selected hyperparameters: their budgets add up.",
        "That the model is accurate, fair or safe.",
    ];
    format!("{heading}{}", items.map(|item| format!("- {item}\n")).concat())
}
