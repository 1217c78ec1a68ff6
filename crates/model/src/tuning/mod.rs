//! Fine-tuning methods, which determine the trainable parameters: full, task head, BitFit, LoRA,
//! (IA)³, bottleneck adapters and soft prompts.

mod adapter;
mod bitfit;
mod folder;
mod ia3;
mod lora;
mod peft;
mod peft_ia3;
mod peft_prompt;
mod prompt;
mod singular;

pub use folder::{base_of_adapter, is_adapter, load_adapted, load_adapter, save_adapter};
pub use undertone_settings::{
    AdapterSettings, Ia3Settings, InitialA, InitialBiases, LoraSettings, PromptSettings, Tuning,
};

use super::layer::linear::Linear;
use super::{Error, Model, Network, Origin, ParameterId, Result};

impl Model {
    /// Prepares a loaded model for this fine-tuning method; `seed` initializes added parameters.
    pub fn apply_tuning(&mut self, tuning: &Tuning, seed: u64) -> Result<()> {
        let model = self;
        if let Some(earlier) = &model.tuning {
            return Err(Error::Tuning(format!(
                "the model is fine-tuned with {} already; merge that first, or load the base model",
                earlier.name()
            )));
        }
        let mut fitted = tuning.clone();
        for (_, parameter) in model.parameters.iter_mut() {
            parameter.trainable = *tuning == Tuning::Full;
        }
        match &mut fitted {
            Tuning::Full => {}
            Tuning::Head if !model.network.head.task_head.has_labels() => {
                return Err(Error::Tuning(
                    "head tuning needs a classification head, but this is a language model".into(),
                ));
            }
            Tuning::Head => {}
            Tuning::Bitfit => bitfit::attach(model)?,
            Tuning::Lora(settings) => lora::attach(model, settings, seed)?,
            Tuning::Ia3(settings) => ia3::attach(model, settings)?,
            Tuning::Adapter(settings) => adapter::attach(model, settings, seed)?,
            Tuning::Prompt(settings) => prompt::attach(model, settings, seed)?,
        }
        train_head(model);
        model.parameters.expand_trainable()?;
        model.tuning = Some(fitted);
        Ok(())
    }
}

/// Makes a classification head trainable: it is new to its task, so every fine-tuning method trains
/// it.
fn train_head(model: &mut Model) {
    if !model.network.head.task_head.has_labels() {
        return;
    }
    let ids: Vec<ParameterId> = model.network.head.parameters().collect();
    for id in ids {
        model.parameters.get_mut(id).trainable = true;
    }
}

/// All linear layers that can be adapted: those of the blocks, then those of a language model's
/// head. A classification head is trained as a whole.
fn linear_layers(model: &Model) -> impl Iterator<Item = &Linear> {
    let head = &model.network.head;
    let of_head = head.dense.iter().map(|dense| &dense.0).chain([&head.out]);
    let of_head = of_head.filter(|_| !head.task_head.has_labels());
    model.network.blocks.iter().flat_map(|block| block.linear_layers()).chain(of_head)
}

/// Mutable version of [`linear_layers`].
fn linear_layers_mut(network: &mut Network) -> impl Iterator<Item = &mut Linear> {
    let head = &mut network.head;
    let adapted = !head.task_head.has_labels();
    let of_head = head.dense.iter_mut().map(|dense| &mut dense.0).chain([&mut head.out]);
    let of_head = of_head.filter(move |_| adapted);
    network.blocks.iter_mut().flat_map(|block| block.linear_layers_mut()).chain(of_head)
}

/// Merges LoRA or (IA)³ into the weights, after which the model has no adapter.
pub fn merge(model: &mut Model) -> Result<()> {
    if model.network.sanitizer.is_some() {
        return Err(Error::Tuning(
            "a local DP model keeps its sanitizer beside its adapter, so it cannot be merged; use \
             it with --adapter"
                .into(),
        ));
    }
    let head = &model.network.head.out;
    let changed = !head.lora.is_empty() || head.rescaling.is_some();
    if changed && model.tied_parameters().contains(&head.weight) {
        return Err(Error::Tuning(format!(
            "{} shares its weight with the token embeddings, so an adapter of it cannot be merged; \
             use it with --adapter",
            head.name
        )));
    }
    match &model.tuning {
        Some(Tuning::Adapter(_)) => Err(Error::Tuning(
            "a bottleneck adapter is not linear, so it cannot be merged into the weights; use it \
             with --adapter"
                .into(),
        )),
        Some(Tuning::Prompt(_)) => Err(Error::Tuning(
            "a soft prompt is not in the weights, so it cannot be merged into them; use it with \
             --adapter"
                .into(),
        )),
        _ => {
            lora::merge(model)?;
            ia3::merge(model)?;
            model.parameters.drop_adapters();
            for (_, parameter) in model.parameters.iter_mut() {
                parameter.trainable = true;
            }
            model.tuning = None;
            debug_assert!(model.parameters.iter().all(|(_, p)| p.origin == Origin::Base));
            Ok(())
        }
    }
}
