//! GPT-2: pre-layer normalization, weights stored as `[inputs, outputs]`, and one fused weight for
//! queries, keys and values.

use super::{Builder, Sizes};
use crate::folder::Config;
use crate::layer::attention::{Attention, Projections};
use crate::layer::block::{Block, NormOrder};
use crate::layer::embedding::Embeddings;
use crate::layer::feed_forward::{FeedForward, Gate};
use crate::layer::head::{Head, Pick};
use crate::layer::linear::Linear;
use crate::parameters::ParameterId;
use crate::{Network, Result, TaskHead};
use undertone_tensor::Scores;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let hidden = config.size("n_embd")?;
    let sizes = Sizes {
        vocabulary: config.size("vocab_size")?,
        hidden,
        layers: config.size("n_layer")?,
        heads: config.size("n_head")?,
        inner: config.size_or("n_inner", 4 * hidden)?,
        positions: config.size("n_positions")?,
    }
    .checked(config)?;
    if !config.flag_or("scale_attn_weights", true)?
        || config.flag_or("scale_attn_by_inverse_layer_idx", false)?
    {
        return Err(config.error(
            "attention scores must be scaled by 1/√head width alone: scale_attn_weights must be \
             true and scale_attn_by_inverse_layer_idx false",
        ));
    }
    let width = sizes.head_width(config)?;
    let epsilon = config.epsilon_or("layer_norm_epsilon", 1e-5)?;
    let dropout = config.dropout_or_zero("resid_pdrop")?;
    let attention_dropout = config.dropout_or_zero("attn_pdrop")?;
    let activation = config.activation("activation_function", "gelu_new")?;
    let embeddings = Embeddings {
        prompt: None,
        tokens: builder.tensor("transformer.wte.weight", &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: Some((builder.tensor("transformer.wpe.weight", &[sizes.positions, hidden])?, 0)),
        segments: None,
        norm: None,
        dropout: config.dropout_or_zero("embd_pdrop")?,
    };
    let mut blocks = Vec::new();
    for i in 0..sizes.layers {
        let name = format!("transformer.h.{i}");
        let site = 8 * i as u64;
        blocks.push(Block {
            order: NormOrder::Before,
            attention_norm: Some(builder.layer_norm(&format!("{name}.ln_1"), hidden, epsilon)?),
            attention: Attention {
                projections: Projections::Fused(Box::new(Linear {
                    parts: &["query", "key", "value"],
                    ..builder.conv1d(&format!("{name}.attn.c_attn"), hidden, 3 * hidden)?
                })),
                output: builder.conv1d(&format!("{name}.attn.c_proj"), hidden, hidden)?,
                heads: sizes.heads,
                key_heads: sizes.heads,
                width,
                causal: true,
                head_norms: None,
                rotary: None,
                relative: None,
                scores: Scores::default(),
                dropout: attention_dropout,
                site: site + 2,
            },
            attention_output_norm: None,
            attention_adapter: None,
            feed_forward_norm: builder.layer_norm(&format!("{name}.ln_2"), hidden, epsilon)?,
            feed_forward: FeedForward {
                gate: Gate::Absent,
                up: builder.conv1d(&format!("{name}.mlp.c_fc"), hidden, sizes.inner)?,
                down: builder.conv1d(&format!("{name}.mlp.c_proj"), sizes.inner, hidden)?,
                activation,
            },
            feed_forward_output_norm: None,
            feed_forward_adapter: None,
            dropout,
            site,
            name,
        });
    }
    let last_norm = Some(builder.layer_norm("transformer.ln_f", hidden, epsilon)?);
    builder.begin_head();
    let tied = config.flag_or("tie_word_embeddings", true)?.then_some(embeddings.tokens);
    let head = decoder_head(task_head, classes, &sizes, tied, builder)?;
    Ok(Network {
        embeddings,
        blocks,
        last_norm,
        head,
        vocabulary: sizes.vocabulary,
        sanitizer: None,
        max_positions: sizes.positions,
    })
}

/// Task heads of decoders. Only the token classification head has a bias.
pub(super) fn decoder_head(
    task_head: TaskHead,
    classes: usize,
    sizes: &Sizes,
    tied: Option<ParameterId>,
    builder: &mut Builder,
) -> Result<Head> {
    let (pick, out) = match task_head {
        TaskHead::SequenceClassification => {
            (Pick::Last, builder.linear("score", sizes.hidden, classes, false)?)
        }
        TaskHead::CausalLanguageModel => {
            let out = match tied {
                None => builder.linear("lm_head", sizes.hidden, sizes.vocabulary, false)?,
                Some(weight) => Linear {
                    name: "lm_head".into(),
                    weight,
                    bias: None,
                    inputs: sizes.hidden,
                    outputs: sizes.vocabulary,
                    inputs_first: false,
                    parts: &[],
                    lora: Vec::new(),
                    rescaling: None,
                },
            };
            (Pick::Tokens, out)
        }
        _ => {
            let name = if builder.has("score.weight") { "score" } else { "classifier" };
            (Pick::Tokens, builder.linear(name, sizes.hidden, classes, true)?)
        }
    };
    Ok(Head { task_head, pick, dense: None, norm: None, dropout: 0.0, out, soft_cap: None })
}
