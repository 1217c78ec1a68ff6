//! config.json: a key that changes the computation is either implemented or refused in one
//! sentence, never ignored.

use crate::common::{batch, fixture};
use serde_json::{Value, json};
use std::fs;
use undertone_model::architecture::Architecture;
use undertone_model::folder::{LoadOptions, load};
use undertone_model::{Model, Result};

/// A fixture with some keys of its configuration changed.
fn changed(name: &str, keys: &[(&str, Value)]) -> Result<Model> {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture(name).join(file), folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for (key, value) in keys {
        config[*key] = value.clone();
    }
    fs::write(&path, config.to_string()).unwrap();
    load(folder.path(), &LoadOptions::default())
}

fn refusal(name: &str, keys: &[(&str, Value)]) -> String {
    let said = changed(name, keys).expect_err(&format!("{name} {keys:?}")).to_string();
    assert!(!said.contains('\n') && said.contains("config.json"), "{said}");
    said
}

#[test]
fn unsupported_models_are_refused_by_name_with_the_list() {
    for name in ["mamba", "t5", "gemma3", "mixtral"] {
        let said = refusal("llama-causal-lm", &[("model_type", json!(name))]);
        assert!(said.contains(&format!("{name:?}")) && said.contains("not supported"), "{said}");
        for architecture in Architecture::ALL {
            assert!(said.contains(architecture.model_type()), "{said}");
        }
    }
}

#[test]
fn a_key_that_may_change_the_computation_is_refused() {
    for name in ["bert-classification", "distilbert-masked-lm", "gpt2-causal-lm", "llama-untied"] {
        let said = refusal(name, &[("logit_scale", json!(0.5))]);
        assert!(said.contains("\"logit_scale\"") && said.contains("unknown"), "{said}");
        // A key without a value, a key of another architecture without a value, and keys known to
        // have no effect.
        let harmless = [
            ("logit_scale", Value::Null),
            ("_of_somebody", json!(1)),
            ("unsloth_version", json!("2026")),
            ("torch_dtype", json!("bfloat16")),
            ("use_cache", json!(true)),
            ("is_encoder_decoder", json!(false)),
        ];
        changed(name, &harmless).unwrap();
    }
    // A key of another architecture.
    assert!(refusal("llama-causal-lm", &[("sliding_window", json!(8))]).contains("sliding_window"));
    for (key, value) in [
        ("quantization_config", json!({"quant_method": "awq"})),
        ("is_decoder", json!(true)),
        ("use_bidirectional_attention", json!(true)),
        ("pruned_heads", json!({"0": [1]})),
    ] {
        let said = refusal("bert-classification", &[(key, value)]);
        assert!(said.contains(key) && said.contains("not supported"), "{said}");
    }
}

#[test]
fn a_configuration_of_fewer_layers_than_the_weights_is_refused() {
    for (name, key, tensor) in [
        ("bert-classification", "num_hidden_layers", "encoder.layer.1."),
        ("distilbert-classification", "n_layers", "transformer.layer.1."),
        ("gpt2-causal-lm", "n_layer", "h.1."),
        ("llama-causal-lm", "num_hidden_layers", "model.layers.1."),
        ("mistral-causal-lm", "num_hidden_layers", "model.layers.1."),
    ] {
        let said = refusal(name, &[(key, json!(1))]);
        assert!(said.contains("1 layers") && said.contains(tensor), "{said}");
    }
    // Tensors inside the layers as well: biases that the configuration does not mention.
    let as_mistral = [
        ("model_type", json!("mistral")),
        ("architectures", json!(["MistralForCausalLM"])),
        ("layer_types", Value::Null),
        ("max_window_layers", Value::Null),
        ("use_sliding_window", Value::Null),
    ];
    let said = refusal("qwen2-causal-lm", &as_mistral);
    assert!(said.contains("self_attn.k_proj.bias"), "{said}");
}

