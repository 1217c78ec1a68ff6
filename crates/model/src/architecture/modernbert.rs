//! ModernBERT: a pre-norm encoder with rotary embeddings, GeGLU and no biases, in which most layers
//! use windowed attention.

use super::rope::{self, Rope};
use super::{Builder, Sizes, bert, heads, llama};
use crate::folder::Config;
use crate::layer::attention::{Attention, Projections};
use crate::layer::block::{Block, NormOrder};
use crate::layer::embedding::Embeddings;
use crate::layer::feed_forward::{FeedForward, Gate};
use crate::layer::head::{Head, Pick};
use crate::layer::linear::Linear;
use crate::layer::norm::Norm;
use crate::{Network, Result, TaskHead};
use undertone_tensor::Scores;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = bert::sizes(config)?;
    let (hidden, width) = (sizes.hidden, sizes.head_width(config)?);
    if !width.is_multiple_of(2) {
        return Err(config.error(format!("the head width ({width}) must be even")));
    }
    for key in ["attention_dropout", "mlp_dropout"] {
        if config.dropout_or_zero(key)? != 0.0 {
            return Err(config.error(format!("{key} must be 0: dropout there is not supported")));
        }
    }
    let embeddings = Embeddings {
        prompt: None,
        tokens: builder
            .tensor("model.embeddings.tok_embeddings.weight", &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: None,
        segments: None,
        norm: Some(norm(config, "model.embeddings.norm", hidden, builder)?),
        dropout: config.dropout_or_zero("embedding_dropout")?,
    };
    let every = config.size_or("global_attn_every_n_layers", 3)?;
    let is_local = llama::local_layers(config, sizes.layers, |i| !i.is_multiple_of(every))?;
    let mut blocks = Vec::new();
    for (i, local) in is_local.into_iter().enumerate() {
        blocks.push(block(config, i, local, &sizes, builder)?);
    }
    let last_norm = Some(norm(config, "model.final_norm", hidden, builder)?);
    builder.begin_head();
    let bias = config.flag_or("classifier_bias", false)?;
    let dense = builder.linear("head.dense", hidden, hidden, bias)?;
    let activation = config.activation("classifier_activation", "gelu")?;
    let head_norm = norm(config, "head.norm", hidden, builder)?;
    let (pick, dropout, out) = match task_head {
        TaskHead::MaskedLanguageModel => {
            (Pick::Tokens, 0.0, decoder(config, &sizes, embeddings.tokens, builder)?)
        }
        _ => {
            let out = builder.linear("classifier", hidden, classes, true)?;
            (pick(config, task_head)?, config.dropout_or_zero("classifier_dropout")?, out)
        }
    };
    Ok(Network {
        embeddings,
        blocks,
        last_norm,
        head: Head {
            task_head,
            pick,
            dense: Some((dense, activation)),
            norm: Some(head_norm),
            dropout,
            out,
            soft_cap: None,
        },
        vocabulary: sizes.vocabulary,
        sanitizer: None,
        max_positions: sizes.positions,
    })
}

fn pick(config: &Config, task_head: TaskHead) -> Result<Pick> {
    match (task_head, config.text("classifier_pooling")?.unwrap_or("cls")) {
        (TaskHead::TokenClassification, _) => Ok(Pick::Tokens),
        (_, "cls") => Ok(Pick::First),
        (_, "mean") => Ok(Pick::Mean),
        (_, other) => Err(config
            .error(format!("classifier_pooling is {other:?}, but must be \"cls\" or \"mean\""))),
    }
}

fn norm(config: &Config, name: &str, width: usize, builder: &mut Builder) -> Result<Norm> {
    let epsilon = config.epsilon_or("norm_eps", 1e-5)?;
    match config.flag_or("norm_bias", false)? {
        true => builder.layer_norm(name, width, epsilon),
        false => builder.layer_norm_of_weight(name, width, epsilon),
    }
}

/// The layer from hidden states to vocabulary logits.
fn decoder(
    config: &Config,
    sizes: &Sizes,
    tokens: crate::ParameterId,
    builder: &mut Builder,
) -> Result<Linear> {
    if config.flag_or("decoder_bias", true)? {
        return heads::vocabulary_layer(
            config,
            builder,
            ("decoder", "decoder.bias"),
            sizes,
            tokens,
        );
    }
    match config.flag_or("tie_word_embeddings", true)? {
        true => {
            let size = [sizes.hidden, sizes.vocabulary];
            Ok(Linear::plain("decoder".into(), tokens, None, size))
        }
        false => builder.linear("decoder", sizes.hidden, sizes.vocabulary, false),
    }
}

fn rope(config: &Config, is_local: bool, width: usize) -> Result<Rope> {
    let (section, theta, default_theta) = match is_local {
        true => ("sliding_attention", "local_rope_theta", 10_000.0),
        false => ("full_attention", "global_rope_theta", 160_000.0),
    };
    let keys = rope::Keys { section: Some(section), theta, default_theta, is_scaled: true };
    rope::read(config, width, keys)
}

fn block(
    config: &Config,
    i: usize,
    is_local: bool,
    sizes: &Sizes,
    builder: &mut Builder,
) -> Result<Block> {
    let (hidden, inner, heads) = (sizes.hidden, sizes.inner, sizes.heads);
    let width = hidden / heads;
    let name = format!("model.layers.{i}");
    let site = 8 * i as u64;
    let attention_bias = config.flag_or("attention_bias", false)?;
    let mlp_bias = config.flag_or("mlp_bias", false)?;
    // The embeddings are already normalized.
    let attention_norm = match i {
        0 => None,
        _ => Some(norm(config, &format!("{name}.attn_norm"), hidden, builder)?),
    };
    let rope = rope(config, is_local, width)?;
    // Half of the window lies on each side.
    let reach = config.size_or("local_attention", 128)? / 2;
    let fused = builder.linear(&format!("{name}.attn.Wqkv"), hidden, 3 * hidden, attention_bias)?;
    let attention = Attention {
        projections: Projections::Fused(Box::new(fused)),
        output: builder.linear(&format!("{name}.attn.Wo"), hidden, hidden, attention_bias)?,
        heads,
        key_heads: heads,
        width,
        causal: false,
        head_norms: None,
        relative: None,
        scores: Scores {
            scale: rope.scale(width),
            window: is_local.then_some(reach + 1),
            soft_cap: None,
        },
        rotary: Some(rope.frequencies),
        dropout: 0.0,
        site: site + 2,
    };
    Ok(Block {
        order: NormOrder::Before,
        attention_norm,
        attention,
        attention_output_norm: None,
        attention_adapter: None,
        feed_forward_norm: norm(config, &format!("{name}.mlp_norm"), hidden, builder)?,
        feed_forward: FeedForward {
            gate: Gate::Fused,
            up: builder.linear(&format!("{name}.mlp.Wi"), hidden, 2 * inner, mlp_bias)?,
            down: builder.linear(&format!("{name}.mlp.Wo"), inner, hidden, mlp_bias)?,
            activation: config.activation("hidden_activation", "gelu")?,
        },
        feed_forward_output_norm: None,
        feed_forward_adapter: None,
        dropout: 0.0,
        site,
        name,
    })
}
