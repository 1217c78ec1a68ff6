//! The relevance map that Rap-FT begins with, and what is paid for it.

use super::error::{Error, Result};
use super::news::News;
use super::plan::{Given, Method, ModeName, Plan, RelevanceSource, Resolved};
use super::prepare::Prepared;
use crate::data::{Dataset, PoissonSampler};
use crate::explain::relevance::{AlphaBeta, Explainer};
use crate::mechanism::allocation::{Map, MapSum, Paid, SeenMap};
use crate::mechanism::{Noise, Secret, purpose};
use crate::model::Parameters;
use crate::model::folder::save_tensors;
use crate::tensor::Matrix;
use std::path::Path;
use undertone_accounting::Event;
use undertone_accounting::ledger::Ledger;

/// What the plan's method must be given. A noised map is in the ledger before it is released; on
/// resuming the same examples and the same noise give the same map.
pub fn given(
    plan: &Plan,
    prepared: &Prepared,
    resolved: &Resolved,
    secret: &Secret,
    ledger: Option<&mut Ledger>,
    watch: &mut dyn FnMut(News),
) -> Result<Given> {
    let (Method::RapFt, Some(ledger)) = (plan.privacy.method, ledger) else {
        return Ok(Given::Nothing);
    };
    let settings = &plan.privacy.rap_ft;
    let rule = AlphaBeta { alpha: settings.alpha, beta: 1.0 - settings.alpha };
    let seed = secret.number(purpose::PROBES);
    let explainer = Explainer::new(&prepared.model, rule, settings.initial, seed)?;
    let mut sum_of = |data: &Dataset, examples: &[usize]| -> Result<MapSum> {
        let mut sum = MapSum::new(&prepared.model.parameters);
        for (done, &example) in examples.iter().enumerate() {
            sum.add(&explainer.relevance(&data.examples[example])?.of);
            watch(News::Relevance { done: done + 1, examples: examples.len() });
        }
        Ok(sum)
    };
    let first =
        |data: &Dataset| (0..data.examples.len().min(settings.examples)).collect::<Vec<_>>();
    if let (ModeName::Proved, Some(public)) = (plan.privacy.mode, &prepared.public) {
        let map = sum_of(public, &first(public))?.mean();
        return Ok(Given::Seen(SeenMap::of_public(map)));
    }
    let data = &prepared.data;
    let rate = match (&settings.relevance, resolved.before) {
        (_, Some(Event::PoissonGaussian { sampling_rate, .. })) => sampling_rate,
        _ => (settings.examples as f64 / data.units.max(1) as f64).min(1.0),
    };
    let units = PoissonSampler::new(data.units, rate, secret.key(purpose::RELEVANCE))?.step(0);
    // Of a unit with several examples the first: the unit adds one map of length 1.
    let members = data.members();
    let examples: Vec<usize> =
        units.iter().filter_map(|&unit| members.of_units(&[unit]).first().copied()).collect();
    let sum = sum_of(data, &examples)?;
    match (plan.privacy.mode, resolved.before, &settings.relevance) {
        (ModeName::Proved, Some(event), RelevanceSource::Noised { .. }) => {
            let paid = Paid::after(|| match ledger.entries() {
                0 => ledger.append(event, 1),
                _ => Ok(()),
            })?;
            let Event::PoissonGaussian { noise_multiplier, .. } = event else {
                return Ok(Given::Nothing);
            };
            Ok(Given::Seen(SeenMap::noised(sum, &Noise::new(secret), noise_multiplier, paid)))
        }
        (ModeName::Paper, ..) => Ok(Given::Raw(sum.mean())),
        _ => Err(Error::plan(
            "a relevance map of private examples needs epsilon, of which it takes a share",
        )),
    }
}

/// The mean of each trained parameter's normalised relevance.
pub fn by_parameter(map: &Map, parameters: &Parameters) -> Vec<(String, f64)> {
    let trained = parameters.iter().filter(|(_, parameter)| parameter.trainable);
    let mean = |values: Vec<f32>| {
        values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len().max(1) as f64
    };
    trained.map(|(id, parameter)| (parameter.name.clone(), mean(map.normalised(id)))).collect()
}

/// Writes a map under the names of the parameters.
pub fn save(path: &Path, map: &Map, parameters: &Parameters) -> Result<()> {
    let mut tensors = parameters.clone();
    for (id, parameter) in tensors.iter_mut().filter(|(_, parameter)| parameter.trainable) {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        parameter.value = Matrix::from_vec(rows, columns, map.of[id.index()].clone());
    }
    let trained =
        tensors.iter().map(|(_, parameter)| parameter).filter(|parameter| parameter.trainable);
    Ok(save_tensors(path, trained.map(|parameter| (parameter.name.clone(), parameter)))?)
}