#[test]
fn rotary_embeddings_are_built_or_refused_by_name() {
    for (scaling, about) in [
        (json!({"rope_type": "dynamic", "factor": 2.0}), "\"dynamic\""),
        (json!({"rope_type": "linear"}), "factor"),
        (json!({"rope_type": "yarn", "factor": "x"}), "factor"),
        (json!({"rope_type": "longrope", "short_factor": [1.0]}), "short_factor"),
        (json!({"rope_type": "default", "mrope_section": [1]}), "\"mrope_section\""),
        (json!({"rope_type": "default", "partial_rotary_factor": 0.5}), "partial_rotary_factor"),
    ] {
        let said = refusal("llama-untied", &[("rope_parameters", scaling)]);
        assert!(said.contains(about), "{said}");
    }
    let said = refusal("llama-untied", &[("partial_rotary_factor", json!(0.25))]);
    assert!(said.contains("partial_rotary_factor"), "{said}");
}

#[test]
fn what_layers_say_about_themselves_must_fit() {
    let kinds = |kinds: &[&str]| ("layer_types", json!(kinds));
    let (full, sliding) = ("full_attention", "sliding_attention");
    for wrong in [kinds(&[full]), kinds(&[full, "chunked_attention"]), ("layer_types", json!(1))] {
        let said = refusal("gemma3-causal-lm", &[wrong]);
        assert!(said.contains("layer_types") && said.contains("2 layers"), "{said}");
    }
    let said = refusal("smollm3-causal-lm", &[("no_rope_layers", json!([1, 2]))]);
    assert!(said.contains("no_rope_layers"), "{said}");
    assert!(refusal("phi3-causal-lm", &[("attention_bias", json!(true))]).contains("biases"));
    let said = refusal("gemma2-causal-lm", &[("attn_logit_softcapping", json!(-1.0))]);
    assert!(said.contains("attn_logit_softcapping"), "{said}");
    // Each of these changes the computation.
    let name = "gemma3-causal-lm";
    let logits = |keys: &[(&str, Value)]| {
        let model = changed(name, keys).unwrap();
        model.logits(&batch(name, &model), None).unwrap().to_vec().unwrap()
    };
    let stated = logits(&[]);
    for other in [
        kinds(&[sliding, sliding]),
        kinds(&[full, full]),
        ("sliding_window", json!(9)),
        ("query_pre_attn_scalar", json!(20)),
        ("final_logit_softcapping", json!(1.0)),
        ("rope_parameters", Value::Null),
    ] {
        let rope = other.0 == "rope_parameters";
        let theta = ("rope_local_base_freq", json!(50.0));
        let keys = if rope { vec![other, theta] } else { vec![other] };
        assert_ne!(stated, logits(&keys), "{keys:?}");
    }
}

#[test]
fn deberta_that_computes_otherwise_than_version_3_is_refused() {
    let name = "deberta-classification";
    changed(name, &[("pos_att_type", json!("c2p|p2c")), ("conv_kernel_size", json!(0))]).unwrap();
    for (key, value, about) in [
        ("relative_attention", json!(false), "relative_attention"),
        ("share_att_key", json!(false), "share_att_key"),
        ("pos_att_type", json!("c2p"), "pos_att_type"),
        ("pos_att_type", json!("p2c|c2p|p2p"), "pos_att_type"),
        ("position_biased_input", json!(true), "position_biased_input"),
        ("conv_kernel_size", json!(3), "conv_kernel_size"),
        ("norm_rel_ebd", json!("batch_norm"), "norm_rel_ebd"),
        ("position_buckets", json!(2), "position_buckets"),
        ("max_relative_positions", json!(5), "max_relative_positions"),
        ("embedding_size", json!(8), "embedding_size"),
        ("pooler_dropout", json!(0.1), "pooler_dropout"),
        ("attention_head_size", json!(4), "attention_head_size"),
    ] {
        let said = refusal(name, &[(key, value)]);
        assert!(said.contains(about), "{said}");
    }
    let untied = [("tie_word_embeddings", json!(false))];
    assert!(refusal("deberta-masked-lm", &untied).contains("tie_word_embeddings"));
}

/// Non-finite weights would spread to every result.
#[test]
fn weights_that_are_not_finite_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let original = fixture("bert-classification");
    fs::copy(original.join("config.json"), folder.path().join("config.json")).unwrap();
    let bytes = fs::read(original.join("model.safetensors")).unwrap();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut broken = bytes.clone();
        let last = broken.len() - 4;
        broken[last..].copy_from_slice(&bad.to_le_bytes());
        fs::write(folder.path().join("model.safetensors"), broken).unwrap();
        let said = load(folder.path(), &LoadOptions::default()).unwrap_err().to_string();
        assert!(said.contains("not finite") && !said.contains('\n'), "{said}");
    }
}
