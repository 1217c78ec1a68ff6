//! The budget of a private selection, whose ledger has one entry for all of its runs.
//!
//! Repeating the command of a selection continues with the same draw, and pays once. The folder
//! decides: if it has a ledger, its reservation continues to be used; otherwise nothing was
//! released in it, and a new reservation is made. The reservation of a process that was killed
//! before its ledger existed still counts, until `register release` releases it.

use super::budget::Budget;
use super::ledger::{LedgerBooking, SELECTION, named};
use crate::failure::{Failure, Outcome};
use std::path::Path;
use undertone::train::PlannedCost;
use undertone_register::Cost;
use undertone_run::RunPaths;

/// Reserves the cost of the selection in `out`, or finds its existing reservation.
pub fn book_selection(budget: Budget, planned: &PlannedCost, out: &Path) -> Outcome<LedgerBooking> {
    let PlannedCost { unit, threat, delta, releases } = planned.clone();
    let cost = Cost { unit, threat, delta, releases };
    if !RunPaths::new(out).ledger().exists() {
        return LedgerBooking::reserve(budget, cost, SELECTION, out);
    }
    let name = budget.set.name.clone();
    let own = LedgerBooking::find(budget.register, out, |own| {
        own.dataset == name && own.verb == SELECTION && own.cost == cost
    })?;
    own.ok_or_else(|| {
        Failure::arguments(format!(
            "{} has a selection that the budget of {name} has no reservation for; omit --register, \
             or choose another folder with --out",
            named(out)
        ))
    })
}
