//! The privacy accountant.

use crate::errors::{raised, user_error};
use crate::values::{python_of, to_json};
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use undertone_accounting::{Accountant, Adjacency, Composition, Event, Part, calibrate};

/// Parses one of a fixed set of names, such as an accountant or an adjacency.
fn named<T: DeserializeOwned>(what: &str, name: &str, all: &str) -> PyResult<T> {
    serde_json::from_value(Value::String(name.to_owned()))
        .map_err(|_| user_error(format!("{what} is {name:?}, but must be one of {all}")))
}

fn accountant_of(name: &str) -> PyResult<Accountant> {
    named("accountant", name, "auto, prv, rdp, gdp, gaussian")
}

/// The composition of all releases, from a list of events with their counts.
fn composition(adjacency: &str, parts: &Bound<'_, PyAny>) -> PyResult<Composition> {
    let adjacency: Adjacency = named("adjacency", adjacency, "add-remove, replace-one")?;
    let value = to_json(parts).map_err(|unusable| unusable.named("an event"))?;
    let parts = Vec::<Part>::deserialize(value).map_err(|e| user_error(e.to_string()))?;
    if parts.is_empty() {
        return Err(user_error("nothing was released yet; call step() first"));
    }
    let mut composition = Composition::new(adjacency);
    parts.iter().for_each(|part| composition.push(part.event, part.count));
    Ok(composition)
}

/// ε of some releases at a given δ.
#[pyfunction]
pub fn epsilon<'py>(
    py: Python<'py>,
    adjacency: &str,
    parts: &Bound<'py, PyAny>,
    delta: f64,
    accountant: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (composition, accountant) = (composition(adjacency, parts)?, accountant_of(accountant)?);
    crate::process::check()?;
    let answer = py.detach(|| undertone_accounting::epsilon(&composition, delta, accountant));
    python_of(py, &answer.map_err(raised)?)
}

/// δ of some releases at a given ε.
#[pyfunction]
pub fn delta<'py>(
    py: Python<'py>,
    adjacency: &str,
    parts: &Bound<'py, PyAny>,
    epsilon: f64,
    accountant: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (composition, accountant) = (composition(adjacency, parts)?, accountant_of(accountant)?);
    crate::process::check()?;
    let answer = py.detach(|| undertone_accounting::delta(&composition, epsilon, accountant));
    python_of(py, &answer.map_err(raised)?)
}

/// The least noise multiplier of DP-SGD whose ε at δ is at most `epsilon`.
#[pyfunction]
pub fn noise_multiplier(
    py: Python,
    epsilon: f64,
    delta: f64,
    sample_rate: f64,
    steps: u64,
    accountant: &str,
) -> PyResult<f64> {
    let accountant = accountant_of(accountant)?;
    crate::process::check()?;
    let event = Event::PoissonGaussian { noise_multiplier: 1.0, sampling_rate: sample_rate };
    event.validate().map_err(raised)?;
    if steps == 0 {
        return Err(user_error("steps must be at least 1"));
    }
    let calibrated =
        py.detach(|| calibrate::noise_multiplier(epsilon, delta, sample_rate, steps, accountant));
    Ok(calibrated.map_err(raised)?.noise)
}

/// The largest true-positive rate of any attack at each false-positive rate.
#[pyfunction]
pub fn trade_off<'py>(
    py: Python<'py>,
    adjacency: &str,
    parts: &Bound<'py, PyAny>,
    false_positive_rates: Vec<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let composition = composition(adjacency, parts)?;
    crate::process::check()?;
    let points = py.detach(|| {
        undertone_accounting::trade_off(&composition, &false_positive_rates, Accountant::Auto)
    });
    python_of(py, &points.map_err(raised)?)
}
