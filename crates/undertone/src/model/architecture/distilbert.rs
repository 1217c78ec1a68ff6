//! DistilBERT: BERT without segment embeddings and pooler, with other tensor names.

use super::{Builder, Sizes, bert};
use crate::model::folder::Config;
use crate::model::layer::attention::{Attention, Projections};
use crate::model::layer::block::{Block, NormOrder};
use crate::model::layer::embedding::Embeddings;
use crate::model::layer::feed_forward::{FeedForward, Gate};
use crate::model::layer::head::{Head, Pick};
use crate::model::{Network, Result, TaskHead};
use crate::tensor::{Activation, Scores};

/// LayerNorm's ε, fixed in this architecture.
const EPSILON: f32 = 1e-12;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = Sizes {
        vocabulary: config.size("vocab_size")?,
        hidden: config.size("dim")?,
        layers: config.size("n_layers")?,
        heads: config.size("n_heads")?,
        inner: config.size("hidden_dim")?,
        positions: config.size("max_position_embeddings")?,
    }
    .checked(config)?;
    let (hidden, width) = (sizes.hidden, sizes.head_width(config)?);
    let dropout = config.dropout_or_zero("dropout")?;
    let attention_dropout = config.dropout_or_zero("attention_dropout")?;
    let activation = config.activation("activation", "gelu")?;
    let table = |name: &str| format!("distilbert.embeddings.{name}_embeddings.weight");
    let embeddings = Embeddings {
        tokens: builder.tensor(&table("word"), &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: Some((builder.tensor(&table("position"), &[sizes.positions, hidden])?, 0)),
        segments: None,
        norm: Some(builder.layer_norm("distilbert.embeddings.LayerNorm", hidden, EPSILON)?),
        dropout,
    };
    let mut blocks = Vec::new();
    for i in 0..sizes.layers {
        let name = format!("distilbert.transformer.layer.{i}");
        let site = 8 * i as u64;
        let mut projection = |which: &str| {
            builder.linear(&format!("{name}.attention.{which}"), hidden, hidden, true)
        };
        let projections = Projections::Split(Box::new([
            projection("q_lin")?,
            projection("k_lin")?,
            projection("v_lin")?,
        ]));
        blocks.push(Block {
            order: NormOrder::After,
            attention: Attention {
                projections,
                output: builder.linear(
                    &format!("{name}.attention.out_lin"),
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
                &format!("{name}.sa_layer_norm"),
                hidden,
                EPSILON,
            )?),
            attention_output_norm: None,
            attention_adapter: None,
            feed_forward: FeedForward {
                gate: Gate::Absent,
                up: builder.linear(&format!("{name}.ffn.lin1"), hidden, sizes.inner, true)?,
                down: builder.linear(&format!("{name}.ffn.lin2"), sizes.inner, hidden, true)?,
                activation,
            },
            feed_forward_norm: builder.layer_norm(
                &format!("{name}.output_layer_norm"),
                hidden,
                EPSILON,
            )?,
            feed_forward_output_norm: None,
            feed_forward_adapter: None,
            dropout,
            site,
            name,
        });
    }
    builder.begin_head();
    let head = match task_head {
        TaskHead::SequenceClassification => {
            let dense = builder.linear("pre_classifier", hidden, hidden, true)?;
            let out = builder.linear("classifier", hidden, classes, true)?;
            let dropout = config.dropout_or_zero("seq_classif_dropout")?;
            Head {
                task_head,
                pick: Pick::First,
                dense: Some((dense, Activation::Relu)),
                norm: None,
                dropout,
                out,
                soft_cap: None,
            }
        }
        TaskHead::MaskedLanguageModel => {
            let dense = builder.linear("vocab_transform", hidden, hidden, true)?;
            let norm = builder.layer_norm("vocab_layer_norm", hidden, EPSILON)?;
            let names = ("vocab_projector", "vocab_projector.bias");
            let out = bert::vocabulary_layer(config, builder, names, &sizes, embeddings.tokens)?;
            let dense = Some((dense, activation));
            Head {
                task_head,
                pick: Pick::Tokens,
                dense,
                norm: Some(norm),
                dropout: 0.0,
                out,
                soft_cap: None,
            }
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
