//! LoRA against peft, and the other ways of tuning: what is trained, what is saved, what comes
//! back.

use crate::common::{Expected, assert_close, batch, devices, difference, fixture};
use std::path::Path;
use undertone::model::folder::{LoadOptions, load, save};
use undertone::model::tuning::{
    AdapterSettings, LoraSettings, Tuning, load_adapter, merge, save_adapter,
};
use undertone::model::{Gradients, Model, Weighting};
use undertone::tensor::Matrix;

const TOLERANCE: f32 = 1e-4;

fn base(name: &str) -> Model {
    load(&fixture(name), &LoadOptions::default()).unwrap()
}

fn with_adapter(base_name: &str, adapter: &str) -> Model {
    let mut model = base(base_name);
    load_adapter(&mut model, &fixture(adapter)).unwrap_or_else(|e| panic!("{adapter}: {e}"));
    model
}

const PEFT: [(&str, &str); 4] = [
    ("bert-classification", "lora-bert"),
    ("roberta-classification", "lora-roberta"),
    ("gpt2-causal-lm", "lora-gpt2"),
    ("llama-causal-lm", "lora-llama"),
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
    let mut ways = vec![Tuning::Full, Tuning::Lora(lora), Tuning::Adapter(adapter)];
    if model.network.head.task_head.has_labels() {
        ways.push(Tuning::Head);
    }
    if model.parameters.iter().any(|(_, p)| p.name.ends_with("bias")) {
        ways.push(Tuning::Bitfit);
    }
    ways
}

/// Changes every trainable number, as training would.
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
                    // The bias of a key has no influence, whatever it is.
                    let idle = parameter.name.contains("key.bias")
                        || parameter.name.contains("k_lin.bias");
                    assert!(idle || largest > 0.0, "{what}: {} has no gradient", parameter.name);
                }
            }
            let after = model.logits(&batch, None).unwrap().to_vec().unwrap();
            assert!(difference(&after, &before) > 1e-3, "{what} learns");

            let saved = folder.path().join(what.replace(' ', "-"));
            save_adapter(&model, &saved, "base").unwrap();
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
