//! RoBERTa: BERT's encoder with positions that start after the padding token's, and its own heads.

use super::heads::{self, MaskedHead};
use super::{Builder, Sizes, bert};
use crate::folder::Config;
use crate::layer::head::Head;
use crate::parameters::ParameterId;
use crate::{Network, Result, TaskHead};
use undertone_tensor::Activation;

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
        sanitizer: None,
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
    let shape = [sizes.hidden, classes];
    match task_head {
        TaskHead::SequenceClassification => {
            let names = ["classifier.dense", "classifier.out_proj"];
            heads::sequence_classifier(names, Activation::Tanh, shape, dropout, builder)
        }
        TaskHead::MaskedLanguageModel => {
            let head = MaskedHead {
                dense: "lm_head.dense",
                activation: Activation::Gelu,
                norm: "lm_head.layer_norm",
                epsilon: config.epsilon_or("layer_norm_eps", 1e-12)?,
                out: "lm_head.decoder",
                bias: "lm_head.bias",
            };
            head.build(config, sizes, tokens, builder)
        }
        _ => heads::token_classifier(shape, dropout, builder),
    }
}
