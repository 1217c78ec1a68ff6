//! DistilBERT: BERT without segment embeddings and pooler, and with different tensor names.

use super::heads::{self, MaskedHead};
use super::post_norm::{Names, PostNorm};
use super::{Builder, Sizes};
use crate::folder::Config;
use crate::layer::embedding::Embeddings;
use crate::{Network, Result, TaskHead};
use undertone_tensor::{Activation, Scores};

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
        prompt: None,
        tokens: builder.tensor(&table("word"), &[sizes.vocabulary, hidden])?,
        scale: 1.0,
        positions: Some((builder.tensor(&table("position"), &[sizes.positions, hidden])?, 0)),
        segments: None,
        norm: Some(builder.layer_norm("distilbert.embeddings.LayerNorm", hidden, EPSILON)?),
        dropout,
    };
    let blocks = PostNorm {
        stem: "distilbert.transformer.layer",
        names: Names {
            projections: ["attention.q_lin", "attention.k_lin", "attention.v_lin"],
            attention_output: "attention.out_lin",
            attention_norm: "sa_layer_norm",
            up: "ffn.lin1",
            down: "ffn.lin2",
            norm: "output_layer_norm",
        },
        width,
        epsilon: EPSILON,
        dropout,
        attention_dropout,
        activation,
        relative: None,
        scores: Scores::default(),
    };
    let blocks = blocks.blocks(&sizes, builder)?;
    builder.begin_head();
    let shape = [hidden, classes];
    let head = match task_head {
        TaskHead::SequenceClassification => {
            let names = ["pre_classifier", "classifier"];
            let dropout = config.dropout_or_zero("seq_classif_dropout")?;
            heads::sequence_classifier(names, Activation::Relu, shape, dropout, builder)?
        }
        TaskHead::MaskedLanguageModel => {
            let head = MaskedHead {
                dense: "vocab_transform",
                activation,
                norm: "vocab_layer_norm",
                epsilon: EPSILON,
                out: "vocab_projector",
                bias: "vocab_projector.bias",
            };
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
