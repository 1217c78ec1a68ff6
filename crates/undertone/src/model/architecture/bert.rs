//! BERT.

use super::{Builder, Sizes};
use crate::model::folder::Config;
use crate::model::layer::attention::{Attention, Projections};
use crate::model::layer::block::{Block, NormOrder};
use crate::model::layer::embedding::Embeddings;
use crate::model::layer::feed_forward::{FeedForward, Gate};
use crate::model::layer::head::{Head, Pick};
use crate::model::layer::linear::Linear;
use crate::model::parameters::ParameterId;
use crate::model::{Network, Result, TaskHead};
use crate::tensor::{Activation, Scores};

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
    let head = match task_head {
        TaskHead::SequenceClassification => {
            let pooler = builder.linear("bert.pooler.dense", sizes.hidden, sizes.hidden, true)?;
            let out = builder.linear("classifier", sizes.hidden, classes, true)?;
            Head {
                task_head,
                pick: Pick::First,
                dense: Some((pooler, Activation::Tanh)),
                norm: None,
                dropout,
                out,
                soft_cap: None,
            }
        }
        TaskHead::MaskedLanguageModel => {
            let epsilon = config.epsilon_or("layer_norm_eps", 1e-12)?;
            masked_head(config, &sizes, epsilon, CLS_PREDICTIONS, embeddings.tokens, builder)?
        }
        _ => token_classifier(task_head, sizes.hidden, classes, dropout, builder)?,
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

/// Names of the parts of a masked language modelling head: the prefix of its dense layer and
/// normalisation, the output layer and its bias.
pub(super) type MaskedHeadNames = (&'static str, &'static str, &'static str);

pub(super) const CLS_PREDICTIONS: MaskedHeadNames =
    ("cls.predictions.transform", "cls.predictions.decoder", "cls.predictions.bias");

/// Masked language modelling head: dense layer, activation, LayerNorm, and the vocabulary.
pub(super) fn masked_head(
    config: &Config,
    sizes: &Sizes,
    epsilon: f32,
    (transform, out, bias): MaskedHeadNames,
    tokens: ParameterId,
    builder: &mut Builder,
) -> Result<Head> {
    let hidden = sizes.hidden;
    let dense = builder.linear(&format!("{transform}.dense"), hidden, hidden, true)?;
    let norm = builder.layer_norm(&format!("{transform}.LayerNorm"), hidden, epsilon)?;
    Ok(Head {
        task_head: TaskHead::MaskedLanguageModel,
        pick: Pick::Tokens,
        dense: Some((dense, config.activation("hidden_act", "gelu")?)),
        norm: Some(norm),
        dropout: 0.0,
        out: vocabulary_layer(config, builder, (out, bias), sizes, tokens)?,
        soft_cap: None,
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

/// Embeddings and encoder blocks. RoBERTa shares them, with another `first_position`.
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
    let mut blocks = Vec::new();
    for i in 0..sizes.layers {
        let name = format!("{prefix}.encoder.layer.{i}");
        let site = 8 * i as u64;
        let mut projection = |which: &str| {
            builder.linear(&format!("{name}.attention.self.{which}"), hidden, hidden, true)
        };
        let projections = Projections::Split(Box::new([
            projection("query")?,
            projection("key")?,
            projection("value")?,
        ]));
        blocks.push(Block {
            order: NormOrder::After,
            attention: Attention {
                projections,
                output: builder.linear(
                    &format!("{name}.attention.output.dense"),
                    hidden,
                    hidden,
                    true,
                )?,
                heads: sizes.heads,
                key_heads: sizes.heads,
                width,
                causal: false,
                head_norms: None,
                rotary: None,
                relative: None,
                scores: Scores::default(),
                dropout: attention_dropout,
                site: site + 2,
            },
            attention_norm: Some(builder.layer_norm(
                &format!("{name}.attention.output.LayerNorm"),
                hidden,
                epsilon,
            )?),
            attention_output_norm: None,
            attention_adapter: None,
            feed_forward: FeedForward {
                gate: Gate::Absent,
                up: builder.linear(
                    &format!("{name}.intermediate.dense"),
                    hidden,
                    sizes.inner,
                    true,
                )?,
                down: builder.linear(&format!("{name}.output.dense"), sizes.inner, hidden, true)?,
                activation,
            },
            feed_forward_norm: builder.layer_norm(
                &format!("{name}.output.LayerNorm"),
                hidden,
                epsilon,
            )?,
            feed_forward_output_norm: None,
            feed_forward_adapter: None,
            dropout,
            site,
            name,
        });
    }
    Ok((embeddings, blocks))
}

/// Token classification head: a linear layer on every token.
pub(super) fn token_classifier(
    task_head: TaskHead,
    hidden: usize,
    classes: usize,
    dropout: f32,
    builder: &mut Builder,
) -> Result<Head> {
    let out = builder.linear("classifier", hidden, classes, true)?;
    Ok(Head {
        task_head,
        pick: Pick::Tokens,
        dense: None,
        norm: None,
        dropout,
        out,
        soft_cap: None,
    })
}

/// Language modelling layer, from hidden states to vocabulary logits; its weight is tied to the
/// token embeddings unless the configuration says otherwise.
pub(super) fn vocabulary_layer(
    config: &Config,
    builder: &mut Builder,
    (name, bias): (&str, &str),
    sizes: &Sizes,
    tokens: ParameterId,
) -> Result<Linear> {
    let weight = if config.flag_or("tie_word_embeddings", true)? {
        tokens
    } else {
        builder.tensor(&format!("{name}.weight"), &[sizes.vocabulary, sizes.hidden])?
    };
    Ok(Linear {
        name: name.to_owned(),
        weight,
        bias: Some(builder.tensor(bias, &[sizes.vocabulary])?),
        inputs: sizes.hidden,
        outputs: sizes.vocabulary,
        inputs_first: false,
        parts: &[],
        lora: Vec::new(),
        rescaling: None,
    })
}
