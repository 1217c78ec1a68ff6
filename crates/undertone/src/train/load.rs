//! The common part of a run and a dry run: everything is loaded and checked and the noise is
//! calibrated, before anything is released.

use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::method::{self, Prepared, TrainingEvent};
use crate::noise::Secret;
use crate::plan::{Method, Plan};
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
    let prepared = Prepared::load(plan, secret, device, data)?;
    let classes = prepared.model.network.head.out.outputs;
    let units = plan.units(prepared.data.units);
    check_batch(plan, units)?;
    let resolved = method::calibrate(plan, units, classes)?;
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
    let of_users = plan.data.author.is_some() && matches!(plan.method, Method::Central(_));
    if of_users && batch > units as u64 {
        return Err(Error::plan(format!(
            "training.batch is {batch}, but must be at most the number of users, {units}: with \
             data.author, a batch consists of users"
        )));
    }
    Ok(())
}
