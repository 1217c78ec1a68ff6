//! Llama-style decoders: RMSNorm, rotary position embeddings (RoPE), grouped-query attention, gated
//! feed-forward (SwiGLU).

use super::{Builder, Sizes, gpt2};
use crate::model::folder::Config;
use crate::model::layer::attention::{Attention, Projections};
use crate::model::layer::block::{Block, NormOrder};
use crate::model::layer::embedding::Embeddings;
use crate::model::layer::feed_forward::FeedForward;
use crate::model::layer::head_norms::HeadNorms;
use crate::model::{Network, Result, TaskHead};
use serde_json::Value;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let attention_bias = config.flag_or("attention_bias", false)?;
    let parts = Parts {
        projection_bias: attention_bias,
        output_bias: attention_bias,
        mlp_bias: config.flag_or("mlp_bias", false)?,
        head_norms: false,
        window: None,
    };
    decoder(config, &parts, task_head, classes, builder)
}

/// What decoders of this family do differently.
pub(super) struct Parts {
    /// Whether the projections of queries, keys and values have biases.
    pub projection_bias: bool,
    /// Whether the output projection of attention has one.
    pub output_bias: bool,
    pub mlp_bias: bool,
    /// Whether each head's queries and keys are normalised.
    pub head_norms: bool,
    /// How many tokens a token sees at most, itself included. Longer sequences are not read, so
    /// that every token sees all before it.
    pub window: Option<usize>,
}

/// The window in a configuration: a number, or none.
pub(super) fn window(config: &Config) -> Result<Option<usize>> {
    match config.as_map().get("sliding_window") {
        Some(value) if !value.is_null() => config.size("sliding_window").map(Some),
        _ => Ok(None),
    }
}

pub(super) fn decoder(
    config: &Config,
    parts: &Parts,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = Sizes {
        vocabulary: config.size("vocab_size")?,
        hidden: config.size("hidden_size")?,
        layers: config.size("num_hidden_layers")?,
        heads: config.size("num_attention_heads")?,
        inner: config.size("intermediate_size")?,
        positions: config.size_or("max_position_embeddings", 2048)?,
    }
    .checked(config)?;
    let hidden = sizes.hidden;
    let width = match config.as_map().get("head_dim") {
        Some(value) if !value.is_null() => config.size("head_dim")?,
        _ => sizes.head_width(config)?,
    };
    let key_heads = config.size_or("num_key_value_heads", sizes.heads)?;
    if !sizes.heads.is_multiple_of(key_heads) || !width.is_multiple_of(2) {
        return Err(config.error(format!(
            "num_attention_heads ({}) must be a multiple of num_key_value_heads ({key_heads}), \
             and the head width ({width}) must be even",
            sizes.heads
        )));
    }
    if sizes.heads.checked_mul(width).is_none_or(|n| n > 1 << 24) {
        return Err(config.error("heads times head_dim is too large"));
    }
    let epsilon = config.epsilon_or("rms_norm_eps", 1e-6)?;
    let mlp_bias = parts.mlp_bias;
    let attention_dropout = config.dropout_or_zero("attention_dropout")?;
    let activation = config.activation("hidden_act", "silu")?;
    let frequencies = frequencies(config, width)?;
    let embeddings = Embeddings {
        tokens: builder.tensor("model.embed_tokens.weight", &[sizes.vocabulary, hidden])?,
        positions: None,
        segments: None,
        norm: None,
        dropout: 0.0,
    };
    let mut blocks = Vec::new();
    for i in 0..sizes.layers {
        let name = format!("model.layers.{i}");
        let site = 8 * i as u64;
        let attention_norm =
            builder.rms_norm(&format!("{name}.input_layernorm"), hidden, epsilon)?;
        let mut projection = |which: &str, heads: usize| {
            builder.linear(
                &format!("{name}.self_attn.{which}_proj"),
                hidden,
                heads * width,
                parts.projection_bias,
            )
        };
        let projections = Projections::Split(Box::new([
            projection("q", sizes.heads)?,
            projection("k", key_heads)?,
            projection("v", key_heads)?,
        ]));
        let head_norms = match parts.head_norms {
            true => Some(HeadNorms {
                queries: builder.rms_norm(&format!("{name}.self_attn.q_norm"), width, epsilon)?,
                keys: builder.rms_norm(&format!("{name}.self_attn.k_norm"), width, epsilon)?,
            }),
            false => None,
        };
        let (from, to) = (sizes.heads * width, hidden);
        let attention = Attention {
            projections,
            output: builder.linear(
                &format!("{name}.self_attn.o_proj"),
                from,
                to,
                parts.output_bias,
            )?,
            heads: sizes.heads,
            key_heads,
            width,
            causal: true,
            head_norms,
            rotary: Some(frequencies.clone()),
            dropout: attention_dropout,
            site: site + 2,
        };
        blocks.push(Block {
            order: NormOrder::Before,
            attention_norm,
            attention,
            attention_adapter: None,
            feed_forward_norm: builder.rms_norm(
                &format!("{name}.post_attention_layernorm"),
                hidden,
                epsilon,
            )?,
            feed_forward: FeedForward {
                gate: Some(builder.linear(
                    &format!("{name}.mlp.gate_proj"),
                    hidden,
                    sizes.inner,
                    mlp_bias,
                )?),
                up: builder.linear(
                    &format!("{name}.mlp.up_proj"),
                    hidden,
                    sizes.inner,
                    mlp_bias,
                )?,
                down: builder.linear(
                    &format!("{name}.mlp.down_proj"),
                    sizes.inner,
                    hidden,
                    mlp_bias,
                )?,
                activation,
            },
            feed_forward_adapter: None,
            dropout: 0.0,
            site,
            name,
        });
    }
    let last_norm = Some(builder.rms_norm("model.norm", hidden, epsilon)?);
    builder.begin_head();
    let tied = config.flag_or("tie_word_embeddings", false)?.then_some(embeddings.tokens);
    let head = gpt2::decoder_head(task_head, classes, &sizes, tied, builder)?;
    Ok(Network {
        embeddings,
        blocks,
        last_norm,
        head,
        vocabulary: sizes.vocabulary,
        sanitiser: None,
        max_positions: parts.window.map_or(sizes.positions, |window| window.min(sizes.positions)),
    })
}

