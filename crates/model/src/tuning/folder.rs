//! Adapter folders: `adapter_config.json`, `adapter_model.safetensors` and, for classifiers,
//! `labels.json` with the label names.
//!
//! LoRA, (IA)³ and soft prompts use the layout of Hugging Face PEFT. The other fine-tuning methods
//! have `"undertone_type"`: `"adapter"`, `"bitfit"`, `"head"` or `"full"` in their configuration,
//! with the method's settings under `"settings"`, and tensors under the model's parameter names.
//! All have the task under `"task_type"`, like PEFT.

use super::{AdapterSettings, Tuning, adapter, peft, peft_ia3, peft_prompt, train_head};
use crate::folder::{BaseModel, LoadOptions, Weights, load, save_tensors};
use crate::sanitized::load_sanitizer;
use crate::{Error, Model, Result};
use serde_json::{Map, Value, json};
use std::path::Path;
use undertone_settings::Quantize;

/// The configuration of an adapter.
const CONFIG: &str = "adapter_config.json";

/// How the base model's weights are stored; present only if they are quantized.
const QUANTIZE: &str = "quantize.json";

/// Saves the trainable parameters.
pub fn save_adapter(model: &Model, folder: &Path, base: &BaseModel) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|source| Error::Io { path: folder.to_owned(), source })?;
    let Some(tuning) = &model.tuning else {
        return Err(Error::Tuning("the model has no adapter to save".into()));
    };
    let tensors = folder.join("adapter_model.safetensors");
    let mut config = match tuning {
        Tuning::Lora(settings) => {
            let named = peft::parameters(model)?;
            save_tensors(&tensors, named.iter().map(|(name, p)| (name.clone(), p)))?;
            peft::config(model, settings, &base.name)
        }
        Tuning::Ia3(settings) => {
            let named = peft::parameters(model)?;
            save_tensors(&tensors, named.iter().map(|(name, p)| (name.clone(), p)))?;
            peft_ia3::config(model, settings, &base.name)
        }
        Tuning::Prompt(settings) => {
            save_tensors(&tensors, peft_prompt::parameters(model).into_iter())?;
            peft_prompt::config(model, settings, &base.name)
        }
        other => {
            let trained = model.parameters.iter().map(|(_, p)| p).filter(|p| p.trainable);
            save_tensors(&tensors, trained.map(|p| (p.name.clone(), p)))?;
            let settings = match other {
                Tuning::Adapter(settings) => json!(settings),
                _ => Value::Null,
            };
            json!({
                "undertone_type": other.name(),
                "task_type": peft::task_type(model.network.head.task_head),
                "base_model_name_or_path": base.name,
                "settings": settings,
            })
        }
    };
    config["revision"] = json!(base.revision);
    // The label names belong to the task head, which the adapter contains. PEFT rejects unknown
    // keys in adapter_config.json, so they are in a separate file.
    if let Some(labels) =
        model.config.labels()?.filter(|_| model.network.head.task_head.has_labels())
    {
        undertone_settings::write_json(&folder.join("labels.json"), &labels)?;
    }
    if let Some(quantize) = model.quantize {
        undertone_settings::write_json(&folder.join(QUANTIZE), &quantize)?;
    }
    Ok(undertone_settings::write_json(&folder.join(CONFIG), &config)?)
}

