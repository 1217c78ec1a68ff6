//! RoBERTa: BERT's encoder with positions that begin after the padding token's, and heads of its
//! own.

use super::{Builder, Sizes, bert};
use crate::model::folder::Config;
use crate::model::layer::head::{Head, Pick};
use crate::model::parameters::ParameterId;
use crate::model::{Network, Result, TaskHead};
use crate::tensor::Activation;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = bert::sizes(config)?;
    let first_position = config.index_or("pad_token_id", 1)?.saturating_add(1);
    let Some(max_positions) =
        sizes.positions.checked_sub(first_position as usize).filter(|&n| n > 0)
    else {
        return Err(config.error("max_position_embeddings leaves no position after pad_token_id"));
    };
    let (embeddings, blocks) = bert::encoder("roberta", config, &sizes, first_position, builder)?;
    builder.begin_head();
    let head = head(config, task_head, classes, &sizes, embeddings.tokens, builder)?;
    let vocabulary = sizes.vocabulary;
    Ok(Network {
        embeddings,
        blocks,
        last_norm: None,
        head,
        sanitiser: None,
        vocabulary,
        max_positions,
    })
}

/// Task heads of RoBERTa and MPNet.
pub(super) fn head(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    sizes: &Sizes,
    tokens: ParameterId,
    builder: &mut Builder,
) -> Result<Head> {
    let dropout = bert::classifier_dropout(config)?;
    Ok(match task_head {
        TaskHead::SequenceClassification => {
            let dense = builder.linear("classifier.dense", sizes.hidden, sizes.hidden, true)?;
            let out = builder.linear("classifier.out_proj", sizes.hidden, classes, true)?;
            Head {
                task_head,
                pick: Pick::First,
                dense: Some((dense, Activation::Tanh)),
                norm: None,
                dropout,
                out,
                soft_cap: None,
            }
        }
        TaskHead::MaskedLanguageModel => {
            let dense = builder.linear("lm_head.dense", sizes.hidden, sizes.hidden, true)?;
            let epsilon = config.epsilon_or("layer_norm_eps", 1e-12)?;
            let norm = builder.layer_norm("lm_head.layer_norm", sizes.hidden, epsilon)?;
            let names = ("lm_head.decoder", "lm_head.bias");
            let out = bert::vocabulary_layer(config, builder, names, sizes, tokens)?;
            let dense = Some((dense, Activation::Gelu));
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
        _ => bert::token_classifier(task_head, sizes.hidden, classes, dropout, builder)?,
    })
}
