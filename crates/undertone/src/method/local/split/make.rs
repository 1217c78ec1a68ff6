//! Creates both halves from a plan, without any private data.

use super::super::plan::{LocalMethod, LocalPlan};
use super::super::prepare::{Parts, owner_parameters, prepare};
use crate::data::{Dataset, Tally};
use crate::error::{Error, Result};
use crate::method::{Prepared, TrainingEvent};
use crate::model::folder::{Reading, save, save_tensors};
use crate::model::sanitized::{SanitizerConfig, save_sanitizer};
use crate::model::{Model, ParameterId};
use crate::noise::Secret;
use crate::plan::{Method, Plan};
use crate::tensor::Device;
use std::path::{Path, PathBuf};
use undertone_run::{AttentionSource, LearnerKind, ModeName, Releases, Tuning, write_json};

/// A model with its sanitizer, split where the noise is added, and a description of its releases.
#[derive(Debug)]
pub struct Split {
    pub model: Model,
    pub config: SanitizerConfig,
    /// Releases of an embedding: their number and noise.
    pub releases: Releases,
    /// ε of the labels' randomized response; `None` if labels are public.
    pub label_epsilon: Option<f64>,
    /// How the provider learns.
    pub learn: LearnerKind,
    pub delta: f64,
    /// Maximum number of tokens in a text.
    pub max_tokens: usize,
    /// Folder of the base model.
    pub origin: PathBuf,
}

/// Keys for the number of blocks in the configurations of the architectures.
const BLOCKS: [&str; 4] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];

impl Split {
    /// Loads the base model, fits the encoder on public text and calibrates the noise. The plan's
    /// training file is not read. `examples` is the expected number of examples, which affects
    /// schedules over several epochs.
    pub fn make(
        plan: &Plan,
        device: &Device,
        examples: usize,
        callback: &mut dyn FnMut(TrainingEvent),
    ) -> Result<Self> {
        let Method::Local(local) = &plan.method else {
            return wrong("a task's privacy.method is \"dp-forward\", \"ew-ft\" or \"mvg\"");
        };
        check(plan, local)?;
        // Values drawn here (an orthogonal encoder, a new classifier) are published.
        let secret = match plan.training.seed {
            Some(seed) => Secret::from_seed(seed),
            None => Secret::from_system().map_err(Error::NoRandomness)?,
        };
        let none = Dataset {
            examples: Vec::new(),
            labels: None,
            units: 0,
            most_per_unit: 1,
            masking: None,
            skipped: 0,
            tally: Tally::default(),
        };
        let mut prepared = Prepared::load(plan, &secret, device, Some(none))?;
        let classes = prepared.model.network.head.out.outputs;
        let mut resolved = local.calibrate(&plan.training, examples.max(1), classes)?;
        let parts = Parts {
            run: plan,
            prepared: &mut prepared,
            resolved: &mut resolved,
            secret: &secret,
            ledger: None,
            tape: None,
            callback,
        };
        let perturbation = prepare(local, parts)?;
        let Some(releases) = resolved.releases else {
            return wrong("a task needs releases of embeddings");
        };
        Ok(Self {
            model: prepared.model,
            config: perturbation.config,
            releases,
            label_epsilon: local.settings.label_epsilon,
            learn: local.settings.learn,
            delta: local.delta,
            max_tokens: plan.data.max_tokens,
            origin: prepared.origin,
        })
    }

    /// Saves the whole model, from which the provider starts.
    pub fn save_whole(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        save_sanitizer(&self.model, &self.config, folder)?;
        Reading::up_to(self.max_tokens).save(folder)?;
        Ok(save(&self.model, folder, Some(&self.origin))?)
    }

    /// Saves pre(·), the owner's half: the layers below the noise, the sanitizer and the tokenizer.
    pub fn save_below(&self, folder: &Path) -> Result<()> {
        self.save_whole(folder)?;
        let model = &self.model;
        let mut kept: Vec<ParameterId> = owner_parameters(model);
        // Architectures load their final normalization even if it is above the noise.
        let norm = model.network.last_norm.iter();
        kept.extend(norm.flat_map(|norm| [Some(norm.weight), norm.bias]).flatten());
        // They also have at least one block.
        let blocks = model.cut().max(1);
        if model.cut() == 0 {
            kept.extend(model.network.blocks[..blocks].iter().flat_map(|b| b.parameters()));
        }
        // If the final normalization was below the noise, it is already in the list.
        kept.sort_by_key(|id| id.index());
        kept.dedup();
        let of_base = |name: &str| !name.starts_with("sanitizer.");
        let below = kept.into_iter().map(|id| model.parameters.get(id));
        let below = below.filter(|parameter| of_base(&parameter.name));
        let weights = folder.join("model.safetensors");
        save_tensors(&weights, below.map(|parameter| (parameter.name.clone(), parameter)))?;
        let mut config = model.config.as_map().clone();
        for key in BLOCKS {
            if config.contains_key(key) {
                config.insert(key.to_owned(), serde_json::json!(blocks));
            }
        }
        Ok(write_json(&folder.join("config.json"), &config)?)
    }
}

fn wrong<T>(sentence: &str) -> Result<T> {
    Err(Error::plan(sentence))
}

/// Rejects a plan that needs private examples, or that releases more than its noise hides.
fn check(plan: &Plan, local: &LocalPlan) -> Result<()> {
    if local.mode != ModeName::Proved {
        return wrong("a task's privacy.mode is \"proved\": owners are promised what is proved");
    }
    if plan.data.author.is_some() {
        return wrong("the privacy unit of a task is one text; leave data.author out");
    }
    if local.settings.rows.in_every_release().is_none() {
        return wrong(
            "all releases of a task have the same number of rows; omit \
                      privacy.local.lengths",
        );
    }
    if !matches!(plan.model.tuning, Tuning::Head | Tuning::Full) {
        return wrong("model.tuning of a task is \"head\" or \"full\"");
    }
    if local.adapt.as_ref().is_some_and(|adapt| adapt.share.is_some()) {
        return wrong("adapt.share learns from private examples; a task has public data only");
    }
    if let LocalMethod::Mvg(mvg) = &local.method
        && mvg.attention != AttentionSource::Position
    {
        return wrong("privacy.mvg.attention of a task is \"position\", which uses no examples");
    }
    if plan.data.labels.is_none() {
        return wrong("a task needs data.labels: the provider has no file to read them from");
    }
    Ok(())
}
