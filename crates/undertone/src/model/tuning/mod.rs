//! Which parameters training changes: all, the head, the biases, or small ones put beside the
//! model.

mod adapter;
mod folder;
mod lora;
mod peft;

pub use adapter::AdapterSettings;
pub use folder::{load_adapted, load_adapter, save_adapter};
pub use lora::LoraSettings;

use super::layer::linear::Linear;
use super::{Error, Model, Origin, ParameterId, Result};
use serde::{Deserialize, Serialize};

/// A way of tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Tuning {
    /// Every parameter.
    Full,
    /// The classification head alone.
    Head,
    /// Biases, and the classification head.
    Bitfit,
    /// Low-rank additions to linear layers, and the classification head.
    Lora(LoraSettings),
    /// Bottleneck adapters after attention and feed-forward, and the classification head.
    Adapter(AdapterSettings),
}

impl Tuning {
    /// A short name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Head => "head",
            Self::Bitfit => "bitfit",
            Self::Lora(_) => "lora",
            Self::Adapter(_) => "adapter",
        }
    }

    /// Makes a freshly loaded model ready for training in this way; `seed` draws the initial values
    /// of what is added.
    pub fn apply(&self, model: &mut Model, seed: u64) -> Result<()> {
        if let Some(earlier) = &model.tuning {
            return Err(Error::Tuning(format!(
                "the model is tuned with {} already; merge that first, or load the model anew",
                earlier.name()
            )));
        }
        let mut fitted = self.clone();
        for (_, parameter) in model.parameters.iter_mut() {
            parameter.trainable = *self == Self::Full;
        }
        match &mut fitted {
            Self::Full => {}
            Self::Head if !model.network.head.purpose.has_labels() => {
                return Err(Error::Tuning(
                    "head tuning needs a classification head; this model has a language head"
                        .into(),
                ));
            }
            Self::Head => {}
            Self::Bitfit => {
                let mut found = false;
                for (_, parameter) in
                    model.parameters.iter_mut().filter(|(_, p)| p.name.ends_with("bias"))
                {
                    parameter.trainable = true;
                    found = true;
                }
                if !found {
                    return Err(Error::Tuning(
                        "this model has no biases, so BitFit would train nothing; use lora".into(),
                    ));
                }
            }
            Self::Lora(settings) => lora::attach(model, settings, seed)?,
            Self::Adapter(settings) => adapter::attach(model, settings, seed)?,
        }
        train_head(model);
        model.tuning = Some(fitted);
        Ok(())
    }
}

/// A classification head is new to its task, so it is trained whatever else is.
fn train_head(model: &mut Model) {
    if !model.network.head.purpose.has_labels() {
        return;
    }
    let ids: Vec<ParameterId> = model.network.head.parameters().collect();
    for id in ids {
        model.parameters.get_mut(id).trainable = true;
    }
}

/// Every linear layer of the blocks.
fn linear_layers(model: &Model) -> impl Iterator<Item = &Linear> {
    model.network.blocks.iter().flat_map(|block| block.linear_layers())
}

/// Folds low-rank additions into the weights that they stand beside, after which the model is an
/// ordinary one.
pub fn merge(model: &mut Model) -> Result<()> {
    if model.network.sanitiser.is_some() {
        return Err(Error::Tuning(
            "a model that perturbs records keeps its sanitiser beside its adapter, so it cannot be \
             merged; use it with --adapter".into(),
        ));
    }
    match &model.tuning {
        Some(Tuning::Adapter(_)) => Err(Error::Tuning(
            "a bottleneck adapter is not linear, so it cannot be merged into the weights; use it \
             with --adapter"
                .into(),
        )),
        _ => {
            lora::merge(model)?;
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
