//! Randomly initialized models, for benchmarks, tests and training from scratch.

use super::{Architecture, Builder};
use crate::folder::{Config, Random};
use crate::{Model, Result, TaskHead};
use serde_json::json;
use undertone_settings::Quantize;
use undertone_tensor::Matrix;

#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Number of transformer blocks.
    pub layers: usize,
    /// Hidden size.
    pub hidden: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Intermediate size of the feed-forward network.
    pub inner: usize,
    /// Vocabulary size, in tokens.
    pub vocabulary: usize,
    /// Maximum sequence length, in tokens.
    pub positions: usize,
    /// Number of key and value heads (Llama); by default the number of query heads.
    pub key_heads: Option<usize>,
}

impl Architecture {
    /// A configuration with these dimensions, without dropout.
    pub fn config(self, d: Dimensions, labels: &[String]) -> Config {
        let keys = match self {
            Self::Bert | Self::Roberta | Self::XlmRoberta | Self::Camembert => json!({
                "model_type": self.model_type(), "vocab_size": d.vocabulary,
                "hidden_size": d.hidden, "num_hidden_layers": d.layers,
                "num_attention_heads": d.heads, "intermediate_size": d.inner,
                "max_position_embeddings": d.positions + if self == Self::Bert { 0 } else { 2 },
                "type_vocab_size": if self == Self::Bert { 2 } else { 1 },
                "pad_token_id": if self == Self::Bert { 0 } else { 1 },
                "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            }),
            Self::DistilBert => json!({
                "model_type": "distilbert", "vocab_size": d.vocabulary, "dim": d.hidden,
                "n_layers": d.layers, "n_heads": d.heads, "hidden_dim": d.inner,
                "max_position_embeddings": d.positions, "activation": "gelu",
                "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0,
            }),
            Self::Gpt2 => json!({
                "model_type": "gpt2", "vocab_size": d.vocabulary, "n_embd": d.hidden,
                "n_layer": d.layers, "n_head": d.heads, "n_inner": d.inner,
                "n_positions": d.positions,
                "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
            }),
            Self::MpNet => json!({
                "model_type": self.model_type(), "vocab_size": d.vocabulary,
                "hidden_size": d.hidden, "num_hidden_layers": d.layers,
                "num_attention_heads": d.heads, "intermediate_size": d.inner,
                "max_position_embeddings": d.positions + 2, "hidden_act": "gelu",
                "layer_norm_eps": 1e-12,
                "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            }),
            Self::Deberta => json!({
                "model_type": self.model_type(), "vocab_size": d.vocabulary,
                "hidden_size": d.hidden, "num_hidden_layers": d.layers,
                "num_attention_heads": d.heads, "intermediate_size": d.inner,
                "max_position_embeddings": d.positions, "hidden_act": "gelu",
                "layer_norm_eps": 1e-7, "relative_attention": true, "share_att_key": true,
                "position_buckets": (d.positions / 2).max(4), "max_relative_positions": -1,
                "pos_att_type": "p2c|c2p", "norm_rel_ebd": "layer_norm",
                "position_biased_input": false, "type_vocab_size": 0,
                "pooler_hidden_act": "gelu", "pooler_dropout": 0,
                "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            }),
            Self::ModernBert => json!({
                "model_type": self.model_type(), "vocab_size": d.vocabulary,
                "hidden_size": d.hidden, "num_hidden_layers": d.layers,
                "num_attention_heads": d.heads, "intermediate_size": d.inner,
                "max_position_embeddings": d.positions, "hidden_activation": "gelu",
                "norm_eps": 1e-5, "local_attention": 128, "classifier_pooling": "mean",
                "global_attn_every_n_layers": 3,
            }),
            Self::Gemma2 | Self::Gemma3 => json!({
                "model_type": self.model_type(),
                "vocab_size": d.vocabulary, "hidden_size": d.hidden,
                "num_hidden_layers": d.layers, "num_attention_heads": d.heads,
                "num_key_value_heads": d.key_heads.unwrap_or(d.heads),
                "head_dim": (d.hidden / d.heads.max(1)).max(1),
                "query_pre_attn_scalar": (d.hidden / d.heads.max(1)).max(1),
                "intermediate_size": d.inner, "max_position_embeddings": d.positions,
                "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
                "sliding_window": 1024, "tie_word_embeddings": true,
            }),
            Self::Llama
            | Self::SmolLm3
            | Self::Mistral
            | Self::Qwen2
            | Self::Qwen3
            | Self::Phi3 => json!({
                "model_type": self.model_type(),
                "vocab_size": d.vocabulary, "hidden_size": d.hidden,
                "num_hidden_layers": d.layers, "num_attention_heads": d.heads,
                "num_key_value_heads": d.key_heads.unwrap_or(d.heads),
                "intermediate_size": d.inner, "max_position_embeddings": d.positions,
                "hidden_act": "silu", "rms_norm_eps": 1e-5,
                "tie_word_embeddings": true,
            }),
        };
        let mut config = Config::from_value(keys);
        if !labels.is_empty() {
            config.set_labels(labels);
        }
        config
    }

    /// A randomly initialized model with these dimensions.
    pub fn random(
        self,
        d: Dimensions,
        task_head: TaskHead,
        labels: &[String],
        seed: u64,
    ) -> Result<Model> {
        let config = self.config(d, labels);
        self.random_from(&mut Random::new(seed, 0.02), config, task_head, labels.len(), None)
    }

    /// A model of this configuration whose parameters are drawn from `source`, with the weights of
    /// linear layers optionally quantized.
    pub fn random_from(
        self,
        source: &mut Random,
        mut config: Config,
        task_head: TaskHead,
        classes: usize,
        quantize: Option<Quantize>,
    ) -> Result<Model> {
        if let Some(class) = self.class_name(task_head) {
            config.set("architectures", json!([class]));
        }
        let mut builder = Builder::new(source, 0).quantized(quantize);
        let network = self.build(&config, task_head, classes.max(1), &mut builder)?;
        let (mut parameters, fresh) = (builder.parameters, builder.fresh);
        if matches!(self, Self::Gemma2 | Self::Gemma3) {
            // Gemma stores γ − 1, so a scale of 1 is stored as 0.
            for (_, norm) in parameters.iter_mut().filter(|(_, p)| p.name.ends_with("norm.weight"))
            {
                norm.value = Matrix::zeros(1, norm.value.columns());
            }
        }
        let mut model = Model::new(config, network, parameters, fresh);
        model.quantize = quantize;
        Ok(model)
    }
}
