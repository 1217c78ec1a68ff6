//! Task heads of encoders: sequence and token classification, and masked language modeling.

use super::{Builder, Sizes};
use crate::folder::Config;
use crate::layer::head::{Head, Pick};
use crate::layer::linear::Linear;
use crate::parameters::ParameterId;
use crate::{Result, TaskHead};
use undertone_tensor::Activation;

/// Sequence classification from the first token: a dense layer with its activation, then the output
/// layer.
pub(super) fn sequence_classifier(
    [dense, out]: [&str; 2],
    activation: Activation,
    [hidden, classes]: [usize; 2],
    dropout: f32,
    builder: &mut Builder,
) -> Result<Head> {
    Ok(Head {
        task_head: TaskHead::SequenceClassification,
        pick: Pick::First,
        dense: Some((builder.linear(dense, hidden, hidden, true)?, activation)),
        norm: None,
        dropout,
        out: builder.linear(out, hidden, classes, true)?,
        soft_cap: None,
    })
}

/// Token classification: a linear layer.
pub(super) fn token_classifier(
    [hidden, classes]: [usize; 2],
    dropout: f32,
    builder: &mut Builder,
) -> Result<Head> {
    Ok(Head {
        task_head: TaskHead::TokenClassification,
        pick: Pick::Tokens,
        dense: None,
        norm: None,
        dropout,
        out: builder.linear("classifier", hidden, classes, true)?,
        soft_cap: None,
    })
}

/// Masked language modeling: dense layer, activation, LayerNorm and the vocabulary layer.
pub(super) struct MaskedHead {
    pub dense: &'static str,
    pub activation: Activation,
    pub norm: &'static str,
    /// ε of the normalization.
    pub epsilon: f32,
    /// Name of the output layer; `bias` is the full name of its bias.
    pub out: &'static str,
    pub bias: &'static str,
}

impl MaskedHead {
    /// Builds the head; `tokens` are the token embeddings, to which the output layer may be tied.
    pub fn build(
        self,
        config: &Config,
        sizes: &Sizes,
        tokens: ParameterId,
        builder: &mut Builder,
    ) -> Result<Head> {
        let hidden = sizes.hidden;
        Ok(Head {
            task_head: TaskHead::MaskedLanguageModel,
            pick: Pick::Tokens,
            dense: Some((builder.linear(self.dense, hidden, hidden, true)?, self.activation)),
            norm: Some(builder.layer_norm(self.norm, hidden, self.epsilon)?),
            dropout: 0.0,
            out: vocabulary_layer(config, builder, (self.out, self.bias), sizes, tokens)?,
            soft_cap: None,
        })
    }
}

/// Language modeling layer, from hidden states to vocabulary logits; its weight is tied to the
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