/// How the base model's weights were stored while the adapter was trained.
fn read_quantize(adapter: &Path) -> Result<Option<Quantize>> {
    let path = adapter.join(QUANTIZE);
    if !path.exists() {
        return Ok(None);
    }
    let text = undertone_settings::read_settings(&path)
        .map_err(|source| Error::Io { path: path.clone(), source })?;
    let wrong = |e| Error::Config { path, problem: format!("is not a kind of quantization: {e}") };
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

/// Loads a base model and its adapter, if there is one. The model gets the task head and labels of
/// the adapter's training.
pub fn load_adapted(folder: &Path, adapter: Option<&Path>, options: LoadOptions) -> Result<Model> {
    let Some(adapter) = adapter else { return load(folder, &options) };
    let config = read_config(adapter)?;
    let task_head = config.get("task_type").and_then(Value::as_str).and_then(peft::task_head);
    let labels = match undertone_settings::read_settings(&adapter.join("labels.json")) {
        Ok(text) => Some(serde_json::from_str(&text).map_err(|e| Error::Config {
            path: adapter.join("labels.json"),
            problem: format!("is not a list of label names: {e}"),
        })?),
        Err(_) => None,
    };
    let options = LoadOptions {
        task_head: options.task_head.or(task_head),
        labels: options.labels.or(labels),
        seed: options.seed,
        quantize: options.quantize.or(read_quantize(adapter)?),
    };
    let mut model = load(folder, &options)?;
    load_sanitizer(&mut model, adapter)?;
    load_adapter(&mut model, adapter)?;
    Ok(model)
}

fn read_config(folder: &Path) -> Result<Map<String, Value>> {
    let path = folder.join(CONFIG);
    let text = undertone_settings::read_settings(&path).map_err(|_| Error::MissingFile {
        path: path.clone(),
        what_to_do: "give an adapter folder, which has one".into(),
    })?;
    serde_json::from_str(&text)
        .map_err(|e| Error::Config { path, problem: format!("is not JSON: {e}") })
}

/// The base model of an adapter as its configuration states it: a name on the Hub or a path.
pub fn base_of_adapter(folder: &Path) -> Result<Option<String>> {
    let config = read_config(folder)?;
    let base = config.get("base_model_name_or_path").and_then(Value::as_str);
    Ok(base.filter(|base| !base.is_empty()).map(str::to_owned))
}

/// Whether a folder contains an adapter.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// Loads a saved adapter into a model.
pub fn load_adapter(model: &mut Model, folder: &Path) -> Result<()> {
    if let Some(earlier) = &model.tuning {
        return Err(Error::Tuning(format!(
            "the model has an adapter ({}) already; load the base model first",
            earlier.name()
        )));
    }
    let path = folder.join(CONFIG);
    let wrong = |problem: String| Error::Config { path: path.clone(), problem };
    let config = read_config(folder)?;
    let tensors = folder.join("adapter_model.safetensors");
    if !tensors.is_file() {
        let pickle = folder.join("adapter_model.bin");
        if pickle.is_file() {
            return Err(Error::Pickle { path: pickle });
        }
        return Err(Error::MissingFile {
            path: tensors,
            what_to_do: "save the adapter as safetensors".into(),
        });
    }
    let weights = Weights::open_file(&tensors)?;
    if let Some(kind) = config.get("peft_type").and_then(Value::as_str) {
        return match kind {
            "LORA" => peft::load(model, folder, &config, &weights),
            "IA3" => peft_ia3::load(model, folder, &config, &weights),
            "PROMPT_TUNING" => peft_prompt::load(model, folder, &config, &weights),
            _ => Err(wrong(format!(
                "peft_type is {kind}; LORA, IA3 and PROMPT_TUNING are supported"
            ))),
        };
    }
    let tuning = match config.get("undertone_type").and_then(Value::as_str) {
        Some("head") => Tuning::Head,
        Some("bitfit") => Tuning::Bitfit,
        Some("full") => Tuning::Full,
        Some("adapter") => {
            let settings = config.get("settings").cloned().unwrap_or_default();
            let settings: AdapterSettings =
                serde_json::from_value(settings).map_err(|e| wrong(format!("settings: {e}")))?;
            adapter::attach(model, &settings, 0)?;
            Tuning::Adapter(settings)
        }
        _ => return Err(wrong("has neither peft_type nor a known undertone_type".into())),
    };
    for (_, parameter) in model.parameters.iter_mut() {
        parameter.trainable = false;
    }
    let mut names: Vec<String> = weights.names().map(str::to_owned).collect();
    names.sort();
    for name in names {
        peft::load_saved_module(model, &weights, &name, &name)?;
        if let Some(id) = model.parameters.find(&name) {
            model.parameters.get_mut(id).trainable = true;
        }
    }
    train_head(model);
    model.tuning = Some(tuning);
    Ok(())
}
