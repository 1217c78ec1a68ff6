//! Known keys of `config.json`. A key may change what a model computes, so any key that is neither
//! read by the architecture nor known to be harmless is an error; it is never ignored.

use crate::Result;
use crate::folder::Config;
use serde_json::Value;

/// Keys that never affect the computation here, in any architecture: names, versions, special
/// tokens, and training, caching and generation settings of transformers.
const HARMLESS: &[&str] = &[
    "adapters",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_cutoff_factor",
    "initializer_range",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "language",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "model_type",
    "name",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sentence_transformers",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
];

/// Keys that change the computation and are supported only when disabled.
const MUST_BE_OFF: &[&str] = &[
    "add_cross_attention",
    "cross_attention_hidden_size",
    "is_decoder",
    "is_encoder_decoder",
    "pruned_heads",
    "quantization_config",
    "rope_interleaved",
    "use_bidirectional_attention",
    "use_mrope",
];

pub(super) const BERT: &[&str] = &[
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "position_embedding_type",
    "type_vocab_size",
    "vocab_size",
    // For heads that no supported task uses.
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
];

pub(super) const MPNET: &[&str] = &[
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "relative_attention_num_buckets",
    "vocab_size",
];

pub(super) const DEBERTA: &[&str] = &[
    "attention_probs_dropout_prob",
    "cls_dropout",
    "conv_kernel_size",
    "embedding_size",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "max_relative_positions",
    "norm_rel_ebd",
    "num_attention_heads",
    "num_hidden_layers",
    "pooler_dropout",
    "pooler_hidden_act",
    "pooler_hidden_size",
    "pos_att_type",
    "position_biased_input",
    "position_buckets",
    "relative_attention",
    "share_att_key",
    "type_vocab_size",
    "vocab_size",
    // For the masked language model.
    "legacy",
];

pub(super) const DISTILBERT: &[&str] = &[
    "activation",
    "attention_dropout",
    "dim",
    "dropout",
    "hidden_dim",
    "max_position_embeddings",
    "n_heads",
    "n_layers",
    "seq_classif_dropout",
    "vocab_size",
    // The position table is part of the weights, however it was made.
    "sinusoidal_pos_embds",
    "tie_weights_",
    // For question answering.
    "qa_dropout",
];

pub(super) const GPT2: &[&str] = &[
    "activation_function",
    "attn_pdrop",
    "embd_pdrop",
    "layer_norm_epsilon",
    "n_embd",
    "n_head",
    "n_inner",
    "n_layer",
    "n_positions",
    "resid_pdrop",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "vocab_size",
    "n_ctx",
    // An order of operations that only changes rounding.
    "reorder_and_upcast_attn",
    // For the multiple-choice head.
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
];

/// Keys of Llama's layers, plus any additional ones.
macro_rules! decoder_keys {
    ($($more:literal),* $(,)?) => {
        &[
            "attention_dropout",
            "head_dim",
            "hidden_size",
            "intermediate_size",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "num_key_value_heads",
            "partial_rotary_factor",
            "rms_norm_eps",
            "rope_parameters",
            "rope_scaling",
            "rope_theta",
            "vocab_size",
            $($more),*
        ]
    };
}

pub(super) const LLAMA: &[&str] = decoder_keys!("attention_bias", "hidden_act", "mlp_bias");

pub(super) const MISTRAL: &[&str] = decoder_keys!("hidden_act", "sliding_window");

pub(super) const QWEN2: &[&str] = decoder_keys!(
    "hidden_act",
    "layer_types",
    "max_window_layers",
    "sliding_window",
    "use_sliding_window",
);

pub(super) const QWEN3: &[&str] = decoder_keys!(
    "attention_bias",
    "hidden_act",
    "layer_types",
    "max_window_layers",
    "sliding_window",
    "use_sliding_window",
);

pub(super) const SMOLLM3: &[&str] = decoder_keys!(
    "attention_bias",
    "hidden_act",
    "layer_types",
    "max_window_layers",
    "mlp_bias",
    "no_rope_layer_interval",
    "no_rope_layers",
    "sliding_window",
    "use_sliding_window",
);

pub(super) const GEMMA2: &[&str] = decoder_keys!(
    "attention_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "hidden_act",
    "hidden_activation",
    "layer_types",
    "query_pre_attn_scalar",
    "sliding_window",
    // The same window again, in the files of the larger models.
    "sliding_window_size",
);

pub(super) const GEMMA3: &[&str] = decoder_keys!(
    "attention_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "hidden_activation",
    "layer_types",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "sliding_window",
    "sliding_window_pattern",
);

pub(super) const PHI3: &[&str] = decoder_keys!(
    "attention_bias",
    "embd_pdrop",
    "hidden_act",
    "original_max_position_embeddings",
    "resid_pdrop",
    "sliding_window",
);

pub(super) const MODERNBERT: &[&str] = &[
    "attention_bias",
    "attention_dropout",
    "classifier_activation",
    "classifier_bias",
    "classifier_dropout",
    "classifier_pooling",
    "decoder_bias",
    "embedding_dropout",
    "global_attn_every_n_layers",
    "global_rope_theta",
    "hidden_activation",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "local_attention",
    "local_rope_theta",
    "max_position_embeddings",
    "mlp_bias",
    "mlp_dropout",
    "norm_bias",
    "norm_eps",
    "num_attention_heads",
    "num_hidden_layers",
    "rope_parameters",
    "rope_scaling",
    "vocab_size",
    // How and where transformers computes, which does not change results.
    "deterministic_flash_attn",
    "layer_norm_eps",
    "position_embedding_type",
    "reference_compile",
    "repad_logits_with_grad",
    "sparse_pred_ignore_index",
    "sparse_prediction",
];

/// Whether a value means that a feature is disabled.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::String(_) => false,
    }
}

/// Fails on the first key that is unknown or has an unsupported value.
pub(super) fn check(config: &Config, model_type: &str, keys: &[&str]) -> Result<()> {
    for (key, value) in config.as_map() {
        let name = key.as_str();
        if MUST_BE_OFF.contains(&name) {
            if !is_off(value) {
                return Err(config.error(format!(
                    "{key} is set, which is not supported for a {model_type} model; it must be \
                     absent, null or false"
                )));
            }
            continue;
        }
        // Names that begin with an underscore are internal to transformers, and unsloth's keys
        // identify the tool that saved the file.
        let is_private = name.starts_with('_') || name.starts_with("unsloth");
        let known = HARMLESS.contains(&name) || keys.contains(&name) || is_private;
        if !known && !value.is_null() {
            return Err(config.error(format!(
                "has the key {key:?}, which is unknown for a {model_type} model and may change \
                 what it computes; remove it if it does not"
            )));
        }
    }
    Ok(())
}
