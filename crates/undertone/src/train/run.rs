//! A run from beginning to end.

use super::card::{Saved, card};
use super::checkpoint;
use super::error::{Error, Result};
use super::folder::RunFolder;
use super::forward;
use super::identity::Identity;
use super::news::News;
use super::plan::{Given, Plan, Resolved};
use super::prepare::Prepared;
use super::relevance;
use super::spending::open_ledger;
use super::steps::Run;
use super::summary::{Measured, Summary, peak_memory};
use crate::data::Dataset;
use crate::mechanism::Secret;
use crate::model::folder::{save, write_atomically, write_json};
use crate::model::sanitised::save_sanitiser;
use crate::model::tuning::{Tuning, save_adapter};
use crate::tensor::Device;
use std::io::Write;
use std::path::Path;

/// How a run is started.
#[derive(Debug)]
pub struct Start<'a> {
    /// What it is.
    pub plan: Plan,
    /// Where it is kept.
    pub out: &'a Path,
    /// Whether it goes on with what is there.
    pub resume: bool,
    /// Where it computes.
    pub device: Device,
    /// Examples in place of those of the training file: an audit leaves some out, or puts canaries
    /// in.
    pub data: Option<Dataset>,
}

/// Trains, and leaves the run's folder behind.
pub fn train(start: Start, watch: &mut dyn FnMut(News)) -> Result<Summary> {
    let folder =
        if start.resume { RunFolder::open(start.out)? } else { RunFolder::create(start.out)? };
    if folder.summary().exists() {
        folder.forget_secrets()?;
        return Err(Error::folder(start.out, "is finished; there is nothing to resume"));
    }
    let plan = start.plan;
    let begun = start.resume && folder.has_begun();
    let secret = match plan.training.seed {
        Some(seed) => Secret::from_seed(seed),
        None if begun => folder.secret()?,
        None => Secret::from_system().map_err(Error::NoRandomness)?,
    };
    let mut prepared = Prepared::load(&plan, &secret, &start.device, start.data)?;
    let mut resolved = match plan.is_forward() {
        true => {
            plan.resolve_forward(prepared.data.units, prepared.model.network.head.out.outputs)?
        }
        false => plan.resolve(prepared.data.units)?,
    };
    // Before the ledger: a run that breaks off here is begun anew by --resume, and has released
    // nothing.
    let also = [&prepared.public, &prepared.public_text, &prepared.adaptation].map(Option::as_ref);
    let data = [Some(&prepared.data)].into_iter().chain(also);
    let identity = Identity::of(&plan, &secret, &prepared.model, data)?;
    if begun {
        folder.check_identity(&identity)?;
    } else {
        folder.keep_identity(&identity)?;
        if plan.training.seed.is_none() {
            folder.keep_secret(&secret)?;
        }
        write_plan(&folder, &plan, &resolved)?;
    }
    let mut ledger = if plan.is_private() {
        Some(open_ledger(&folder, &plan, &resolved, &prepared)?)
    } else {
        None
    };
    let perturbing = match &mut ledger {
        Some(ledger) if plan.is_forward() => {
            Some(forward::prepare(&plan, &mut prepared, &mut resolved, &secret, ledger, watch)?)
        }
        _ => None,
    };
    let given = relevance::given(&plan, &prepared, &resolved, &secret, ledger.as_mut(), watch)?;
    let method = plan.method(&prepared.model.parameters, &given);
    // A map without noise, in paper mode, is shown nowhere.
    let mut relevance = Vec::new();
    if let Given::Seen(map) = &given {
        relevance = relevance::by_parameter(map.map(), &prepared.model.parameters);
        relevance::save(&folder.relevance(), map.map(), &prepared.model.parameters)?;
    }
    let mut run = Run::new(folder, plan, resolved, prepared, method, secret, ledger)?;
    run.relevance = relevance;
    run.perturbing = perturbing;
    if start.resume && run.folder.checkpoint().exists() {
        run.done = checkpoint::load(&run.folder.checkpoint(), &mut run.learner)?;
        run.check_that_all_is_entered()?;
    }
    run.all_steps(watch)?;
    run.finish()
}

fn write_plan(folder: &RunFolder, plan: &Plan, resolved: &Resolved) -> Result<()> {
    #[derive(serde::Serialize)]
    struct Answer<'a> {
        resolved: &'a Resolved,
    }
    let unwritable =
        |e: toml::ser::Error| Error::folder(&folder.plan(), format!("cannot be written: {e}"));
    let text = toml::to_string(plan).map_err(unwritable)?;
    let answer = toml::to_string(&Answer { resolved }).map_err(unwritable)?;
    Ok(write_atomically(&folder.plan(), |out| {
        write!(out, "{text}\n# What it came to on the data; read by nobody.\n{answer}")
    })?)
}

impl Run {
    /// Writes the model and, last, the summary.
    fn finish(mut self) -> Result<Summary> {
        if self.last_validation.is_none() {
            self.validate()?;
        }
        let model = &self.learner.model;
        let out = self.folder.path().to_owned();
        let adapted = self.plan.is_forward() && self.plan.privacy.forward.adapt.is_some();
        let folder = match self.plan.model.tuning {
            Tuning::Full => out.join("model"),
            // What learnt from public data is more than what the tuning names.
            Tuning::Head if adapted => out.join("model"),
            _ => out.join("adapter"),
        };
        // Before the rest: a folder with a configuration is whole.
        if let Some(perturbing) = &self.perturbing {
            std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
            save_sanitiser(model, &perturbing.config, &folder)?;
        }
        if folder.ends_with("model") {
            save(model, &folder, Some(&self.origin))?;
        } else {
            save_adapter(model, &folder, &self.origin.display().to_string())?;
        }
        let noisy = self.validate_with_noise()?;
        let not_private_because = match (self.plan.is_private(), self.plan.training.seed) {
            (false, _) => Some("the method is \"none\": no noise was added".to_owned()),
            (true, Some(seed)) => {
                Some(format!("whoever knows the seed ({seed}) can take the noise off again"))
            }
            (true, None) => self.plan.unaccounted().map(str::to_owned),
        };
        let selection = match &self.plan.data.validation {
            Some(path) => format!(
                "{} was used to report, not to choose; if it is private, what is reported about it \
                 is not covered by the guarantee",
                path.display()
            ),
            None => "no other data were used".to_owned(),
        };
        let summary = Summary {
            private: not_private_because.is_none(),
            not_private_because,
            guarantee: self.guarantee()?,
            claimed: self.claimed()?,
            metrics: Measured {
                validation: self.last_validation.clone(),
                validation_with_noise: noisy,
            },
            records: self.perturbing.as_ref().map(|perturbing| perturbing.facts.clone()),
            selection,
            throughput: self.throughput(),
            peak_memory_bytes: peak_memory(),
            steps: self.done,
            parameters: self.counts(),
            noise_by_parameter: self.learner.noise_by_parameter(),
            relevance_by_parameter: self.relevance.clone(),
            resolved: self.resolved.clone(),
            ledger_hash: self.ledger.as_ref().map(|ledger| ledger.hash().to_owned()),
            plan: self.plan.clone(),
        };
        let saved =
            Saved { whole: folder.ends_with("model"), classes: model.network.head.out.outputs };
        let card = card(&summary, saved);
        write_atomically(&folder.join("README.md"), |out| out.write_all(card.as_bytes()))?;
        // In this order: a run that breaks off between the two is finished, and its secret is
        // removed by whoever looks next.
        write_json(&self.folder.summary(), &summary)?;
        self.folder.forget_secrets()?;
        Ok(summary)
    }
}
