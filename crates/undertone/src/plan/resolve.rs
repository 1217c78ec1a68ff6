//! Turns a run file as written into a plan: the recipe fills in "auto" values.

use super::Plan;
use super::recipe::{PublicFacts, prefers_full_fine_tuning, recipe};
use crate::data::{HoldOut, Part, PrivacyUnit, Task, UnitCount, count_units};
use crate::error::{Error, Result};
use crate::model::TaskHead;
use crate::model::folder::{LoadOptions, Outline, locate};
use crate::tensor::Device;
use undertone_run::{
    AutoKey, Choices, DataSection, LoraSettings, MethodName, TaskName, Tuning, WrittenRun,
};

/// A plan, and the keys that the recipe chose for it.
#[derive(Clone, Debug)]
pub struct ResolvedPlan {
    /// The plan, with no value left open.
    pub plan: Plan,
    /// The keys that were left to the recipe.
    pub chosen: Vec<AutoKey>,
}

impl Plan {
    /// Checks a run file and lets the recipe choose the values that it leaves open. Reads only the
    /// model and, unless it is declared, the number of units in the training file.
    pub fn resolve(written: &WrittenRun, device: &Device) -> Result<ResolvedPlan> {
        let chosen = written.open().to_vec();
        // First use placeholder choices of the right kind: contradictions are reported before
        // anything is loaded.
        let draft = written.complete(&recipe(&draft_facts(written, device)))?;
        let plan = Self::check(draft)?;
        if chosen.is_empty() {
            return Ok(ResolvedPlan { plan, chosen });
        }
        if written.method().is_local() {
            // Only δ is open, and it depends only on the number of units.
            let (units, sampled) = public_numbers(written)?;
            let facts = PublicFacts { units, sampled, ..draft_facts(written, device) };
            let plan = Self::check(written.complete(&recipe(&facts))?)?;
            return Ok(ResolvedPlan { plan, chosen });
        }
        let facts = public_facts(written, device)?;
        let plan = Self::check(written.complete(&recipe(&facts))?)?;
        Ok(ResolvedPlan { plan, chosen })
    }

    /// Like [`Plan::resolve`], for a model that is not available: the recipe does not use its
    /// number of parameters, and the base model is assumed to have the head that its task needs.
    pub fn resolve_without_model(written: &WrittenRun, device: &Device) -> Result<Self> {
        let (units, sampled) = public_numbers(written)?;
        let facts = PublicFacts { units, sampled, ..draft_facts(written, device) };
        Self::check(written.complete(&recipe(&facts))?)
    }

    /// Like [`Plan::resolve`], with the choices of an earlier resolved plan: a resumed run keeps
    /// its original choices.
    pub fn resolve_as(written: &WrittenRun, earlier: &Plan) -> Result<Self> {
        Self::check(written.complete(&Choices::of(&earlier.file()))?)
    }
}

/// The number of units that the recipe may use, the declared number or that of the training file,
/// and the number of units or examples that steps sample.
fn public_numbers(written: &WrittenRun) -> Result<(u64, u64)> {
    if let Some(units) = written.declared_units() {
        return Ok((units, units));
    }
    let UnitCount { units, examples, .. } = units_of(written.data())?;
    let sampled = if written.samples_units() { units } else { examples };
    Ok((units as u64, sampled as u64))
}

/// The number of units and rows of the training file.
pub fn units_of(data: &DataSection) -> Result<UnitCount> {
    let unit = match &data.author {
        Some(column) => {
            PrivacyUnit::Author { column: column.clone(), at_most: data.most_per_author }
        }
        None => PrivacyUnit::Row,
    };
    let completion =
        Task::Completion { prompt: data.prompt.clone(), completion: data.completion.clone() };
    let texts: Vec<&str> = match data.task {
        TaskName::Completion => completion.columns(),
        TaskName::Chat => vec![&data.messages],
        _ => data.text.iter().map(String::as_str).collect(),
    };
    let part = data.hold_out.map_or(Part::All, |share| Part::Without(HoldOut(share)));
    Ok(count_units(&data.train, data.format, &texts, &unit, part, data.on_bad_row)?)
}

/// Facts about a run, without looking at its data and model.
fn draft_facts(written: &WrittenRun, device: &Device) -> PublicFacts {
    const UNITS: u64 = 10_000;
    PublicFacts {
        private: written.method() != MethodName::None,
        epsilon: written.epsilon(),
        units: UNITS,
        sampled: UNITS,
        parameters: None,
        task: written.data().task,
        tuning: written.tuning().cloned().unwrap_or_else(usual_tuning),
        optimizer: written.optimizer(),
        gpu: matches!(device, Device::Cuda(_)),
    }
}

/// LoRA on the architecture's usual layers: under noise, training few parameters classifies better
/// than training all.
pub(super) fn usual_tuning() -> Tuning {
    Tuning::Lora(LoraSettings::default())
}

fn public_facts(written: &WrittenRun, device: &Device) -> Result<PublicFacts> {
    let draft = draft_facts(written, device);
    let task_head = TaskHead::of(written.data().task);
    let options = LoadOptions {
        task_head: Some(task_head),
        labels: written.data().labels.clone(),
        ..LoadOptions::default()
    };
    let mut model = Outline::read(&locate(&written.model().name())?, &options)?.model;
    // LoRA would leave a new masked-language-modeling head with random weights.
    let head_is_new = task_head == TaskHead::MaskedLanguageModel && !model.fresh.is_empty();
    let (_, all) = model.parameters.count();
    let tuning = match written.tuning() {
        Some(tuning) => tuning.clone(),
        None if head_is_new || prefers_full_fine_tuning(draft.task, all as u64) => Tuning::Full,
        None => draft.tuning.clone(),
    };
    if model.network.sanitizer.is_some() {
        return Err(Error::plan(
            "the model has already been trained on perturbed embeddings; start from its base model",
        ));
    }
    model.apply_tuning(&tuning, 0)?;
    let (trainable, _) = model.parameters.count();
    let (units, sampled) = public_numbers(written)?;
    Ok(PublicFacts { units, sampled, parameters: Some(trainable as u64), tuning, ..draft })
}
