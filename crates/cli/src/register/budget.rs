//! The flags that select the budget of a run.

use super::booking::Booking;
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::train::planned_cost;
use undertone_register::{Cost, Register, Reservation, absolute_place, new_id};
use undertone_run::{Registered, RunPaths, WrittenRun};

/// The budget that pays for a run.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Budget")]
pub struct RegisterArguments {
    /// Register of budgets: reserve the run's cost before anything is read, refuse it over the cap,
    /// and settle at the actual cost
    #[arg(long, value_name = "FILE|URL", requires = "dataset")]
    pub(super) register: Option<PathBuf>,
    /// Data set in the register that the training file belongs to
    #[arg(long, value_name = "NAME", requires = "register")]
    pub(super) dataset: Option<String>,
}

/// A data set whose budget pays for runs.
pub struct Budget {
    pub(super) register: Register,
    /// The register's file or database, as found from any folder: a run may be resumed from another.
    file: PathBuf,
    id: String,
    pub(super) set: undertone_register::DataSet,
}

impl RegisterArguments {
    /// The register in a file and one of its data sets.
    pub fn new(register: Option<PathBuf>, dataset: Option<String>) -> Self {
        Self { register, dataset }
    }

    /// The register in a file, for any data set.
    pub fn at(file: &Path) -> Self {
        Self { register: Some(file.to_owned()), dataset: None }
    }

    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.register.is_none()
    }

    /// The data set's budget, if a data set was given.
    pub fn open(&self) -> Outcome<Option<Budget>> {
        let (Some(file), Some(dataset)) = (&self.register, &self.dataset) else { return Ok(None) };
        let register = Register::open(file)?;
        let state = register.state()?;
        let set = state.find(dataset)?.set.clone();
        let file = absolute_place(file).map_err(|e| Failure::write(file, e))?;
        Ok(Some(Budget { register, file, id: state.id, set }))
    }

    /// The arguments, for the runs of a sweep.
    pub fn again(&self) -> Vec<String> {
        let (Some(file), Some(dataset)) = (&self.register, &self.dataset) else {
            return Vec::new();
        };
        let file = absolute_place(file).unwrap_or_else(|_| file.clone());
        let file = file.display().to_string();
        vec!["--register".to_owned(), file, "--dataset".to_owned(), dataset.clone()]
    }
}

impl Budget {
    /// The override that declares the register's number of units to the run, which computes
    /// sampling rate and steps from it. Rejects a run that declares a different number.
    pub fn units(&self, written: &WrittenRun) -> Outcome<Option<String>> {
        let gradients = !written.method().is_local() && written.method().name() != "none";
        match (self.set.units, written.declared_units()) {
            (Some(units), Some(own)) if units != own => Err(Failure::arguments(format!(
                "privacy.units is {own}, but the register declares {units} units for {}; remove it",
                self.set.name
            ))),
            (Some(units), None) if gradients => Ok(Some(format!("privacy.units={units}"))),
            _ => Ok(None),
        }
    }

    /// The number of units that the register declares.
    pub fn declared_units(&self) -> Option<u64> {
        self.set.units
    }

    /// Rejects plans that would not all fit, without reserving anything.
    pub fn check<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> Outcome {
        let costs = plans.map(cost_of).collect::<Outcome<Vec<Cost>>>()?;
        Ok(self.register.check(&self.set.name, &costs)?)
    }

    /// Reserves the planned cost of a new run in `out`, which the plan then names.
    pub fn reserve(self, plan: &mut Plan, verb: &str, out: &Path) -> Outcome<Booking> {
        let cost = cost_of(plan)?;
        let paths = RunPaths::new(out);
        if paths.plan().exists() || paths.ledger().exists() {
            return Err(Failure::arguments(format!(
                "{} already contains a run; resume it with --resume, or choose another folder",
                out.display()
            )));
        }
        let run = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
        let reservation = Reservation {
            id: new_id()?,
            dataset: self.set.name.clone(),
            run: run.display().to_string(),
            verb: verb.to_owned(),
            cost,
        };
        let hash = self.register.reserve(&reservation)?;
        plan.registered = Some(Registered {
            file: self.file,
            register: self.id,
            dataset: self.set.name.to_string(),
            reservation: reservation.id.clone(),
            hash,
        });
        Ok(Booking { register: self.register, id: reservation.id, out: out.to_owned() })
    }
}

/// The cost of a whole run, computed from its plan alone.
fn cost_of(plan: &Plan) -> Outcome<Cost> {
    let planned = planned_cost(plan)?;
    let (unit, threat, delta) = (planned.unit, planned.threat, planned.delta);
    Ok(Cost { unit, threat, delta, releases: planned.releases })
}
