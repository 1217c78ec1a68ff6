//! The model card: README.md beside the trained model, with the metadata that the Hugging Face hub
//! reads.
//!
//! A card is published with the model, so it has only what the guarantee covers or assumes to be
//! public: no training losses, no times, no paths of data. A private run's metrics are shown if the
//! validation file is declared public: anyone who has the model can compute them.

mod loading;

use loading::{loading, metadata};
use serde_json::Value;
use undertone_accounting::{Guarantee, rounded_up};
use undertone_run::{Metrics, ModeName, Summary, escape_markdown};

/// How the model was saved.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// As a whole model; otherwise as an adapter.
    pub whole: bool,
    /// Number of classes of a classifier.
    pub classes: usize,
}

/// The card as Markdown.
pub fn card(summary: &Summary, saved: Saved) -> String {
    let parts = [
        metadata(summary),
        format!("# {}\n", title(summary)),
        guaranteed(summary),
        training(summary),
        quality(summary),
        loading(summary, saved),
        not_promised(summary),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The base model's name, without its local path.
fn base(summary: &Summary) -> String {
    let model = &summary.plan.model;
    let local =
        |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or("model").to_owned();
    model
        .hub
        .clone()
        .or_else(|| model.path.as_deref().map(local))
        .unwrap_or_else(|| "model".to_owned())
}

/// The serialised name of a value, such as `example` or `dp-sgd`.
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

fn table(rows: &[(&str, String)]) -> String {
    let rows =
        rows.iter().map(|(name, value)| format!("| {name} | {} |\n", escape_markdown(value)));
    format!("| | |\n|---|---|\n{}", rows.collect::<String>())
}

fn guaranteed(summary: &Summary) -> String {
    let heading = "## What is guaranteed\n\n";
    let in_full = |guarantee: &Guarantee, epsilon: &'static str| {
        let mut rows = vec![
            (epsilon, format!("at most {}", rounded_up(guarantee.epsilon.upper))),
            ("δ", format!("{:e}", guarantee.delta)),
            ("unit", name(guarantee.unit)),
            ("adjacency", name(guarantee.adjacency)),
            ("threat model", name(guarantee.threat)),
            ("mode", name(guarantee.mode)),
        ];
        rows.extend(summary.ledger_hash.as_ref().map(|hash| ("hash of the ledger", hash.clone())));
        table(&rows)
    };
    match (&summary.not_private_because, &summary.guarantee) {
        (None, Some(guarantee)) => {
            let network = summary.trusted_network();
            let assumptions = (guarantee.assumptions.iter().chain(&network))
                .map(|what| format!("- {}\n", escape_markdown(what)));
            format!(
                "{heading}**{}.**\n\n{}\nThis holds if:\n\n{}",
                escape_markdown(&guarantee.to_string()),
                in_full(guarantee, "ε, proved"),
                assumptions.collect::<String>()
            )
        }
        (why, guarantee) => {
            let why = why.as_deref().unwrap_or("the run has no ledger");
            let mut text = format!("{heading}**No guarantee: {}.**\n", escape_markdown(why));
            if let Some(claim) = &summary.claimed {
                text.push_str(&format!(
                    "\nThe method's own paper would claim ε = {:.4} at δ = {:e}; that is not \
                     proved for what ran.\n",
                    claim.epsilon, claim.delta
                ));
            }
            if let Some(guarantee) = guarantee {
                text.push_str(&format!(
                    "\n{}",
                    in_full(guarantee, "ε of what the ledger holds alone")
                ));
            }
            text
        }
    }
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
        ("privacy units in the training data", resolved.units.to_string()),
        ("epochs", plan.training.epochs.to_string()),
        ("steps", summary.steps.to_string()),
        (
            "batch size",
            format!(
                "{}{}",
                plan.training.batch,
                if plan.privacy.method.is_central() { ", expected" } else { "" }
            ),
        ),
        (
            "optimiser",
            format!(
                "{}, learning rate {}",
                name(plan.training.optimiser),
                plan.training.learning_rate
            ),
        ),
    ];
    let mut noise: Vec<String> =
        resolved.noise_multipliers.iter().map(|s| format!("{s:.4}")).collect();
    noise.dedup();
    if !noise.is_empty() {
        rows.push(("noise multiplier", noise.join(", ")));
    }
    format!("## Training\n\n{}", table(&rows))
}

/// Metrics that the card may show: of a private run those on a public validation file.
fn shown_metrics(summary: &Summary) -> Option<&Metrics> {
    let is_public = summary.plan.data.validation_is_public;
    summary.metrics.validation.as_ref().filter(|_| !summary.private || is_public)
}

fn quality(summary: &Summary) -> String {
    let Some(metrics) = shown_metrics(summary) else { return String::new() };
    let rows = match metrics {
        Metrics::Classification(found) => vec![
            ("accuracy", format!("{:.2} %", 100.0 * found.accuracy)),
            ("F1", format!("{:.4}", found.f1)),
            ("examples", found.examples.to_string()),
        ],
        Metrics::Language(found) => {
            vec![
                ("perplexity", format!("{:.3}", found.perplexity)),
                ("tokens", found.tokens.to_string()),
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
             not publish it if they are private.\n"
        );
    }
    let items = [
        "That nothing is revealed about the data as a whole: what many examples have in common is \
         what the model learns.",
        "Anything about the pretraining data of the base model: only the fine-tuning is covered.",
        "The same ε for a group: k units together are protected with k times ε, and a larger δ.",
        "Anything about other releases from the same data, such as other models, statistics or \
         selected hyperparameters: their budgets add up.",
        "That the model is accurate, fair or safe.",
    ];
    format!("{heading}{}", items.map(|item| format!("- {item}\n")).concat())
}
