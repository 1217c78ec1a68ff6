//! Rap-FT's relevance map, and its release.

use super::plan::{MapSource, RapFtPlan};
use super::rap_ft::{ClippedRelevanceSum, ReleasedRelevanceMap, RelevanceMap, RelevanceSum};
use crate::data::{Dataset, PoissonSampler};
use crate::error::{Error, Result};
use crate::explain::relevance::{Explainer, Probes};
use crate::memory::PartOfRun;
use crate::method::{Prepared, TrainingEvent};
use crate::model::Parameters;
use crate::model::folder::save_tensors;
use crate::noise::{Noise, Secret, purpose};
use crate::replay::Tape;
use crate::step::RunLedger;
use crate::tensor::Matrix;
use std::path::Path;
use std::time::Instant;
use undertone_accounting::Event;
use undertone_run::RelevanceCost;

/// A computed relevance map: either releasable or raw.
pub enum ComputedMap {
    /// Computed from public examples, or noisy.
    Released(ReleasedRelevanceMap),
    /// Computed from private examples without noise: paper mode.
    Raw(RelevanceMap),
}

/// Computes the relevance map of a plan and its cost. A noisy map is recorded in the ledger before
/// it is released; on resuming, the same sample and the same noise give the same map.
pub fn map(
    plan: &RapFtPlan,
    prepared: &Prepared,
    release: Option<Event>,
    secret: &Secret,
    ledger: &mut RunLedger,
    tape: Option<&Tape>,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<(ComputedMap, Option<RelevanceCost>)> {
    let probes = Probes { seed: secret.number(purpose::PROBES), count: plan.probes };
    let explainer = Explainer::new(&prepared.model, plan.rule, plan.initial, probes)?
        .with_activations(plan.activations);
    let parameters = &prepared.model.parameters;
    let mut cost = None;
    let mut each = |data: &Dataset, examples: &[usize], add: &mut dyn FnMut(&[Vec<f32>])| {
        let (memory, begun) = (PartOfRun::begin(), Instant::now());
        for (done, &example) in examples.iter().enumerate() {
            let relevance = match &data.masking {
                Some(masking) => {
                    let key = secret.key(purpose::MASKING);
                    explainer.relevance(&masking.in_relevance_map(&data.examples, example, key))?
                }
                None => explainer.relevance(&data.examples[example])?,
            };
            add(&relevance.of);
            callback(TrainingEvent::Relevance { done: done + 1, examples: examples.len() });
        }
        cost = (!examples.is_empty()).then(|| RelevanceCost {
            seconds_per_example: begun.elapsed().as_secs_f64() / examples.len() as f64,
            peak_memory_bytes: memory.and_then(|memory| memory.peak()),
        });
        Ok::<(), Error>(())
    };
    let data = &prepared.data;
    let map = match (&plan.source, &prepared.public.relevance, release) {
        (MapSource::Public { examples, .. }, Some(public), _) => {
            let first: Vec<usize> = (0..public.examples.len().min(*examples)).collect();
            let mut sum = RelevanceSum::new(parameters);
            each(public, &first, &mut |map| sum.add(map))?;
            ComputedMap::Released(ReleasedRelevanceMap::of_public(sum.mean()))
        }
        (
            MapSource::Noised { clip, .. },
            _,
            Some(event @ Event::PoissonGaussian { noise_multiplier, sampling_rate }),
        ) => {
            let mut sum = ClippedRelevanceSum::new(parameters, *clip);
            each(data, &sample(data, sampling_rate, secret)?, &mut |map| sum.add(map))?;
            let recorded = ledger.record(0, event, 1)?;
            let noise = Noise::new(secret);
            if let Some(tape) = tape {
                sum.pass(tape, noise_multiplier);
            }
            let map = ReleasedRelevanceMap::noised(sum, &noise, noise_multiplier, recorded)?;
            ComputedMap::Released(map)
        }
        (MapSource::Raw { examples }, ..) => {
            let sampling_rate = (*examples as f64 / data.units.max(1) as f64).min(1.0);
            let mut sum = RelevanceSum::new(parameters);
            each(data, &sample(data, sampling_rate, secret)?, &mut |map| sum.add(map))?;
            ComputedMap::Raw(sum.mean())
        }
        _ => {
            return Err(Error::plan(
                "a relevance map of private examples needs epsilon, of which it takes a share",
            ));
        }
    };
    Ok((map, cost))
}

/// The first example of each unit in a Poisson sample: each unit contributes one map.
fn sample(data: &Dataset, sampling_rate: f64, secret: &Secret) -> Result<Vec<usize>> {
    let key = secret.key(purpose::RELEVANCE);
    let units = PoissonSampler::new(data.units, sampling_rate, key)?.step(0);
    let members = data.members();
    Ok(units.iter().filter_map(|&unit| members.of_units(&[unit]).first().copied()).collect())
}

/// Mean normalized relevance of each trainable parameter.
pub fn by_parameter(map: &RelevanceMap, parameters: &Parameters) -> Vec<(String, f64)> {
    let trained = parameters.iter().filter(|(_, parameter)| parameter.trainable);
    let mean = |values: Vec<f32>| {
        values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len().max(1) as f64
    };
    trained.map(|(id, parameter)| (parameter.name.clone(), mean(map.normalized(id)))).collect()
}

/// Saves a map as safetensors, with the names of the parameters.
pub fn save(path: &Path, map: &RelevanceMap, parameters: &Parameters) -> Result<()> {
    let mut tensors = parameters.clone();
    for (id, parameter) in tensors.iter_mut().filter(|(_, parameter)| parameter.trainable) {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        parameter.value = Matrix::from_vec(rows, columns, map.of[id.index()].clone());
    }
    let trained =
        tensors.iter().map(|(_, parameter)| parameter).filter(|parameter| parameter.trainable);
    Ok(save_tensors(path, trained.map(|parameter| (parameter.name.clone(), parameter)))?)
}
