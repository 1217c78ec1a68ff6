//! Makes both halves from a plan, without any private data.

use super::super::plan::{LocalMethod, LocalPlan};
use super::super::prepare::{Parts, owner_parameters, prepare};
use crate::data::{Dataset, Tally};
use crate::error::{Error, Result};
use crate::model::folder::{Reading, save, save_tensors};
use crate::model::sanitised::{SanitiserConfig, save_sanitiser};
use crate::model::{Model, ParameterId};
use crate::noise::Secret;
use crate::plan::{Method, Plan};
use crate::tensor::Device;
use crate::train::{Prepared, TrainingEvent};
use std::path::{Path, PathBuf};
use undertone_run::{AttentionSource, LearnerKind, ModeName, Releases, Tuning, write_json};

/// A model with its sanitiser, cut where the noise is added, and what each release of it is.
#[derive(Debug)]
pub struct Split {
    pub model: Model,
    pub config: SanitiserConfig,
    /// Releases of an embedding: how often, and with which noise.
    pub releases: Releases,
    /// ε of the labels' randomised response; none if labels are public.
    pub label_epsilon: Option<f64>,
    /// How the provider learns.
    pub learn: LearnerKind,
    pub delta: f64,
    /// Maximum number of tokens of a text.
    pub max_tokens: usize,
    /// Folder of the base model.
    pub origin: PathBuf,
}

/// Names of the number of blocks in the configurations of the architectures.
const BLOCKS: [&str; 4] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];

impl Split {
    /// Loads the base model, fits the encoder on public text and calibrates the noise. The
    /// plan's training file is not read. `examples` is the number of examples that are expected,
    /// which schedules over several epochs depend on.
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
        // What is drawn here (an orthogonal encoder, a new classifier) is published.
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

    /// Saves all of the model, which the provider begins from.
    pub fn save_whole(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        save_sanitiser(&self.model, &self.config, folder)?;
        Reading { max_tokens: self.max_tokens }.save(folder)?;
        Ok(save(&self.model, folder, Some(&self.origin))?)
    }

    /// Saves pre(·), the owner's half: the layers below the noise, the sanitiser and the tokenizer.
    pub fn save_below(&self, folder: &Path) -> Result<()> {
        self.save_whole(folder)?;
        let model = &self.model;
        let mut kept: Vec<ParameterId> = owner_parameters(model);
        // Architectures load their final normalisation even if it is above the noise.
        let norm = model.network.last_norm.iter();
        kept.extend(norm.flat_map(|norm| [Some(norm.weight), norm.bias]).flatten());
        // And they have at least one block.
        let blocks = model.cut().max(1);
        if model.cut() == 0 {
            kept.extend(model.network.blocks[..blocks].iter().flat_map(|b| b.parameters()));
        }
        // The final normalisation may have been below the noise, and counted, before.
        kept.sort_by_key(|id| id.index());
        kept.dedup();
        let of_base = |name: &str| !name.starts_with("sanitiser.");
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

/// Refuses what needs private examples, or more of a release than its noise hides.
fn check(plan: &Plan, local: &LocalPlan) -> Result<()> {
    if local.mode != ModeName::Proved {
        return wrong("a task's privacy.mode is \"proved\": owners are promised what is proved");
    }
    if plan.data.author.is_some() {
        return wrong("the privacy unit of a task is one text; leave data.author out");
    }
    if local.settings.rows.in_every_release().is_none() {
        return wrong("every release of a task has as many rows; leave privacy.local.lengths out");
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
        return wrong("privacy.mvg.attention of a task is \"position\", which looks at no example");
    }
    if plan.data.labels.is_none() {
        return wrong("a task needs data.labels: the provider sees no file to find them in");
    }
    Ok(())
}
