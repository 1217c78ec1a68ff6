//! DeBERTa-v3 (`deberta-v2` in transformers): BERT's blocks with disentangled attention, and no
//! positions in the embeddings.

use super::{Builder, Sizes, bert};
use crate::model::folder::Config;
use crate::model::layer::attention::{Attention, Projections};
use crate::model::layer::block::{Block, NormOrder};
use crate::model::layer::disentangled::Disentangled;
use crate::model::layer::embedding::Embeddings;
use crate::model::layer::feed_forward::{FeedForward, Gate};
use crate::model::layer::head::{Head, Pick};
use crate::model::layer::relative_positions::RelativePositions;
use crate::model::{Network, Result, TaskHead};
use crate::tensor::Scores;
use serde_json::Value;

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
        tokens: builder.tensor(&table("word"), &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: None,
        segments,
        norm: Some(builder.layer_norm("deberta.embeddings.LayerNorm", hidden, epsilon)?),
        dropout,
    };
    let positions = positions(config, &sizes, epsilon, builder)?;
    let mut blocks = Vec::new();
    for i in 0..sizes.layers {
        blocks.push(block(config, i, &positions, &sizes, builder)?);
    }
    builder.begin_head();
    let head = match task_head {
        TaskHead::SequenceClassification => Head {
            task_head,
            pick: Pick::First,
            dense: Some((
                builder.linear("pooler.dense", hidden, hidden, true)?,
                config.activation("pooler_hidden_act", "gelu")?,
            )),
            norm: None,
            dropout: match config.as_map().get("cls_dropout") {
                Some(value) if !value.is_null() => config.dropout_or_zero("cls_dropout")?,
                _ => dropout,
            },
            out: builder.linear("classifier", hidden, classes, true)?,
            soft_cap: None,
        },
        TaskHead::MaskedLanguageModel => {
            let names = masked_head_names(config)?;
            bert::masked_head(config, &sizes, epsilon, names, embeddings.tokens, builder)?
        }
        _ => bert::token_classifier(task_head, hidden, classes, dropout, builder)?,
    };
    Ok(Network {
        embeddings,
        blocks,
        last_norm: None,
        head,
        vocabulary: sizes.vocabulary,
        sanitiser: None,
        max_positions: sizes.positions,
    })
}

/// The head that transformers makes by default, or, where `legacy` is false, that of pretraining.
fn masked_head_names(config: &Config) -> Result<bert::MaskedHeadNames> {
    if config.flag_or("legacy", true)? {
        return Ok(bert::CLS_PREDICTIONS);
    }
    if !config.flag_or("tie_word_embeddings", true)? {
        return Err(config.error("tie_word_embeddings must be true where legacy is false"));
    }
    let head = "lm_predictions.lm_head";
    Ok((head, head, "lm_predictions.lm_head.bias"))
}

/// The kinds of relative attention in a configuration: a list, or a text with bars.
fn kinds(config: &Config) -> Vec<&str> {
    match config.as_map().get("pos_att_type") {
        Some(Value::String(text)) => text.split('|').map(str::trim).collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Errors unless the model computes as version 3 does.
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
        return Err(config.error("conv_kernel_size must be absent: convolutions are not known"));
    }
    if config.dropout_or_zero("pooler_dropout")? != 0.0 {
        return Err(config.error("pooler_dropout must be 0: it is not known how to drop there"));
    }
    for key in ["embedding_size", "pooler_hidden_size"] {
        let size = config.size_or(key, sizes.hidden)?;
        if size != sizes.hidden {
            return Err(config.error(format!("{key} is {size}, but must be hidden_size")));
        }
    }
    Ok(())
}

/// A number above 0, or none: −1 says that there is none.
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

fn block(
    config: &Config,
    i: usize,
    positions: &RelativePositions,
    sizes: &Sizes,
    builder: &mut Builder,
) -> Result<Block> {
    let (hidden, inner, width) = (sizes.hidden, sizes.inner, sizes.head_width(config)?);
    let epsilon = config.epsilon_or("layer_norm_eps", 1e-7)?;
    let name = format!("deberta.encoder.layer.{i}");
    let site = 8 * i as u64;
    let mut projection = |which: &str| {
        builder.linear(&format!("{name}.attention.self.{which}_proj"), hidden, hidden, true)
    };
    let projections = Projections::Split(Box::new([
        projection("query")?,
        projection("key")?,
        projection("value")?,
    ]));
    let output = format!("{name}.attention.output");
    let attention = Attention {
        projections,
        output: builder.linear(&format!("{output}.dense"), hidden, hidden, true)?,
        heads: sizes.heads,
        key_heads: sizes.heads,
        width,
        causal: false,
        head_norms: None,
        rotary: None,
        relative: Some(positions.clone()),
        // A score is the sum of three products.
        scores: Scores { scale: Some((3.0 * width as f32).sqrt().recip()), ..Scores::default() },
        dropout: config.dropout_or_zero("attention_probs_dropout_prob")?,
        site: site + 2,
    };
    Ok(Block {
        order: NormOrder::After,
        attention,
        attention_norm: Some(builder.layer_norm(
            &format!("{output}.LayerNorm"),
            hidden,
            epsilon,
        )?),
        attention_output_norm: None,
        attention_adapter: None,
        feed_forward: FeedForward {
            gate: Gate::Absent,
            up: builder.linear(&format!("{name}.intermediate.dense"), hidden, inner, true)?,
            down: builder.linear(&format!("{name}.output.dense"), inner, hidden, true)?,
            activation: config.activation("hidden_act", "gelu")?,
        },
        feed_forward_norm: builder.layer_norm(
            &format!("{name}.output.LayerNorm"),
            hidden,
            epsilon,
        )?,
        feed_forward_output_norm: None,
        feed_forward_adapter: None,
        dropout: config.dropout_or_zero("hidden_dropout_prob")?,
        site,
        name,
    })
}
