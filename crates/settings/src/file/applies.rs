//! Keys that apply only to some runs. In any other run they are an error; they are never ignored.

use super::{
    AttentionSource, EncoderKind, Format, LearnerKind, MethodName, ModeName, NoiseLayer,
    NoiseSchedule, OptimizerKind, ReleasedRows, RelevanceRule, RelevanceSource, RunFile, TaskName,
    Tuning,
};
use crate::error::{Error, Result};
use toml::{Table, Value};

/// A key, the runs it applies to, and a description of those runs for the error message.
struct Rule {
    key: &'static str,
    applies: fn(&RunFile) -> bool,
    to: &'static str,
}

const fn rule(key: &'static str, to: &'static str, applies: fn(&RunFile) -> bool) -> Rule {
    Rule { key, applies, to }
}

const PRIVATE: &str = "private methods, but privacy.method is \"none\"";
const CLASSIFICATION: &str = "data.task = \"classification\"";
const COMPLETION: &str = "data.task = \"completion\"";
const ADAM: &str = "the optimizers adamw and adam-corrected";

fn is_private(file: &RunFile) -> bool {
    file.privacy.method != MethodName::None
}

/// Whether a step samples whole privacy units.
fn samples_units(file: &RunFile) -> bool {
    file.privacy.sampling.is_users()
}

fn is_paper(file: &RunFile) -> bool {
    file.privacy.mode == ModeName::Paper
}

fn is_adam(file: &RunFile) -> bool {
    file.training.optimizer != OptimizerKind::Sgd
}

fn task_is(file: &RunFile, task: TaskName) -> bool {
    file.data.task == task
}

fn is_mvg(file: &RunFile) -> bool {
    file.privacy.method == MethodName::Mvg
}

fn is_rap_ft(file: &RunFile) -> bool {
    file.privacy.method == MethodName::RapFt
}

fn perturbs_hidden_states(file: &RunFile) -> bool {
    matches!(file.privacy.method, MethodName::DpForward | MethodName::EwFt)
}

/// Whether the run is MVG as published, which has its own budgets and a box instead of a norm
/// bound.
fn is_published_mvg(file: &RunFile) -> bool {
    is_paper(file) && file.privacy.method == MethodName::Mvg
}

/// Whether embeddings pass through an encoder whose widths the run file can set.
fn has_encoder_of_own_width(file: &RunFile) -> bool {
    let default_is_none = file.privacy.method == MethodName::DpForward;
    match file.privacy.local.encoder {
        Some(kind) => kind != EncoderKind::None && file.privacy.method != MethodName::Mvg,
        None => !default_is_none && file.privacy.method != MethodName::Mvg,
    }
}

/// Whether embeddings pass through an autoencoder rather than a projection or MVG's layer.
fn has_autoencoder(file: &RunFile) -> bool {
    let default_is_trained = file.privacy.method == MethodName::EwFt && is_paper(file);
    let kind = file.privacy.local.encoder;
    file.privacy.method != MethodName::Mvg
        && kind.map_or(default_is_trained, |kind| {
            matches!(kind, EncoderKind::Autoencoder | EncoderKind::Trained)
        })
}

