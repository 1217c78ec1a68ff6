//! LoRA compared with peft, and the other fine-tuning methods: what is trained, saved and restored.

use crate::common::{Expected, assert_close, batch, devices, difference, fixture};
use std::path::Path;
use undertone_model::folder::{BaseModel, LoadOptions, load, save, save_like};
use undertone_model::tuning::{
    AdapterSettings, Ia3Settings, LoraSettings, Tuning, load_adapter, merge, save_adapter,
};
use undertone_model::{Gradients, Model, Weighting};
use undertone_tensor::Matrix;

const TOLERANCE: f32 = 1e-4;

fn base(name: &str) -> Model {
    load(&fixture(name), &LoadOptions::default()).unwrap()
}

fn with_adapter(base_name: &str, adapter: &str) -> Model {
    let mut model = base(base_name);
    load_adapter(&mut model, &fixture(adapter)).unwrap_or_else(|e| panic!("{adapter}: {e}"));
    model
}

const PEFT: [(&str, &str); 10] = [
    ("bert-classification", "lora-bert"),
    ("roberta-classification", "lora-roberta"),
    ("gpt2-causal-lm", "lora-gpt2"),
    ("llama-causal-lm", "lora-llama"),
    ("phi3-causal-lm", "lora-phi3"),
    ("modernbert-classification", "lora-modernbert"),
    ("deberta-classification", "lora-deberta"),
    ("bert-classification", "dora-bert"),
    ("gpt2-causal-lm", "dora-gpt2"),
    ("deberta-classification", "dora-deberta"),
];

#[test]
fn lora_equals_peft_in_logits_loss_and_gradients() {
    for device in devices() {
        for (base_name, adapter) in PEFT {
            let mut model = with_adapter(base_name, adapter);
            model.to_device(&device).unwrap();
            let expected = Expected::of(adapter);
            let batch = batch(adapter, &model);
            let logits = model.logits(&batch, None).unwrap();
            assert_close(&format!("{adapter} logits"), &logits, &expected.get("logits"), TOLERANCE);
            let mut gradients = Gradients::new(&model.parameters);
            model.train(&batch, Weighting::MeanOfPredictions, None, &mut gradients).unwrap();
            let mut compared = 0;
            for key in expected.with_prefix("grad.") {
                let name = key.strip_prefix("base_model.model.").unwrap();
                let id = model
                    .parameters
                    .find(name)
                    .unwrap_or_else(|| panic!("{adapter} has no {name}"));
                let gradient = gradients
                    .get(id)
                    .unwrap_or_else(|| panic!("{adapter}: {name} got no gradient"));
                assert_close(
                    &format!("{adapter} {name}"),
                    gradient,
                    &expected.get(&format!("grad.{key}")),
                    TOLERANCE,
                );
                compared += 1;
            }
            assert!(compared >= 4, "{adapter}: gradients are compared");
        }
    }
}

#[test]
fn merged_lora_equals_peft() {
    for (base_name, adapter) in PEFT {
        let mut model = with_adapter(base_name, adapter);
        let batch = batch(adapter, &model);
        merge(&mut model).unwrap();
        let expected = Expected::of(adapter);
        for key in expected.with_prefix("merged.") {
            let id =
                model.parameters.find(&key).unwrap_or_else(|| panic!("{adapter} has no {key}"));
            assert_close(
                &key,
                model.parameters.value(id),
                &expected.get(&format!("merged.{key}")),
                TOLERANCE,
            );
        }
        let logits = model.logits(&batch, None).unwrap();
        assert_close(&format!("{adapter} merged"), &logits, &expected.get("logits"), TOLERANCE);
    }
}

fn ways(model: &Model) -> Vec<Tuning> {
    let lora = LoraSettings { rank: 3, dropout: 0.1, ..LoraSettings::default() };
    let adapter = AdapterSettings { size: 5, ..AdapterSettings::default() };
    let mut ways = vec![Tuning::Full, Tuning::Lora(lora.clone()), Tuning::Adapter(adapter)];
    ways.push(Tuning::Ia3(Ia3Settings::default()));
    let targets = vec!["all-linear".into()];
    ways.push(Tuning::Lora(LoraSettings { targets, embeddings: true, ..lora }));
    if model.network.head.task_head.has_labels() {
        ways.push(Tuning::Head);
    }
    if model.parameters.iter().any(|(_, p)| p.name.ends_with("bias")) {
        ways.push(Tuning::Bitfit);
    }
    ways
}

