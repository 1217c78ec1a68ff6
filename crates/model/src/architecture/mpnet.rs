//! MPNet: RoBERTa's layers with different tensor names and a relative position bias on attention
//! scores, whose table all blocks share.

use super::post_norm::{Names, PostNorm};
use super::{Builder, bert, roberta};
use crate::folder::Config;
use crate::layer::embedding::Embeddings;
use crate::layer::position_bias::PositionBias;
use crate::layer::relative_positions::RelativePositions;
use crate::{Network, Result, TaskHead};
use undertone_tensor::Scores;

/// Positions start after that of the padding token, which is always 1.
const FIRST_POSITION: u32 = 2;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = bert::sizes(config)?;
    let hidden = sizes.hidden;
    let Some(max_positions) =
        sizes.positions.checked_sub(FIRST_POSITION as usize).filter(|&n| n > 0)
    else {
        return Err(config.error("max_position_embeddings must be above 2"));
    };
    let buckets = config.size_or("relative_attention_num_buckets", 32)?;
    if buckets != 32 {
        return Err(config.error(format!(
            "relative_attention_num_buckets is {buckets}, but MPNet computes with 32"
        )));
    }
    let epsilon = config.epsilon_or("layer_norm_eps", 1e-12)?;
    let table = |name: &str| format!("mpnet.embeddings.{name}_embeddings.weight");
    let embeddings = Embeddings {
        prompt: None,
        tokens: builder.tensor(&table("word"), &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: Some((
            builder.tensor(&table("position"), &[sizes.positions, hidden])?,
            FIRST_POSITION,
        )),
        segments: None,
        norm: Some(builder.layer_norm("mpnet.embeddings.LayerNorm", hidden, epsilon)?),
        dropout: config.dropout_or_zero("hidden_dropout_prob")?,
    };
    let bias = PositionBias {
        table: builder
            .tensor("mpnet.encoder.relative_attention_bias.weight", &[buckets, sizes.heads])?,
        buckets,
        heads: sizes.heads,
    };
    let blocks = PostNorm {
        stem: "mpnet.encoder.layer",
        names: Names {
            projections: ["attention.attn.q", "attention.attn.k", "attention.attn.v"],
            attention_output: "attention.attn.o",
            attention_norm: "attention.LayerNorm",
            up: "intermediate.dense",
            down: "output.dense",
            norm: "output.LayerNorm",
        },
        width: sizes.head_width(config)?,
        epsilon,
        dropout: config.dropout_or_zero("hidden_dropout_prob")?,
        attention_dropout: config.dropout_or_zero("attention_probs_dropout_prob")?,
        activation: config.activation("hidden_act", "gelu")?,
        relative: Some(RelativePositions::Bias(bias)),
        scores: Scores::default(),
    };
    let blocks = blocks.blocks(&sizes, builder)?;
    builder.begin_head();
    let head = roberta::head(config, task_head, classes, &sizes, embeddings.tokens, builder)?;
    Ok(Network {
        embeddings,
        blocks,
        last_norm: None,
        head,
        vocabulary: sizes.vocabulary,
        sanitizer: None,
        max_positions,
    })
}
