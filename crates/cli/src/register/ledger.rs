//! The reservation of a command whose folder has a ledger and no plan: statistics, or a selection.

use super::booking::announce;
use super::budget::Budget;
use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};
use undertone_accounting::ledger::Ledger;
use undertone_register::{Cost, Register, Reservation, Settlement, Status, new_id};
use undertone_run::RunPaths;

/// The `command` of a reservation of private statistics.
pub const STATISTICS: &str = "stats";
/// The `command` of a selection's reservation.
pub const SELECTION: &str = "sweep --private-selection";

/// The `command` of a reservation of private prediction.
pub const PREDICTION: &str = "synthesize --method private-prediction";

/// A reservation that is settled by the ledger in the command's folder.
pub struct LedgerBooking {
    register: Register,
    id: String,
    cost: Cost,
    ledger: PathBuf,
}

impl LedgerBooking {
    /// Reserves the cost of a command that will write a ledger to `out`.
    pub fn reserve(budget: Budget, cost: Cost, verb: &str, out: &Path) -> Outcome<Self> {
        let reservation = Reservation {
            id: new_id()?,
            dataset: budget.set.name.clone(),
            run: named(out),
            verb: verb.to_owned(),
            cost: cost.clone(),
        };
        budget.register.reserve(&reservation)?;
        let ledger = RunPaths::new(out).ledger();
        Ok(Self { register: budget.register, id: reservation.id, cost, ledger })
    }

    /// The latest reservation of this folder that counts, if `fits` accepts it.
    pub fn find(
        register: Register,
        out: &Path,
        fits: impl Fn(&Reservation) -> bool,
    ) -> Outcome<Option<Self>> {
        let (state, run) = (register.state()?, named(out));
        let bookings = state.accounts.iter().flat_map(|account| &account.bookings);
        let counts = bookings.filter(|booking| !matches!(booking.status, Status::Released(..)));
        let own = counts.map(|booking| &booking.reservation);
        let Some(Reservation { id, cost, .. }) =
            own.filter(|own| own.run == run && fits(own)).last().cloned()
        else {
            return Ok(None);
        };
        Ok(Some(Self { register, id, cost, ledger: RunPaths::new(out).ledger() }))
    }

    /// The reservation of a command that already wrote to this folder.
    pub fn of_folder(budget: Budget, verb: &str, out: &Path) -> Outcome<Self> {
        let name = budget.set.name.clone();
        let own = |own: &Reservation| own.dataset == name && own.verb == verb;
        Self::find(budget.register, out, own)?.ok_or_else(|| {
            Failure::arguments(format!(
                "{} has no reservation in the budget of {name}; omit --register",
                out.display()
            ))
        })
    }

    fn give_back(&self) -> Outcome {
        let reason = "the command failed before its first release";
        Ok(self.register.release(&self.id, reason)?)
    }

    /// Settles a command that nobody continues: gives the reservation back if nothing was released.
    pub fn end(&self) -> Outcome {
        match self.ledger.exists() && Ledger::read(&self.ledger)?.entries() == 0 {
            true => self.give_back(),
            false => self.settle(),
        }
    }

    /// Replaces the planned cost by that of the ledger; releases the reservation if there is no
    /// ledger.
    pub fn settle(&self) -> Outcome {
        if !self.ledger.exists() {
            return self.give_back();
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

    /// Settles a command that was killed. Refused while it runs: it could still release something.
    pub fn settle_abandoned(&self) -> Outcome {
        // The command keeps its ledger locked.
        let _held = Ledger::open(&self.ledger)?;
        self.settle()
    }

    /// One line about the budget.
    pub fn announce(&self) -> Outcome {
        announce(&self.register, &self.id)
    }
}

/// A folder's name in the register.
pub fn named(out: &Path) -> String {
    std::path::absolute(out).unwrap_or_else(|_| out.to_owned()).display().to_string()
}