/// Changes every trainable value, as training would.
fn shake(model: &mut Model) {
    for (id, parameter) in model.parameters.iter_mut().filter(|(_, p)| p.trainable) {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        let mut values = parameter.value.to_vec().unwrap();
        for (i, value) in values.iter_mut().enumerate() {
            *value += 0.1 * ((i + 31 * id.index()) as f32 * 0.7).sin();
        }
        parameter.value = Matrix::from_vec(rows, columns, values);
    }
}

#[test]
fn every_tuning_starts_where_the_model_was_trains_what_it_says_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "bert-classification",
        "distilbert-classification",
        "gpt2-causal-lm",
        "llama-classification",
    ] {
        let untouched = base(name);
        let batch = batch(name, &untouched);
        let before = untouched.logits(&batch, None).unwrap().to_vec().unwrap();
        for tuning in ways(&untouched) {
            let what = format!("{name} {}", tuning.name());
            let mut model = untouched.clone();
            model.apply_tuning(&tuning, 5).unwrap();
            let started = model.logits(&batch, None).unwrap().to_vec().unwrap();
            assert!(difference(&started, &before) < 1e-6, "{what} changes nothing before training");
            shake(&mut model);
            let mut gradients = Gradients::new(&model.parameters);
            model.train(&batch, Weighting::SumOfUnits, None, &mut gradients).unwrap();
            for (id, parameter) in model.parameters.iter() {
                let gradient = gradients.get(id);
                assert_eq!(gradient.is_some(), parameter.trainable, "{what}: {}", parameter.name);
                if let Some(gradient) = gradient {
                    let largest =
                        gradient.to_vec().unwrap().iter().fold(0.0_f32, |m, g| m.max(g.abs()));
                    // The bias of a key never has any influence.
                    let idle = parameter.name.contains("key.bias")
                        || parameter.name.contains("k_lin.bias");
                    assert!(idle || largest > 0.0, "{what}: {} has no gradient", parameter.name);
                }
            }
            let after = model.logits(&batch, None).unwrap().to_vec().unwrap();
            assert!(difference(&after, &before) > 1e-3, "{what} learns");

            let saved = folder.path().join(what.replace(' ', "-"));
            save_adapter(&model, &saved, &BaseModel::named("base")).unwrap();
            let mut back = untouched.clone();
            load_adapter(&mut back, &saved).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(
                back.logits(&batch, None).unwrap().to_vec().unwrap(),
                after,
                "{what} comes back bit by bit"
            );
            assert_eq!(back.parameters.count(), model.parameters.count(), "{what} trains the same");
        }
    }
}

/// A parameter's values in f64.
fn numbers(model: &Model, name: &str) -> Vec<f64> {
    let id = model.parameters.find(name).unwrap_or_else(|| panic!("no {name}"));
    model.parameters.value(id).to_vec().unwrap().into_iter().map(f64::from).collect()
}

fn assert_near(what: &str, have: &[f32], want: &[f64]) {
    assert_eq!(have.len(), want.len(), "{what}");
    let size = want.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    for (have, want) in have.iter().zip(want) {
        assert!((f64::from(*have) - want).abs() <= 1e-5 * size, "{what}: {have}, not {want}");
    }
}

