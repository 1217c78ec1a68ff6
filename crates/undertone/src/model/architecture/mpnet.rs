//! MPNet: RoBERTa's layers, with a bias of attention scores by relative position, whose table all
//! blocks share, and other tensor names.

use super::{Builder, Sizes, bert, roberta};
use crate::model::folder::Config;
use crate::model::layer::attention::{Attention, Projections};
use crate::model::layer::block::{Block, NormOrder};
use crate::model::layer::embedding::Embeddings;
use crate::model::layer::feed_forward::{FeedForward, Gate};
use crate::model::layer::position_bias::PositionBias;
use crate::model::layer::relative_positions::RelativePositions;
use crate::model::{Network, Result, TaskHead};
use crate::tensor::Scores;

/// Positions begin after that of the padding token, which is always 1.
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
    let mut blocks = Vec::new();
    for i in 0..sizes.layers {
        blocks.push(block(config, i, &bias, &sizes, builder)?);
    }
    builder.begin_head();
    let head = roberta::head(config, task_head, classes, &sizes, embeddings.tokens, builder)?;
    Ok(Network {
        embeddings,
        blocks,
        last_norm: None,
        head,
        vocabulary: sizes.vocabulary,
        sanitiser: None,
        max_positions,
    })
}

fn block(
    config: &Config,
    i: usize,
    bias: &PositionBias,
    sizes: &Sizes,
    builder: &mut Builder,
) -> Result<Block> {
    let (hidden, inner) = (sizes.hidden, sizes.inner);
    let epsilon = config.epsilon_or("layer_norm_eps", 1e-12)?;
    let name = format!("mpnet.encoder.layer.{i}");
    let site = 8 * i as u64;
    let mut projection = |which: &str| {
        builder.linear(&format!("{name}.attention.attn.{which}"), hidden, hidden, true)
    };
    let projections =
        Projections::Split(Box::new([projection("q")?, projection("k")?, projection("v")?]));
    let attention = Attention {
        projections,
        output: projection("o")?,
        heads: sizes.heads,
        key_heads: sizes.heads,
        width: sizes.head_width(config)?,
        causal: false,
        head_norms: None,
        rotary: None,
        relative: Some(RelativePositions::Bias(bias.clone())),
        scores: Scores::default(),
        dropout: config.dropout_or_zero("attention_probs_dropout_prob")?,
        site: site + 2,
    };
    let norm = format!("{name}.attention.LayerNorm");
    Ok(Block {
        order: NormOrder::After,
        attention,
        attention_norm: Some(builder.layer_norm(&norm, hidden, epsilon)?),
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
