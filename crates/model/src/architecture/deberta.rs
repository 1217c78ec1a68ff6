//! DeBERTa-v3 (`deberta-v2` in transformers): BERT's blocks with disentangled attention, and no
//! position embeddings at the input.

use super::heads::{self, MaskedHead};
use super::post_norm::{Names, PostNorm};
use super::{Builder, Sizes, bert};
use crate::folder::Config;
use crate::layer::disentangled::Disentangled;
use crate::layer::embedding::Embeddings;
use crate::layer::relative_positions::RelativePositions;
use crate::{Network, Result, TaskHead};
use serde_json::Value;
use undertone_tensor::Scores;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = bert::sizes(config)?;
    check(config, &sizes)?;
    let hidden = sizes.hidden;
    let epsilon = config.epsilon_or("layer_norm_eps", 1e-7)?;
    let dropout = config.dropout_or_zero("hidden_dropout_prob")?;
    let table = |name: &str| format!("deberta.embeddings.{name}_embeddings.weight");
    let segments = match config.index_or("type_vocab_size", 0)? {
        0 => None,
        _ => {
            let count = config.size("type_vocab_size")?;
            Some(builder.tensor(&table("token_type"), &[count, hidden])?)
        }
    };
    let embeddings = Embeddings {
        prompt: None,
        tokens: builder.tensor(&table("word"), &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: None,
        segments,
        norm: Some(builder.layer_norm("deberta.embeddings.LayerNorm", hidden, epsilon)?),
        dropout,
    };
    let width = sizes.head_width(config)?;
    let blocks = PostNorm {
        stem: "deberta.encoder.layer",
        names: Names {
            projections: [
                "attention.self.query_proj",
                "attention.self.key_proj",
                "attention.self.value_proj",
            ],
            attention_output: "attention.output.dense",
            attention_norm: "attention.output.LayerNorm",
            up: "intermediate.dense",
            down: "output.dense",
            norm: "output.LayerNorm",
        },
        width,
        epsilon,
        dropout,
        attention_dropout: config.dropout_or_zero("attention_probs_dropout_prob")?,
        activation: config.activation("hidden_act", "gelu")?,
        relative: Some(positions(config, &sizes, epsilon, builder)?),
        // A score is the sum of three dot products.
        scores: Scores { scale: Some((3.0 * width as f32).sqrt().recip()), ..Scores::default() },
    };
    let blocks = blocks.blocks(&sizes, builder)?;
    builder.begin_head();
    let shape = [hidden, classes];
    let head = match task_head {
        TaskHead::SequenceClassification => {
            let names = ["pooler.dense", "classifier"];
            let activation = config.activation("pooler_hidden_act", "gelu")?;
            let dropout = match config.as_map().get("cls_dropout") {
                Some(value) if !value.is_null() => config.dropout_or_zero("cls_dropout")?,
                _ => dropout,
            };
            heads::sequence_classifier(names, activation, shape, dropout, builder)?
        }
        TaskHead::MaskedLanguageModel => {
            let head = masked_head(config, epsilon)?;
            head.build(config, &sizes, embeddings.tokens, builder)?
        }
        _ => heads::token_classifier(shape, dropout, builder)?,
    };
    Ok(Network {
        embeddings,
        blocks,
        last_norm: None,
        head,
        vocabulary: sizes.vocabulary,
        sanitizer: None,
        max_positions: sizes.positions,
    })
}

/// The default head in transformers or, if `legacy` is false, the pretraining head.
fn masked_head(config: &Config, epsilon: f32) -> Result<MaskedHead> {
    let head = bert::masked_head(config, epsilon)?;
    if config.flag_or("legacy", true)? {
        return Ok(head);
    }
    if !config.flag_or("tie_word_embeddings", true)? {
        return Err(config.error("tie_word_embeddings must be true where legacy is false"));
    }
    Ok(MaskedHead {
        dense: "lm_predictions.lm_head.dense",
        norm: "lm_predictions.lm_head.LayerNorm",
        // It has no output layer of its own and reuses the embedding module.
        out: "deberta.embeddings.word_embeddings",
        bias: "lm_predictions.lm_head.bias",
        ..head
    })
}

/// The kinds of relative attention in a configuration: a list, or a string separated by bars.
fn kinds(config: &Config) -> Vec<&str> {
    match config.as_map().get("pos_att_type") {
        Some(Value::String(text)) => text.split('|').map(str::trim).collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Fails unless the model computes like version 3.
fn check(config: &Config, sizes: &Sizes) -> Result<()> {
    let kinds = kinds(config);
    let both = kinds.len() == 2 && kinds.contains(&"c2p") && kinds.contains(&"p2c");
    let shared = config.flag_or("share_att_key", false)?;
    if !config.flag_or("relative_attention", false)? || !both || !shared {
        return Err(config.error(
            "attention must be that of DeBERTa-v3: relative_attention and share_att_key true, \
             pos_att_type \"p2c|c2p\"",
        ));
    }
    if config.flag_or("position_biased_input", true)? {
        return Err(config.error("position_biased_input must be false, as in DeBERTa-v3"));
    }
    if config.index_or("conv_kernel_size", 0)? != 0 {
        return Err(config.error("conv_kernel_size must be absent: convolutions are not supported"));
    }
    if config.dropout_or_zero("pooler_dropout")? != 0.0 {
        return Err(config.error("pooler_dropout must be 0: dropout there is not supported"));
    }
    for key in ["embedding_size", "pooler_hidden_size"] {
        let size = config.size_or(key, sizes.hidden)?;
        if size != sizes.hidden {
            return Err(config.error(format!("{key} is {size}, but must be hidden_size")));
        }
    }
    Ok(())
}

/// A number above 0, or `None`: −1 means absent.
fn optional_size(config: &Config, key: &str) -> Result<Option<usize>> {
    match config.number_or(key, -1.0)? < 1.0 {
        true => Ok(None),
        false => config.size(key).map(Some),
    }
}

fn positions(
    config: &Config,
    sizes: &Sizes,
    epsilon: f32,
    builder: &mut Builder,
) -> Result<RelativePositions> {
    let most_distant = optional_size(config, "max_relative_positions")?.unwrap_or(sizes.positions);
    let buckets = optional_size(config, "position_buckets")?;
    if buckets.is_some_and(|buckets| buckets < 4 || most_distant <= buckets / 2 + 1) {
        return Err(config.error(
            "position_buckets must be at least 4, and max_relative_positions more than half of \
             them and one",
        ));
    }
    let span = buckets.unwrap_or(most_distant);
    let table = "deberta.encoder.rel_embeddings.weight";
    let norm = match config.text("norm_rel_ebd")?.unwrap_or("none") {
        "none" => None,
        "layer_norm" => Some("deberta.encoder.LayerNorm"),
        other => {
            return Err(config.error(format!(
                "norm_rel_ebd is {other:?}, but must be \"layer_norm\" or \"none\""
            )));
        }
    };
    Ok(RelativePositions::Disentangled(Box::new(Disentangled {
        table: builder.tensor(table, &[2 * span, sizes.hidden])?,
        norm: norm.map(|name| builder.layer_norm(name, sizes.hidden, epsilon)).transpose()?,
        span,
        buckets: buckets.map(|buckets| (buckets, most_distant)),
    })))
}