/// LoRA on the queries and values of GPT-2's fused c_attn, compared with its definition in f64: the
/// weight is W + s · [B_q A_q | 0 | B_v A_v]ᵀ, and the gradients of A and B follow from that of the
/// weight. Saved for PEFT, it is one LoRA of twice the rank.
#[test]
fn lora_on_parts_of_a_fused_layer_is_what_it_says() {
    let untouched = base("gpt2-causal-lm");
    let batch = batch("gpt2-causal-lm", &untouched);
    let folder = tempfile::tempdir().unwrap();
    for rank_stabilized in [false, true] {
        let settings = LoraSettings {
            rank: 3,
            alpha: 5.0,
            dropout: 0.0,
            targets: vec!["c_attn.query".into(), "value".into()],
            rank_stabilized,
            ..LoraSettings::default()
        };
        let mut model = untouched.clone();
        model.apply_tuning(&Tuning::Lora(settings.clone()), 5).unwrap();
        shake(&mut model);
        let logits = model.logits(&batch, None).unwrap().to_vec().unwrap();
        let mut gradients = Gradients::new(&model.parameters);
        model.train(&batch, Weighting::SumOfUnits, None, &mut gradients).unwrap();
        // The same model with the update applied explicitly.
        let mut full = untouched.clone();
        let (rank, scale) = (3, f64::from(settings.scale()));
        let layers = model.network.blocks.len();
        let mut hidden = 0;
        for i in 0..layers {
            let name = format!("transformer.h.{i}.attn.c_attn");
            let mut w = numbers(&full, &format!("{name}.weight"));
            hidden = (w.len() / 3).isqrt();
            for (part, first) in [("query", 0), ("value", 2 * hidden)] {
                let a = numbers(&model, &format!("{name}.{part}.lora_A.weight"));
                let b = numbers(&model, &format!("{name}.{part}.lora_B.weight"));
                assert_eq!((a.len(), b.len()), (rank * hidden, hidden * rank));
                for input in 0..hidden {
                    for output in 0..hidden {
                        let product: f64 =
                            (0..rank).map(|r| b[output * rank + r] * a[r * hidden + input]).sum();
                        w[input * 3 * hidden + first + output] += scale * product;
                    }
                }
            }
            let id = full.parameters.find(&format!("{name}.weight")).unwrap();
            let w = w.into_iter().map(|x| x as f32).collect();
            full.parameters.get_mut(id).value = Matrix::from_vec(hidden, 3 * hidden, w);
        }
        full.apply_tuning(&Tuning::Full, 0).unwrap();
        let want = full.logits(&batch, None).unwrap().to_vec().unwrap();
        assert!(difference(&logits, &want) < 1e-4, "logits");
        let mut of_full = Gradients::new(&full.parameters);
        full.train(&batch, Weighting::SumOfUnits, None, &mut of_full).unwrap();
        for i in 0..layers {
            let name = format!("transformer.h.{i}.attn.c_attn");
            let id = full.parameters.find(&format!("{name}.weight")).unwrap();
            let g = of_full.get(id).unwrap().to_vec().unwrap();
            let g = |input: usize, output: usize| f64::from(g[input * 3 * hidden + output]);
            for (part, first) in [("query", 0), ("value", 2 * hidden)] {
                let names = ["A", "B"].map(|which| format!("{name}.{part}.lora_{which}.weight"));
                let (a, b) = (numbers(&model, &names[0]), numbers(&model, &names[1]));
                let mut of_a = vec![0.0; a.len()];
                let mut of_b = vec![0.0; b.len()];
                for r in 0..rank {
                    for input in 0..hidden {
                        for output in 0..hidden {
                            let g = scale * g(input, first + output);
                            of_a[r * hidden + input] += b[output * rank + r] * g;
                            of_b[output * rank + r] += a[r * hidden + input] * g;
                        }
                    }
                }
                for (name, want) in names.iter().zip([of_a, of_b]) {
                    let id = model.parameters.find(name).unwrap();
                    let have = gradients.get(id).unwrap().to_vec().unwrap();
                    let size = want.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
                    let off = have.iter().zip(&want).map(|(x, y)| (f64::from(*x) - y).abs());
                    let off = off.fold(0.0, f64::max);
                    assert!(size > 0.0 && off < 1e-3 * size, "{name}: off by {off} of {size}");
                }
            }
        }
        let saved = folder.path().join(format!("parts-{rank_stabilized}"));
        save_adapter(&model, &saved, &BaseModel::named("base")).unwrap();
        let config = std::fs::read_to_string(saved.join("adapter_config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!((&config["r"], &config["target_modules"]), (&6.into(), &["c_attn"][..].into()));
        let alpha = if rank_stabilized { 5.0 * 2_f64.sqrt() } else { 10.0 };
        assert!((config["lora_alpha"].as_f64().unwrap() - alpha).abs() < 1e-12);
        let mut back = untouched.clone();
        load_adapter(&mut back, &saved).unwrap();
        // The file contains blocks, and zeros for the keys and across blocks.
        let a = numbers(&back, "transformer.h.0.attn.c_attn.lora_A.weight");
        let b = numbers(&back, "transformer.h.0.attn.c_attn.lora_B.weight");
        let of = |part: &str, which: &str| {
            numbers(&model, &format!("transformer.h.0.attn.c_attn.{part}.lora_{which}.weight"))
        };
        assert_eq!(a, [of("query", "A"), of("value", "A")].concat());
        for (output, row) in b.chunks_exact(2 * rank).enumerate() {
            let own = |part: &str| of(part, "B")[output % hidden * rank..][..rank].to_vec();
            let zero = vec![0.0; rank];
            let want = match output / hidden {
                0 => [own("query"), zero],
                1 => [zero.clone(), zero],
                _ => [zero, own("value")],
            };
            assert_eq!(row, want.concat(), "row {output}");
        }
        let came = back.logits(&batch, None).unwrap().to_vec().unwrap();
        assert!(difference(&came, &logits) < 1e-5, "it comes back");
        let mut merged = model.clone();
        merge(&mut merged).unwrap();
        for i in 0..layers {
            let name = format!("transformer.h.{i}.attn.c_attn.weight");
            let id = merged.parameters.find(&name).unwrap();
            let have = merged.parameters.value(id).to_vec().unwrap();
            assert_near(&name, &have, &numbers(&full, &name));
        }
    }
    let both = LoraSettings {
        targets: vec!["c_attn".into(), "c_attn.value".into()],
        ..LoraSettings::default()
    };
    let error = base("gpt2-causal-lm").apply_tuning(&Tuning::Lora(both), 0).unwrap_err();
    assert!(error.to_string().contains("name one of them"), "{error}");
}

#[test]
fn a_saved_model_comes_back_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["bert-masked-lm", "roberta-classification", "gpt2-causal-lm", "llama-untied"] {
        let model = base(name);
        let saved = folder.path().join(name);
        save(&model, &saved, Some(&fixture(name))).unwrap();
        let back = load(&saved, &LoadOptions::default()).unwrap();
        assert_eq!(model.parameters.len(), back.parameters.len());
        for ((_, a), (_, b)) in model.parameters.iter().zip(back.parameters.iter()) {
            assert_eq!((&a.name, &a.shape), (&b.name, &b.shape));
            assert_eq!(a.value.to_vec().unwrap(), b.value.to_vec().unwrap());
        }
        assert!(Path::new(&saved).join("config.json").is_file());
    }
}

/// Shards respect the requested size, the index lists all of them, and the restored model equals
/// the saved one.
#[test]
fn a_model_saved_in_shards_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("shards");
    let model = base("llama-untied");
    save_like(&model, &saved, &fixture("llama-untied"), 6_000).unwrap();
    let index = std::fs::read_to_string(saved.join("model.safetensors.index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let (_, numbers) = model.parameters.count();
    assert_eq!(index["metadata"]["total_size"], 4 * numbers);
    assert_eq!(index["weight_map"].as_object().unwrap().len(), model.parameters.len());
    let mut files = 0;
    for entry in std::fs::read_dir(&saved).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".safetensors") {
            files += 1;
            // A header, and at most the requested size.
            assert!(entry.metadata().unwrap().len() < 8_000, "{name}");
        }
    }
    assert!(files > 3 && !saved.join("model.safetensors").exists(), "{files} files");
    let back = load(&saved, &LoadOptions::default()).unwrap();
    for ((_, a), (_, b)) in model.parameters.iter().zip(back.parameters.iter()) {
        assert_eq!(a.value.to_vec().unwrap(), b.value.to_vec().unwrap(), "{}", a.name);
    }
    // A value that f16 cannot represent is an error instead of being written as infinity.
    let mut large = base("bert-f16");
    let id = large.parameters.find("classifier.bias").unwrap();
    let classes = large.parameters.get(id).len();
    large.parameters.get_mut(id).value = Matrix::from_vec(1, classes, vec![1e6; classes]);
    let to = folder.path().join("large");
    let error = save_like(&large, &to, &fixture("bert-f16"), u64::MAX).unwrap_err().to_string();
    assert!(error.contains("classifier.bias") && error.contains("F16 cannot hold"), "{error}");
}