const RULES: &[Rule] = &[
    rule("privacy.epsilon", PRIVATE, is_private),
    rule(
        "privacy.epsilon",
        "methods other than mvg in paper mode, which has per-token budgets (privacy.mvg)",
        |file| !is_published_mvg(file),
    ),
    rule("privacy.units", "gradient methods, which sample units", |file| {
        file.privacy.method.is_central()
    }),
    rule("privacy.noise_multiplier", PRIVATE, is_private),
    rule("privacy.noise_multiplier", "gradient methods", |file| !file.privacy.method.is_local()),
    rule("privacy.noise_multipliers", "the methods dp-forward and ew-ft in paper mode", |file| {
        let local = matches!(file.privacy.method, MethodName::DpForward | MethodName::EwFt);
        local && is_paper(file)
    }),
    rule("privacy.mode", PRIVATE, is_private),
    rule("privacy.delta", PRIVATE, is_private),
    rule("privacy.clip", PRIVATE, is_private),
    rule("privacy.schedule", PRIVATE, is_private),
    rule("privacy.schedule", "runs without privacy.noise_multipliers", |file| {
        file.privacy.noise_multipliers.is_none()
    }),
    rule(
        "privacy.schedule",
        "methods other than mvg in paper mode, whose noise follows from the tokens' budgets",
        |file| !is_published_mvg(file),
    ),
    rule("privacy.step_distance", "schedules other than uniform", |file| {
        is_private(file) && file.privacy.schedule != NoiseSchedule::Uniform
    }),
    rule("privacy.reserve", "privacy.schedule = \"ewpba\"", |file| {
        is_private(file) && file.privacy.schedule == NoiseSchedule::Ewpba
    }),
    rule("privacy.sampling", "the method dp-sgd", |file| file.privacy.method == MethodName::DpSgd),
    rule("privacy.sampling", "runs with data.author, whose unit is a user", |file| {
        file.data.author.is_some()
    }),
    rule(
        "privacy.units",
        "runs without privacy.sampling = \"examples\", which takes the number of examples from the \
         training file",
        samples_units,
    ),
    rule("privacy.correlation", "runs without privacy.sampling = \"examples\"", samples_units),
    rule("synthesis", "runs without privacy.sampling = \"examples\"", samples_units),
    rule("privacy.correlation", "the method dp-sgd", |file| {
        file.privacy.method == MethodName::DpSgd
    }),
    rule("privacy.anadp", "the method anadp", |file| file.privacy.method == MethodName::Anadp),
    rule("privacy.adaclip", "the method adaclip", |file| {
        file.privacy.method == MethodName::Adaclip
    }),
    rule("privacy.anadp.importance", "mode = \"proved\"; paper mode uses raw gradients", |file| {
        !is_paper(file)
    }),
    rule("privacy.adaclip.beta", "importance = \"released\"", |file| {
        !file.privacy.adaclip.importance.is_public()
    }),
    rule("privacy.adaclip.form", "importance = { public = \"file\" }", |file| {
        file.privacy.adaclip.importance.is_public()
    }),
    rule("privacy.rap_ft", "the method rap-ft", is_rap_ft),
    rule("privacy.rap_ft.relevance", "mode = \"proved\"; paper mode uses raw maps", |file| {
        !is_paper(file)
    }),
    rule(
        "privacy.rap_ft.examples",
        "maps of public examples and for paper mode; a noised map has relevance.noised.examples",
        |file| {
            is_paper(file) || matches!(file.privacy.rap_ft.relevance, RelevanceSource::Public(_))
        },
    ),
    rule("privacy.local", "the methods dp-forward, ew-ft and mvg", |file| {
        file.privacy.method.is_local()
    }),
    rule("privacy.rap_ft.alpha", "rule = \"alpha-beta\"", |file| {
        file.privacy.rap_ft.rule == RelevanceRule::AlphaBeta
    }),
    rule("privacy.rap_ft.probes", "lora and adapter, whose weights begin at zero", |file| {
        matches!(file.model.tuning, Tuning::Lora(_) | Tuning::Adapter(_))
    }),
    rule("privacy.rap_ft.initial", "language-modeling, completion and chat", |file| {
        [TaskName::LanguageModeling, TaskName::Completion, TaskName::Chat].contains(&file.data.task)
    }),
    rule("privacy.paper.noise_is", "mode = \"paper\"", is_paper),
    rule("privacy.paper.noise_is", "the methods dp-forward and ew-ft", perturbs_hidden_states),
    rule("privacy.paper.accounted_batch", "mode = \"paper\"", is_paper),
    rule(
        "privacy.paper.accounted_batch",
        "the methods dp-forward and ew-ft",
        perturbs_hidden_states,
    ),
    rule("privacy.paper.attention_heads", "the method mvg", is_mvg),
    rule("privacy.paper.head", "the method mvg", is_mvg),
    rule("privacy.paper.head", "mode = \"paper\"", is_paper),
    rule("privacy.paper.ranking", "the method rap-ft", is_rap_ft),
    rule("privacy.paper.bias_in_z", "the method rap-ft", is_rap_ft),
    rule("privacy.paper.activations", "the method rap-ft", is_rap_ft),
    rule(
        "privacy.local.bound",
        "methods other than mvg in paper mode, whose columns a bounded ReLU keeps in a box",
        |file| !is_published_mvg(file),
    ),
    rule("privacy.local.dims", "encoders of dp-forward and ew-ft", has_encoder_of_own_width),
    rule("privacy.local.activation", "encoder = \"autoencoder\" and \"trained\"", has_autoencoder),
    rule("privacy.local.lengths", "rows = \"tokens\"", |file| {
        let default_is_tokens = is_paper(file)
            && file.privacy.method != MethodName::Mvg
            && matches!(file.privacy.local.after, Some(NoiseLayer::After(_)));
        file.privacy.local.rows.map_or(default_is_tokens, |rows| rows == ReleasedRows::Tokens)
    }),
    rule("privacy.mvg", "the method mvg", is_mvg),
    rule("privacy.mvg.attention_epsilon", "attention = \"atten-dp\"", |file| {
        file.privacy.mvg.attention == AttentionSource::AttenDp
    }),
    rule("privacy.mvg.attention_examples", "attention = \"atten-dp\" and \"raw\"", |file| {
        file.privacy.mvg.attention != AttentionSource::Position
    }),
    rule("model.tuning.ia3", "gradient methods and non-private runs", |file| {
        !file.privacy.method.is_local()
    }),
    rule("model.tuning.prompt", "gradient methods and non-private runs", |file| {
        !file.privacy.method.is_local()
    }),
    rule(
        "model.tuning.lora.dora",
        "gradient methods other than rap-ft, and non-private runs",
        |file| !file.privacy.method.is_local() && file.privacy.method != MethodName::RapFt,
    ),
    rule("model.tuning.lora.embeddings", "gradient methods and non-private runs", |file| {
        !file.privacy.method.is_local()
    }),
    rule(
        "model.tuning.lora.embeddings",
        "methods other than rap-ft, whose mask is of single coordinates",
        |file| file.privacy.method != MethodName::RapFt,
    ),
    rule("model.biases", "model.tuning = \"bitfit\"", |file| file.model.tuning == Tuning::Bitfit),
    rule("model.quantize", "model.tuning other than \"full\"", |file| {
        file.model.tuning != Tuning::Full
    }),
    rule("model.quantize", "gradient methods and non-private runs", |file| {
        !file.privacy.method.is_local()
    }),
    rule("model.revision", "models of the hub (model.hub)", |file| file.model.hub.is_some()),
    rule("data.on_bad_row", "TSV, CSV and JSON Lines", |file| {
        let format = file.data.format.or_else(|| Format::from_extension(&file.data.train));
        !matches!(format, Some(Format::Parquet | Format::Text))
    }),
    rule("data.validation_is_public", PRIVATE, is_private),
    rule("data.validation_is_public", "runs with data.validation", |file| {
        file.data.validation.is_some()
    }),
    rule("data.label", CLASSIFICATION, |file| task_is(file, TaskName::Classification)),
    rule("data.labels", CLASSIFICATION, |file| task_is(file, TaskName::Classification)),
    rule("data.publish_labels", "data.task = \"classification\" and [synthesis]", |file| {
        task_is(file, TaskName::Classification) || file.synthesis.is_some()
    }),
    rule("data.publish_labels", "class names found in the file, without data.labels", |file| {
        file.data.labels.is_none()
    }),
    rule("data.rename_labels", CLASSIFICATION, |file| task_is(file, TaskName::Classification)),
    rule("data.prompt", COMPLETION, |file| task_is(file, TaskName::Completion)),
    rule("data.completion", COMPLETION, |file| task_is(file, TaskName::Completion)),
    rule("data.messages", "data.task = \"chat\"", |file| task_is(file, TaskName::Chat)),
    rule("data.pack", "data.task = \"language-modeling\"", |file| {
        task_is(file, TaskName::LanguageModeling)
    }),
    rule("data.pack", "runs with data.author, whose texts are joined", |file| {
        file.data.author.is_some()
    }),
    rule("data.long_texts", "language-modeling and masked-language-modeling", |file| {
        task_is(file, TaskName::LanguageModeling) || task_is(file, TaskName::MaskedLanguageModeling)
    }),
    rule("data.hold_out", "central DP and non-private runs", |file| {
        !file.privacy.method.is_local()
    }),
    rule("data.most_per_author", "runs with data.author", |file| file.data.author.is_some()),
    rule("synthesis", COMPLETION, |file| task_is(file, TaskName::Completion)),
    rule("synthesis", "gradient methods and non-private runs", |file| {
        !file.privacy.method.is_local()
    }),
    rule("synthesis", "mode = \"proved\" and non-private runs", |file| !is_paper(file)),
    rule("synthesis.statistics_share", PRIVATE, is_private),
    rule("training.momentum", "the optimizer sgd", |file| {
        file.training.optimizer == OptimizerKind::Sgd
    }),
    rule("training.betas", ADAM, is_adam),
    rule("training.adam_epsilon", ADAM, is_adam),
    rule("training.filter_gain", "the methods dp-sgd and rap-ft", |file| {
        [MethodName::DpSgd, MethodName::RapFt].contains(&file.privacy.method)
    }),
    rule("training.filter_gain", "mode = \"proved\"", |file| !is_paper(file)),
    rule("training.filter_gain", "runs without privacy.correlation", |file| {
        file.privacy.correlation.is_none()
    }),
    rule(
        "model.tuning.lora.b_rate",
        "model.tuning.lora.freeze_a = false, where A is trained",
        |file| !matches!(&file.model.tuning, Tuning::Lora(lora) if lora.freeze_a),
    ),
    rule("training.average", "runs that learn by gradients", |file| {
        file.privacy.local.learn != Some(LearnerKind::Discriminant)
    }),
    rule("compute.log_private", "runs with compute.log", |file| file.compute.log.is_some()),
    rule("training.stop_early", "runs with data.validation", |file| file.data.validation.is_some()),
    rule("training.stop_early", "mode = \"proved\" and non-private runs", |file| !is_paper(file)),
    rule("evaluation", "central DP in mode = \"proved\", without privacy.correlation", |file| {
        has_evaluation(file) && file.privacy.correlation.is_none()
    }),
    rule("evaluation", "runs with a data.validation that is not declared public", |file| {
        file.data.validation.is_some() && !file.data.validation_is_public
    }),
    rule("evaluation", "tasks other than masked-language-modeling", |file| {
        !task_is(file, TaskName::MaskedLanguageModeling)
    }),
    rule("evaluation.every", "runs with evaluation.epsilon", |file| {
        file.evaluation.epsilon.is_some()
    }),
    rule("training.dropout", "runs that learn by gradients", |file| {
        file.privacy.local.learn != Some(LearnerKind::Discriminant)
    }),
];

