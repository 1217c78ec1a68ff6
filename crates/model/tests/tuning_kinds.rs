//! (IA)³, and LoRA on all linear layers, some layers, the head and the embeddings: what is saved
//! for peft, what is restored, and the result of merging.

use crate::common::{batch, difference, fixture};
use serde_json::{Value, json};
use std::path::Path;
use undertone_model::Model;
use undertone_model::folder::{BaseModel, LoadOptions, load};
use undertone_model::tuning::{
    Ia3Settings, InitialA, LoraSettings, Tuning, load_adapter, merge, save_adapter,
};
use undertone_tensor::Matrix;

fn base(name: &str) -> Model {
    load(&fixture(name), &LoadOptions::default()).unwrap()
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

fn config(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("adapter_config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn logits(model: &Model, name: &str) -> Vec<f32> {
    model.logits(&batch(name, model), None).unwrap().to_vec().unwrap()
}

/// Fine-tunes, saves, loads and merges, with the same logits each time; returns the configuration
/// for peft.
fn there_and_back(name: &str, tuning: Tuning, merges: bool) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut model = base(name);
    model.apply_tuning(&tuning, 3).unwrap();
    assert!(difference(&logits(&model, name), &logits(&base(name), name)) < 1e-6, "{name}");
    shake(&mut model);
    let expected = logits(&model, name);
    assert!(difference(&expected, &logits(&base(name), name)) > 1e-3, "{name} learns");
    save_adapter(&model, folder.path(), &BaseModel::named("base")).unwrap();
    let mut back = base(name);
    load_adapter(&mut back, folder.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(logits(&back, name), expected, "{name} comes back bit by bit");
    assert_eq!(back.parameters.count(), model.parameters.count());
    // The restored adapter is saved identically.
    let again = tempfile::tempdir().unwrap();
    save_adapter(&back, again.path(), &BaseModel::named("base")).unwrap();
    let modules = |folder: &Path| {
        let mut modules: Vec<String> =
            serde_json::from_value(config(folder)["target_modules"].clone()).unwrap();
        modules.sort();
        modules
    };
    assert_eq!(modules(folder.path()), modules(again.path()), "{name}");
    match merge(&mut model) {
        Ok(()) => {
            assert!(merges, "{name}");
            assert!(difference(&logits(&model, name), &expected) < 1e-4, "{name}, merged");
        }
        Err(error) => {
            assert!(!merges && error.to_string().contains("shares its weight"), "{error}")
        }
    }
    config(folder.path())
}

const MODELS: [&str; 5] = [
    "bert-classification",
    "distilbert-classification",
    "roberta-classification",
    "gpt2-causal-lm",
    "llama-causal-lm",
];

#[test]
fn ia3_is_saved_for_peft_loaded_and_merged() {
    for name in MODELS {
        let config = there_and_back(name, Tuning::Ia3(Ia3Settings::default()), true);
        assert_eq!(config["peft_type"], "IA3");
        let feed_forward = config["feedforward_modules"].as_array().unwrap();
        let targets = config["target_modules"].as_array().unwrap();
        assert!(
            !feed_forward.is_empty() && feed_forward.iter().all(|module| targets.contains(module))
        );
    }
    let settings =
        Ia3Settings { targets: vec!["k_proj".into()], feed_forward: vec!["down_proj".into()] };
    let config = there_and_back("llama-causal-lm", Tuning::Ia3(settings), true);
    assert_eq!(config["target_modules"], json!(["k_proj", "down_proj"]));
}

/// The effect of a factor, compared with its definition: W and b with the factor multiplied in by
/// hand.
#[test]
fn ia3_multiplies_outputs_with_their_bias_and_inputs() {
    for (of_inputs, target) in [(false, "value"), (true, "intermediate.dense")] {
        let mut model = base("bert-classification");
        let targets = vec![target.to_owned()];
        let settings = match of_inputs {
            false => Ia3Settings { targets, ..Ia3Settings::default() },
            true => Ia3Settings { feed_forward: targets, ..Ia3Settings::default() },
        };
        model.apply_tuning(&Tuning::Ia3(settings), 0).unwrap();
        let factors = model.parameters.iter().filter(|(_, p)| p.name.ends_with("ia3_l"));
        assert!(factors.map(|(_, p)| p.is_matrix()).all(|is| !is), "weight decay spares them");
        shake(&mut model);
        let mut by_hand = model.clone();
        for (_, parameter) in by_hand.parameters.iter_mut() {
            if parameter.name.ends_with("ia3_l") {
                let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
                parameter.value = Matrix::from_vec(rows, columns, vec![1.0; rows * columns]);
            }
        }
        for layer in 0..2 {
            let path = match of_inputs {
                false => format!("bert.encoder.layer.{layer}.attention.self.value"),
                true => format!("bert.encoder.layer.{layer}.intermediate.dense"),
            };
            let numbers = |name: &str| {
                let id = model.parameters.find(&format!("{path}.{name}")).unwrap();
                (id, model.parameters.value(id).to_vec().unwrap())
            };
            let (_, factors) = numbers("ia3_l");
            let (id, mut weight) = numbers("weight");
            let (rows, columns) =
                (model.parameters.value(id).rows(), model.parameters.value(id).columns());
            for (i, w) in weight.iter_mut().enumerate() {
                *w *= factors[if of_inputs { i % columns } else { i / columns }];
            }
            by_hand.parameters.get_mut(id).value = Matrix::from_vec(rows, columns, weight);
            let (id, mut bias) = numbers("bias");
            if !of_inputs {
                bias.iter_mut().zip(&factors).for_each(|(b, l)| *b *= l);
            }
            let count = bias.len();
            by_hand.parameters.get_mut(id).value = Matrix::from_vec(1, count, bias);
        }
        let (first, second) =
            (logits(&model, "bert-classification"), logits(&by_hand, "bert-classification"));
        assert!(difference(&first, &second) < 1e-5, "{target}");
    }
}

#[test]
fn lora_is_on_the_layers_that_are_named() {
    let lora = |change: &dyn Fn(&mut LoraSettings)| {
        let mut settings = LoraSettings { rank: 2, ..LoraSettings::default() };
        change(&mut settings);
        Tuning::Lora(settings)
    };
    let all = lora(&|s| s.targets = vec!["all-linear".into()]);
    let llama = there_and_back("llama-causal-lm", all.clone(), true);
    let names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    assert_eq!(llama["target_modules"], json!(names));
    // With only "dense", peft would also adapt the pooler, which is trained as a whole.
    let bert = there_and_back("bert-classification", all, true);
    let targets: Vec<String> = serde_json::from_value(bert["target_modules"].clone()).unwrap();
    assert_eq!(targets.len(), 12);
    assert!(targets.iter().all(|path| path.starts_with("bert.encoder.layer.")), "{targets:?}");
    assert_eq!(bert["modules_to_save"], json!(["pooler", "classifier"]));

    let config = there_and_back("llama-causal-lm", lora(&|s| s.layers = Some(vec![1])), true);
    let paths = ["model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"];
    assert_eq!(config["target_modules"], json!(paths));

    let stabilized = there_and_back("llama-causal-lm", lora(&|s| s.rank_stabilized = true), true);
    assert_eq!((&stabilized["use_rslora"], &stabilized["r"]), (&json!(true), &json!(2)));

    for name in MODELS.into_iter().chain(["phi3-causal-lm", "deberta-classification"]) {
        let dora = there_and_back(name, lora(&|s| s.dora = true), true);
        assert_eq!(dora["use_dora"], json!(true), "{name}");
    }

    let head = lora(&|s| s.targets = vec!["q_proj".into(), "lm_head".into()]);
    there_and_back("llama-untied", head.clone(), true);
    there_and_back("llama-causal-lm", head, false);

    let table = lora(&|s| s.embeddings = true);
    let tied = there_and_back("llama-causal-lm", table.clone(), true);
    assert_eq!(tied["modules_to_save"], json!(["embed_tokens", "lm_head"]));
    let with_bias = there_and_back("bert-masked-lm", table.clone(), true);
    let modules = ["word_embeddings", "cls.predictions.decoder"];
    assert_eq!(with_bias["modules_to_save"], json!(modules));
    let untied = there_and_back("llama-untied", table, true);
    assert_eq!(untied["modules_to_save"], json!(["embed_tokens"]));

    let said = |tuning: Tuning| {
        base("bert-classification").apply_tuning(&tuning, 0).unwrap_err().to_string()
    };
    assert!(said(lora(&|s| s.layers = Some(vec![2]))).contains("layers are 0 to 1"));
    assert!(said(lora(&|s| s.layers = Some(vec![]))).contains("empty"));
    let dora = |name: &str, target: &str, embeddings: bool| {
        let targets = vec![target.to_owned()];
        let settings = LoraSettings { targets, embeddings, dora: true, ..LoraSettings::default() };
        base(name).apply_tuning(&Tuning::Lora(settings), 0).unwrap_err().to_string()
    };
    assert!(dora("gpt2-causal-lm", "c_attn.query", false).contains("whole layers"));
    assert!(dora("llama-causal-lm", "lm_head", true).contains("frozen weights"));
    let both = vec!["all-linear".into(), "query".into()];
    assert!(said(lora(&|s| s.targets = both.clone())).contains("not both"));
    let unknown = Ia3Settings { targets: vec!["quarry".into()], ..Ia3Settings::default() };
    assert!(said(Tuning::Ia3(unknown)).contains("query"));
    let twice = Ia3Settings { targets: vec!["key".into()], feed_forward: vec!["key".into()] };
    assert!(said(Tuning::Ia3(twice)).contains("both name"));
}

/// FFA-LoRA trains B only, and the adapter has both.
#[test]
fn a_frozen_a_keeps_its_values() {
    for (name, init) in [
        ("llama-causal-lm", InitialA::Uniform),
        ("llama-causal-lm", InitialA::Singular),
        ("bert-classification", InitialA::Singular),
        // Parts of a fused layer, and weights stored by input.
        ("gpt2-causal-lm", InitialA::Singular),
    ] {
        let settings = LoraSettings { rank: 2, freeze_a: true, init, ..LoraSettings::default() };
        let mut model = base(name);
        model.apply_tuning(&Tuning::Lora(settings), 3).unwrap();
        assert!(difference(&logits(&model, name), &logits(&base(name), name)) < 1e-6, "{name}");
        let values = |model: &Model, which: &str| -> Vec<Vec<f32>> {
            let own = model.parameters.iter().filter(|(_, p)| p.name.ends_with(which));
            own.map(|(_, p)| p.value.to_vec().unwrap()).collect()
        };
        let first = values(&model, "lora_A.weight");
        shake(&mut model);
        assert_eq!(values(&model, "lora_A.weight"), first);
        assert!(values(&model, "lora_B.weight").iter().flatten().any(|&b| b != 0.0));
        if init == InitialA::Singular {
            for a in &first {
                let (x, y) = a.split_at(a.len() / 2);
                let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(a, b)| a * b).sum::<f32>();
                let products = [dot(x, x), dot(y, y), dot(x, y)];
                assert!(difference(&products, &[1.0 / 3.0, 1.0 / 3.0, 0.0]) < 1e-4, "{products:?}");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        save_adapter(&model, folder.path(), &BaseModel::named("base")).unwrap();
        let mut back = base(name);
        load_adapter(&mut back, folder.path()).unwrap();
        assert_eq!(logits(&back, name), logits(&model, name), "{name}");
    }
    let settings = LoraSettings { rank: 512, init: InitialA::Singular, ..LoraSettings::default() };
    let error = base("llama-causal-lm").apply_tuning(&Tuning::Lora(settings), 3).unwrap_err();
    assert!(error.to_string().contains("needs a rank of at most"), "{error}");
}