#[test]
fn mistakes_are_told_in_a_sentence() {
    let said =
        |tuning: Tuning, name: &str| base(name).apply_tuning(&tuning, 0).unwrap_err().to_string();
    let lora = |change: fn(&mut LoraSettings)| {
        let mut settings = LoraSettings::default();
        change(&mut settings);
        Tuning::Lora(settings)
    };
    assert!(said(lora(|s| s.rank = 0), "bert-classification").contains("rank"));
    assert!(
        said(lora(|s| s.targets = vec!["quarry".into()]), "bert-classification").contains("query")
    );
    assert!(said(lora(|s| s.dropout = 1.0), "bert-classification").contains("dropout"));
    assert!(said(Tuning::Head, "gpt2-causal-lm").contains("classification head"));
    assert!(said(Tuning::Bitfit, "llama-causal-lm").contains("no biases"));
    let mut twice = base("bert-classification");
    twice.apply_tuning(&Tuning::Head, 0).unwrap();
    assert!(twice.apply_tuning(&Tuning::Full, 0).is_err(), "a model is tuned in one way");
    let mut model = base("bert-classification");
    model.apply_tuning(&Tuning::Adapter(AdapterSettings::default()), 0).unwrap();
    assert!(merge(&mut model).unwrap_err().to_string().contains("cannot be merged"));
    let wrong =
        load_adapter(&mut base("llama-causal-lm"), &fixture("lora-gpt2")).unwrap_err().to_string();
    assert!(wrong.contains("does not have"), "{wrong}");
}
