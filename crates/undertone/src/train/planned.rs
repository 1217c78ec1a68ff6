//! The releases that runs would make, computed before any of them starts.

use crate::error::{Error, Result};
use crate::method::Prepared;
use crate::method::central;
use crate::noise::Secret;
use crate::plan::{Method, Plan};
use crate::tensor::Device;
use undertone_accounting::Composition;
use undertone_accounting::ledger::Terms;

/// The ledger's terms and all releases of whole central DP runs on the same data. Reads the data to
/// count the units, and releases nothing.
pub fn planned_releases(plans: &[&Plan]) -> Result<Vec<(Terms, Composition)>> {
    let Some(first) = plans.first() else { return Ok(Vec::new()) };
    if plans.iter().any(|plan| plan.data != first.data) {
        return Err(Error::plan("the runs have different data"));
    }
    // The initial values of new parameters do not matter here.
    let prepared = Prepared::load(first, &Secret::from_seed(0), &Device::Cpu, None)?;
    let planned = |plan: &&Plan| match &plan.method {
        Method::Central(central) => {
            let resolved = central.calibrate(&plan.training, plan.units(prepared.data.units))?;
            Ok(central::planned(plan, central, &prepared, &resolved))
        }
        _ => Err(Error::plan("this is for the methods of central DP, which perturb gradients")),
    };
    plans.iter().map(planned).collect()
}