/// RoPE frequency of each pair of features: θ^(−2j/width), possibly scaled for longer contexts.
fn frequencies(config: &Config, width: usize) -> Result<Vec<f32>> {
    let keys = config.as_map();
    // Newer files have rope_parameters; older ones rope_theta and rope_scaling.
    let newer = keys.get("rope_parameters").and_then(Value::as_object);
    let scaling = newer.or_else(|| keys.get("rope_scaling").and_then(Value::as_object));
    let number = |key: &str| scaling.and_then(|map| map.get(key)).and_then(Value::as_f64);
    let theta =
        number("rope_theta").map_or_else(|| config.number_or("rope_theta", 10_000.0), Ok)?;
    if theta.is_nan() || theta <= 1.0 {
        return Err(config.error(format!("rope_theta is {theta}, but must be above 1")));
    }
    let kind = scaling
        .and_then(|map| map.get("rope_type").or_else(|| map.get("type")))
        .and_then(Value::as_str);
    let needed = |key: &str| {
        number(key)
            .filter(|n| *n > 0.0)
            .ok_or_else(|| config.error(format!("rope scaling needs a positive {key}")))
    };
    let plain = (0..width / 2).map(|j| 1.0 / theta.powf(2.0 * j as f64 / width as f64));
    let scaled: Vec<f64> = match kind {
        None | Some("default") => plain.collect(),
        Some("linear") => {
            let factor = needed("factor")?;
            plain.map(|f| f / factor).collect()
        }
        Some("llama3") => {
            let (factor, low, high) =
                (needed("factor")?, needed("low_freq_factor")?, needed("high_freq_factor")?);
            let context = needed("original_max_position_embeddings")?;
            if high <= low {
                return Err(config.error("high_freq_factor must be above low_freq_factor"));
            }
            let stretch = |f: f64| {
                // High frequencies stay, low ones are divided by the factor, and between the two
                // the frequency is interpolated.
                let turns = context * f / std::f64::consts::TAU;
                if turns > high {
                    return f;
                }
                if turns < low {
                    return f / factor;
                }
                let blend = (turns - low) / (high - low);
                (1.0 - blend) * f / factor + blend * f
            };
            plain.map(stretch).collect()
        }
        Some(other) => {
            return Err(config.error(format!(
                "rope scaling {other:?} is unknown; known are default, linear and llama3"
            )));
        }
    };
    Ok(scaled.into_iter().map(|f| f as f32).collect())
}
