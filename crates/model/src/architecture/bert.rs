//! BERT.

use super::heads::{self, MaskedHead};
use super::post_norm::{Names, PostNorm};
use super::{Builder, Sizes};
use crate::folder::Config;
use crate::layer::block::Block;
use crate::layer::embedding::Embeddings;
use crate::{Network, Result, TaskHead};
use undertone_tensor::{Activation, Scores};

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = sizes(config)?;
    let (embeddings, blocks) = encoder("bert", config, &sizes, 0, builder)?;
    builder.begin_head();
    let dropout = classifier_dropout(config)?;
    let shape = [sizes.hidden, classes];
    let head = match task_head {
        TaskHead::SequenceClassification => {
            let names = ["bert.pooler.dense", "classifier"];
            heads::sequence_classifier(names, Activation::Tanh, shape, dropout, builder)?
        }
        TaskHead::MaskedLanguageModel => {
            let epsilon = config.epsilon_or("layer_norm_eps", 1e-12)?;
            masked_head(config, epsilon)?.build(config, &sizes, embeddings.tokens, builder)?
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

/// The masked language modeling head of BERT, and of DeBERTa in its transformers implementation.
pub(super) fn masked_head(config: &Config, epsilon: f32) -> Result<MaskedHead> {
    Ok(MaskedHead {
        dense: "cls.predictions.transform.dense",
        activation: config.activation("hidden_act", "gelu")?,
        norm: "cls.predictions.transform.LayerNorm",
        epsilon,
        out: "cls.predictions.decoder",
        bias: "cls.predictions.bias",
    })
}

pub(super) fn sizes(config: &Config) -> Result<Sizes> {
    Sizes {
        vocabulary: config.size("vocab_size")?,
        hidden: config.size("hidden_size")?,
        layers: config.size("num_hidden_layers")?,
        heads: config.size("num_attention_heads")?,
        inner: config.size("intermediate_size")?,
        positions: config.size("max_position_embeddings")?,
    }
    .checked(config)
}

pub(super) fn classifier_dropout(config: &Config) -> Result<f32> {
    match config.as_map().get("classifier_dropout") {
        Some(value) if !value.is_null() => config.dropout_or_zero("classifier_dropout"),
        _ => config.dropout_or_zero("hidden_dropout_prob"),
    }
}

/// Embeddings and encoder blocks. RoBERTa shares them, with a different `first_position`.
pub(super) fn encoder(
    prefix: &str,
    config: &Config,
    sizes: &Sizes,
    first_position: u32,
    builder: &mut Builder,
) -> Result<(Embeddings, Vec<Block>)> {
    if config.text("position_embedding_type")?.is_some_and(|kind| kind != "absolute") {
        return Err(config.error("position_embedding_type must be \"absolute\""));
    }
    let epsilon = config.epsilon_or("layer_norm_eps", 1e-12)?;
    let (hidden, width) = (sizes.hidden, sizes.head_width(config)?);
    let segments = config.size_or("type_vocab_size", 2)?;
    let dropout = config.dropout_or_zero("hidden_dropout_prob")?;
    let attention_dropout = config.dropout_or_zero("attention_probs_dropout_prob")?;
    let activation = config.activation("hidden_act", "gelu")?;
    let table = |name: &str| format!("{prefix}.embeddings.{name}_embeddings.weight");
    let embeddings = Embeddings {
        prompt: None,
        tokens: builder.tensor(&table("word"), &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: Some((
            builder.tensor(&table("position"), &[sizes.positions, hidden])?,
            first_position,
        )),
        segments: Some(builder.tensor(&table("token_type"), &[segments, hidden])?),
        norm: Some(builder.layer_norm(
            &format!("{prefix}.embeddings.LayerNorm"),
            hidden,
            epsilon,
        )?),
        dropout,
    };
    let stem = format!("{prefix}.encoder.layer");
    let blocks = PostNorm {
        stem: &stem,
        names: Names {
            projections: ["attention.self.query", "attention.self.key", "attention.self.value"],
            attention_output: "attention.output.dense",
            attention_norm: "attention.output.LayerNorm",
            up: "intermediate.dense",
            down: "output.dense",
            norm: "output.LayerNorm",
        },
        width,
        epsilon,
        dropout,
        attention_dropout,
        activation,
        relative: None,
        scores: Scores::default(),
    };
    Ok((embeddings, blocks.blocks(sizes, builder)?))
}
