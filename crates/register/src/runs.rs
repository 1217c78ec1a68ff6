//! The operations of runs: reserve before reading, settle at the end.

use crate::account::{Fit, Status, shown};
use crate::entry::{Cost, Entry, Name, Reservation, Settlement};
use crate::error::{Error, Result};
use crate::owner::unknown;
use crate::register::{Clock, Register};
use undertone_accounting::Composition;

impl Register {
    /// Reserves the planned cost of a run, and returns the hash of its line. Refused if all runs
    /// together would exceed the cap. Repeating a reservation returns the existing one.
    pub fn reserve(&self, wanted: &Reservation) -> Result<String> {
        let mut made = None;
        let hash = self.append(Clock::MustBeRight, &mut |state, at| {
            if let Some((_, booking)) = state.booking(&wanted.id) {
                if booking.reservation != *wanted || booking.status != Status::Open {
                    return Err(Error::refused("the reservation was made before for another run"));
                }
                made = Some(booking.hash.clone());
                return Ok(None);
            }
            let account = state.account(&wanted.dataset).ok_or_else(|| unknown(&wanted.dataset))?;
            account.check_open(at)?;
            match account.fit(&wanted.cost)? {
                Fit::Within(_) => Ok(Some(Entry::Reserve(wanted.clone()))),
                Fit::Over { total, would_fit } => {
                    Err(account.over_cap(&wanted.cost, total, would_fit))
                }
            }
        })?;
        Ok(made.unwrap_or(hash))
    }

    /// Rejects costs that would not fit together, without reserving anything.
    pub fn check(&self, dataset: &Name, costs: &[Cost]) -> Result<()> {
        let state = self.state()?;
        let account = state.account(dataset).ok_or_else(|| unknown(dataset))?;
        account.check_open((self.clock)())?;
        let Some((first, _)) = costs.split_first() else { return Ok(()) };
        let mut all = Composition::new(first.releases.adjacency);
        for cost in costs {
            account.check_kind(cost)?;
            cost.releases.parts().iter().for_each(|part| all.push(part.event, part.count));
        }
        match account.fit(&Cost { releases: all, ..first.clone() })? {
            Fit::Within(_) => Ok(()),
            Fit::Over { total, .. } => Err(Error::refused(format!(
                "the {} runs would bring {dataset} to ε = {}, over its cap of {}; ε = {} is spent \
                 or reserved: use fewer runs or a smaller privacy.epsilon",
                costs.len(),
                shown(total),
                account.cap,
                shown(account.epsilon_of(&account.committed())?.upper)
            ))),
        }
    }

    /// Replaces the planned cost of a run by its actual one. Repeating a settlement does nothing; a
    /// longer ledger of the same run replaces the shorter one.
    pub fn settle(&self, settlement: &Settlement) -> Result<()> {
        self.append(Clock::MayBeWrong, &mut |state, _| {
            let Some((account, booking)) = state.booking(&settlement.reservation) else {
                return Err(Error::refused(format!(
                    "register {} has no reservation {}: it is not the register that the run began \
                     with",
                    self.place(),
                    settlement.reservation
                )));
            };
            let planned = &booking.reservation.cost;
            if planned.unit != settlement.cost.unit
                || planned.threat != settlement.cost.threat
                || planned.releases.adjacency != settlement.cost.releases.adjacency
            {
                return Err(Error::refused(format!(
                    "the ledger of {} is for another unit or threat model than its reservation in \
                     the budget of {}",
                    booking.reservation.run, account.set.name
                )));
            }
            match &booking.status {
                Status::Settled(_, before) if before == settlement => Ok(None),
                Status::Settled(_, before) if before.entries >= settlement.entries => {
                    Err(Error::refused(format!(
                        "{} is settled already, with another ledger",
                        booking.reservation.run
                    )))
                }
                // A run that continued after its reservation was released has spent budget
                // nonetheless.
                _ => Ok(Some(Entry::Settle(settlement.clone()))),
            }
        })?;
        Ok(())
    }

    /// Releases the reservation of a run that released nothing.
    pub fn release(&self, reservation: &str, reason: &str) -> Result<()> {
        self.append(Clock::MayBeWrong, &mut |state, _| {
            let (_, booking) = state.booking(reservation).ok_or_else(|| {
                Error::refused(format!("the register has no reservation {reservation}"))
            })?;
            match &booking.status {
                Status::Open => {
                    let (reservation, reason) = (reservation.to_owned(), reason.to_owned());
                    Ok(Some(Entry::Release { reservation, reason }))
                }
                Status::Released(..) => Ok(None),
                Status::Settled(..) => Err(Error::refused(format!(
                    "{} is settled: what it released cannot be given back",
                    booking.reservation.run
                ))),
            }
        })?;
        Ok(())
    }
}
