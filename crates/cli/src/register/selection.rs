//! The budget of a private selection, whose ledger has one entry for all of its runs.
//!
//! Repeating the command of a selection continues with the same draw, and pays once. The folder
//! decides: if it has a ledger, its reservation continues to be used; otherwise nothing was
//! released in it, and a new reservation is made. The reservation of a process that was killed
//! before its ledger existed still counts, until `register release` releases it.

use super::budget::Budget;
use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};
use undertone::train::PlannedCost;
use undertone_accounting::ledger::Ledger;
use undertone_register::{Cost, Register, Reservation, Settlement, Status, new_id};
use undertone_run::RunPaths;

/// The `command` of a selection's reservation.
const VERB: &str = "sweep --private-selection";

/// The reservation of a selection.
pub struct SelectionBooking {
    register: Register,
    id: String,
    cost: Cost,
    ledger: PathBuf,
}

impl SelectionBooking {
    /// Reserves the cost of the selection in `out`, or finds its existing reservation.
    pub fn make(budget: Budget, planned: &PlannedCost, out: &Path) -> Outcome<Self> {
        let PlannedCost { unit, threat, delta, releases } = planned.clone();
        let cost = Cost { unit, threat, delta, releases };
        let run = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
        let run = run.display().to_string();
        let ledger = RunPaths::new(out).ledger();
        let id = match ledger.exists() {
            true => Self::begun(&budget, &cost, &run)?,
            false => {
                let reservation = Reservation {
                    id: new_id()?,
                    dataset: budget.set.name.clone(),
                    run,
                    verb: VERB.to_owned(),
                    cost: cost.clone(),
                };
                budget.register.reserve(&reservation)?;
                reservation.id
            }
        };
        Ok(Self { register: budget.register, id, cost, ledger })
    }

    /// The reservation with which a selection in this folder started.
    fn begun(budget: &Budget, cost: &Cost, run: &str) -> Outcome<String> {
        let state = budget.register.state()?;
        let account = state.find(&budget.set.name.to_string())?;
        let own = account.bookings.iter().rev().find(|booking| {
            let own = &booking.reservation;
            let counts = !matches!(booking.status, Status::Released(..));
            counts && own.run == run && own.verb == VERB && own.cost == *cost
        });
        own.map(|booking| booking.reservation.id.clone()).ok_or_else(|| {
            Failure::arguments(format!(
                "{run} has a selection that the budget of {} has no reservation for; omit \
                 --register, or choose another folder with --out",
                account.set.name
            ))
        })
    }

    /// Replaces the planned cost by that of the ledger; releases the reservation if there is no
    /// ledger.
    pub fn settle(&self) -> Outcome {
        if !self.ledger.exists() {
            let reason = "the selection failed before its first release";
            return Ok(self.register.release(&self.id, reason)?);
        }
        let ledger = Ledger::read(&self.ledger)?;
        if ledger.entries() == 0 {
            return Ok(());
        }
        let releases = ledger.spent().clone();
        Ok(self.register.settle(&Settlement {
            reservation: self.id.clone(),
            cost: Cost { releases, ..self.cost.clone() },
            entries: ledger.entries(),
            ledger: ledger.hash().to_owned(),
            cut_short: false,
        })?)
    }
}