/// Whether the method's ledger can have an entry for metrics.
fn has_evaluation(file: &RunFile) -> bool {
    is_private(file) && !file.privacy.method.is_local() && !is_paper(file)
}

impl RunFile {
    /// Rejects keys in `table`, the parsed run file, that do not apply to the run.
    pub(super) fn check_that_keys_apply(&self, table: &Table) -> Result<()> {
        for rule in RULES.iter().filter(|rule| !(rule.applies)(self)) {
            if find(table, rule.key).is_some() {
                let name = match find(table, rule.key) {
                    Some(Value::Table(_)) if rule.key.matches('.').count() == 1 => {
                        format!("[{}]", rule.key)
                    }
                    _ => rule.key.to_owned(),
                };
                return Err(Error::run_file(format!("{name} is for {}; remove it", rule.to)));
            }
        }
        Ok(())
    }

    /// Rejects a key, given by its path, that does not apply to the run.
    pub fn check_that_key_applies(&self, key: &str) -> Result<()> {
        let key = super::spelling::path(key);
        let within = |rule: &&Rule| {
            key.strip_prefix(rule.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match RULES.iter().filter(within).find(|rule| !(rule.applies)(self)) {
            Some(rule) => Err(Error::run_file(format!("{key} is for {}; remove it", rule.to))),
            None => Ok(()),
        }
    }

    /// Keys of `table` that [`RunFile::check_that_keys_apply`] would reject.
    pub(super) fn keys_that_do_not_apply(&self, table: &Table) -> Vec<&'static str> {
        let rules = RULES.iter().filter(|rule| !(rule.applies)(self));
        let mut keys: Vec<&str> =
            rules.map(|rule| rule.key).filter(|key| find(table, key).is_some()).collect();
        keys.sort_unstable();
        keys.dedup();
        // Removing a table also removes the keys inside it.
        let all = keys.clone();
        keys.retain(|key| {
            !all.iter()
                .any(|other| key.strip_prefix(other).is_some_and(|rest| rest.starts_with('.')))
        });
        keys
    }

    /// Removes keys that [`RunFile::check_that_keys_apply`] would reject.
    pub(super) fn remove_keys_that_do_not_apply(&self, table: &mut Table) {
        for rule in RULES.iter().filter(|rule| !(rule.applies)(self)) {
            let (path, last) = rule.key.rsplit_once('.').unwrap_or(("", rule.key));
            let mut here = Some(&mut *table);
            for key in path.split('.').filter(|key| !key.is_empty()) {
                here = here.and_then(|t| t.get_mut(key)).and_then(Value::as_table_mut);
            }
            // A kind of tuning is all that its table has; without it, the table could not be read,
            // and the check could not say why.
            if let Some(here) = here.filter(|_| path != "model.tuning") {
                here.remove(last);
            }
        }
    }
}

/// The runs to which a key applies, for the run-file reference; without the reasons that the error
/// messages add.
#[cfg(test)]
pub(super) fn scope(key: &str) -> String {
    let reasons = ["; ", ", which", ", whose", ", but"];
    let brief = |to: &'static str| {
        let ends = reasons.iter().filter_map(|reason| to.find(reason));
        &to[..ends.min().unwrap_or(to.len())]
    };
    let rules = RULES.iter().filter(|rule| rule.key == key);
    rules.map(|rule| brief(rule.to)).collect::<Vec<_>>().join("; ")
}

/// The value at a dotted path.
pub(super) fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((first, rest)) => find(table.get(first)?.as_table()?, rest),
    }
}
