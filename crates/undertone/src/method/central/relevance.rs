//! Rap-FT's relevance map, and its release.

use super::plan::{MapSource, RapFtPlan};
use super::rap_ft::{Recorded, ReleasedRelevanceMap, RelevanceMap, RelevanceSum};
use crate::data::{Dataset, PoissonSampler};
use crate::error::{Error, Result};
use crate::explain::relevance::Explainer;
use crate::method::ledger::RunLedger;
use crate::model::Parameters;
use crate::model::folder::save_tensors;
use crate::noise::{Noise, Secret, purpose};
use crate::tensor::Matrix;
use crate::train::{Prepared, TrainingEvent};
use std::path::Path;
use undertone_accounting::Event;

/// A relevance map, by whether it may be released.
pub enum ComputedMap {
    /// Of public examples, or with noise.
    Released(ReleasedRelevanceMap),
    /// Of private examples without noise: paper mode.
    Raw(RelevanceMap),
}

/// Computes the relevance map of a plan. One with noise is recorded in the ledger before it is
/// released; on resuming, the same sample and the same noise give the same map.
pub fn map(
    plan: &RapFtPlan,
    prepared: &Prepared,
    release: Option<Event>,
    secret: &Secret,
    ledger: &mut RunLedger,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<ComputedMap> {
    let seed = secret.number(purpose::PROBES);
    let explainer = Explainer::new(&prepared.model, plan.rule, plan.initial, seed)?;
    let mut sum_of = |data: &Dataset, examples: &[usize]| -> Result<RelevanceSum> {
        let mut sum = RelevanceSum::new(&prepared.model.parameters);
        for (done, &example) in examples.iter().enumerate() {
            let found = match &data.masking {
                Some(masking) => {
                    let key = secret.key(purpose::MASKING);
                    explainer.relevance(&masking.in_relevance_map(&data.examples, example, key))?
                }
                None => explainer.relevance(&data.examples[example])?,
            };
            let found = found.of;
            match plan.source {
                MapSource::Raw { .. } => sum.add_unscaled(&found),
                MapSource::Public { .. } | MapSource::Noised { .. } => sum.add(&found),
            }
            callback(TrainingEvent::Relevance { done: done + 1, examples: examples.len() });
        }
        Ok(sum)
    };
    let data = &prepared.data;
    match (&plan.source, &prepared.public.relevance, release) {
        (MapSource::Public { examples, .. }, Some(public), _) => {
            let first: Vec<usize> = (0..public.examples.len().min(*examples)).collect();
            Ok(ComputedMap::Released(ReleasedRelevanceMap::of_public(
                sum_of(public, &first)?.mean(),
            )))
        }
        (
            MapSource::Noised { .. },
            _,
            Some(event @ Event::PoissonGaussian { noise_multiplier, sampling_rate }),
        ) => {
            let sum = sum_of(data, &sample(data, sampling_rate, secret)?)?;
            let recorded = Recorded::after(|| ledger.record(0, event, 1))?;
            Ok(ComputedMap::Released(ReleasedRelevanceMap::noised(
                sum,
                &Noise::new(secret),
                noise_multiplier,
                recorded,
            )))
        }
        (MapSource::Raw { examples }, ..) => {
            let sampling_rate = (*examples as f64 / data.units.max(1) as f64).min(1.0);
            Ok(ComputedMap::Raw(sum_of(data, &sample(data, sampling_rate, secret)?)?.mean()))
        }
        _ => Err(Error::plan(
            "a relevance map of private examples needs epsilon, of which it takes a share",
        )),
    }
}

/// The first example of each unit in a Poisson sample: a unit adds one map of norm at most 1.
fn sample(data: &Dataset, sampling_rate: f64, secret: &Secret) -> Result<Vec<usize>> {
    let key = secret.key(purpose::RELEVANCE);
    let units = PoissonSampler::new(data.units, sampling_rate, key)?.step(0);
    let members = data.members();
    Ok(units.iter().filter_map(|&unit| members.of_units(&[unit]).first().copied()).collect())
}

/// Mean of each trainable parameter's normalised relevance.
pub fn by_parameter(map: &RelevanceMap, parameters: &Parameters) -> Vec<(String, f64)> {
    let trained = parameters.iter().filter(|(_, parameter)| parameter.trainable);
    let mean = |values: Vec<f32>| {
        values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len().max(1) as f64
    };
    trained.map(|(id, parameter)| (parameter.name.clone(), mean(map.normalised(id)))).collect()
}

/// Saves a map as safetensors, under the names of the parameters.
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
