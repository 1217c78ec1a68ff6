//! The releases that runs would make, computed before any of them starts.

use crate::error::{Error, Result};
use crate::method::Prepared;
use crate::method::central;
use crate::noise::Secret;
use crate::plan::{Method, Plan, Population};
use crate::tensor::Device;
use undertone_accounting::ledger::Terms;
use undertone_accounting::{Composition, Threat, Unit};

/// What a run would cost, known before its data are read.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCost {
    /// The privacy unit.
    pub unit: Unit,
    /// What the adversary sees.
    pub threat: Threat,
    /// δ of the run's guarantee.
    pub delta: f64,
    /// All releases of the whole run.
    pub releases: Composition,
}

/// The cost of a whole run, from its plan alone: the number of units must be declared. Refuses runs
/// without a guarantee, and local DP, where each owner has a budget of their own.
pub fn planned_cost(plan: &Plan) -> Result<PlannedCost> {
    let central = match &plan.method {
        Method::Central(central) => central,
        Method::NonPrivate => {
            return Err(Error::plan(
                "privacy.method = \"none\" has no guarantee, so no budget allows it; leave \
                 --register out, or choose a private method",
            ));
        }
        Method::Local(_) => {
            return Err(Error::plan(
                "a register keeps the budget of a curator, and in local DP each owner has a \
                 budget of their own; leave --register out",
            ));
        }
    };
    if central.is_published() || plan.training.seed.is_some() {
        let what = match plan.training.seed {
            Some(_) => "a run with a seed",
            None => "privacy.mode = \"paper\"",
        };
        return Err(Error::plan(format!(
            "{what} has no guarantee, so no budget allows it; leave it out, or leave --register out"
        )));
    }
    if central.examples_per_user.is_some() {
        return Err(Error::plan(
            "with --register, the cost must be known before the data are read, and \
             privacy.sampling = \"examples\" takes the number of examples from the training file; \
             leave one of them out",
        ));
    }
    let Some(units) = plan.declared_units() else {
        return Err(Error::plan(
            "with --register, the cost must be known before the data are read: declare the number \
             of units in the register (register add --units) or in privacy.units",
        ));
    };
    let resolved = central.calibrate(&plan.training, (units as usize).into())?;
    Ok(PlannedCost {
        unit: crate::method::unit(plan),
        threat: Threat::Central,
        delta: central.delta,
        releases: central::composition(central, &resolved),
    })
}

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
            let resolved =
                central.calibrate(&plan.training, Population::of(plan, &prepared.data))?;
            Ok(central::planned(plan, central, &prepared, &resolved))
        }
        _ => Err(Error::plan("this is for the methods of central DP, which perturb gradients")),
    };
    plans.iter().map(planned).collect()
}
