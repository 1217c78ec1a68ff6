//! The common part of a run and a dry run: everything is loaded and checked and the noise is
//! calibrated, before anything is released.

use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::method::{self, Prepared, TrainingEvent};
use crate::noise::Secret;
use crate::plan::{Method, Plan, Population};
use crate::synthesize;
use crate::tensor::Device;
use undertone_run::{ParameterCounts, Resolved};

/// The device with the plan's precision.
pub fn device_of(plan: &Plan, device: Device) -> Result<Device> {
    let device = match plan.precision() {
        Some(precision) => device.with_precision(precision),
        None => Ok(device),
    };
    Ok(device.map_err(crate::model::Error::from)?)
}

/// Loads the model and all data of a plan, and calibrates the noise. Reports
/// [`TrainingEvent::Loaded`], from which warnings are derived. `data` replaces the training file.
pub fn load(
    plan: &Plan,
    secret: &Secret,
    device: &Device,
    data: Option<Dataset>,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<(Prepared, Resolved)> {
    let mut prepared = Prepared::load(plan, secret, device, data)?;
    let classes = prepared.model.network.head.out.outputs;
    let population = Population::of(plan, &prepared.data);
    check_batch(plan, population.units)?;
    let resolved = method::calibrate(plan, population, classes)?;
    if resolved.examples.is_some() {
        // Users have no more examples than the accountant assumes.
        prepared.data = prepared.data.into_single_examples()?;
    }
    synthesize::check_noise(&prepared, &resolved)?;
    let (trainable, total) = prepared.model.parameters.count();
    callback(TrainingEvent::Loaded {
        plan,
        resolved: &resolved,
        data: &prepared.data,
        labels_were_found: prepared.labels_were_found,
        parameters: ParameterCounts { trainable, total },
        planned: method::planned(plan, &prepared, &resolved).as_ref(),
    });
    Ok((prepared, resolved))
}

/// Rejects a batch larger than the number of users, because the accountant's error would refer to
/// examples.
fn check_batch(plan: &Plan, units: usize) -> Result<()> {
    let batch = plan.training.batch;
    let of_users = match &plan.method {
        Method::Central(central) => {
            plan.data.author.is_some() && central.examples_per_user.is_none()
        }
        _ => false,
    };
    if of_users && batch > units as u64 {
        return Err(Error::plan(format!(
            "training.batch is {batch}, but must be at most the number of users, {units}: with \
             data.author, a batch consists of users"
        )));
    }
    Ok(())
}
