//! The reservation of a run, made from its budget and settled when the run has ended.

use super::budget::RegisterArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use std::path::{Path, PathBuf};
use undertone_register::{Cost, Register, Settlement, Status, date, day_and_time};
use undertone_run::{RunFile, RunPaths};

/// How a run ended.
#[derive(Clone, Copy, PartialEq)]
pub enum Ended {
    /// The run wrote its summary.
    Finished,
    /// The run was stopped by a signal, and can be resumed.
    Stopped,
    /// The run failed, before or after its first release.
    Failed,
}

/// The reservation of a run.
pub struct Booking {
    pub(super) register: Register,
    pub(super) id: String,
    pub(super) out: PathBuf,
}

impl Booking {
    /// The reservation with which a run in `out` started; `None` if it started without a register.
    /// `given` may name the register's current location.
    pub fn of_run(out: &Path, given: &RegisterArguments) -> Outcome<Option<Self>> {
        let paths = RunPaths::new(out);
        let Some(named) = RunFile::read_resolved(&paths.plan())?.registered else {
            return match given.register {
                None => Ok(None),
                Some(_) => Err(Failure::arguments(format!(
                    "{} was started without a register; omit --register",
                    out.display()
                ))),
            };
        };
        let register = Register::open(given.register.as_ref().unwrap_or(&named.file))?;
        let state = register.state()?;
        let booked = state.booking(&named.reservation);
        if state.id != named.register || booked.is_none_or(|(_, b)| b.hash != named.hash) {
            return Err(Failure::arguments(format!(
                "register {} is not the one that {} began with, or was rewritten; name the right \
                 one with --register",
                register.place(),
                out.display()
            )));
        }
        if let (Some(dataset), Some((account, _))) = (&given.dataset, booked)
            && state.find(dataset)?.set.name != account.set.name
        {
            return Err(Failure::arguments(format!(
                "{} began with the budget of {}; omit --dataset",
                out.display(),
                account.set.name
            )));
        }
        Ok(Some(Self { register, id: named.reservation, out: out.to_owned() }))
    }

    /// Refuses to resume a run whose reservation no longer counts. Settles a finished run that was
    /// interrupted before settling.
    pub fn check_open(&self) -> Outcome {
        let state = self.register.state()?;
        let Some((_, booking)) = state.booking(&self.id) else { return Ok(()) };
        let (what, at) = match booking.status {
            Status::Open if RunPaths::new(&self.out).is_finished() => return self.settle(),
            Status::Open => return Ok(()),
            Status::Settled(at, _) => ("settled", at),
            Status::Released(at, _) => ("given back", at),
        };
        if RunPaths::new(&self.out).is_finished() {
            return Ok(());
        }
        Err(Failure::arguments(format!(
            "the reservation of {} was {what} on {}, so the run cannot be resumed; start a new one",
            self.out.display(),
            date(at)
        )))
    }

    /// Settles a run that has ended, keeps the reservation of a run that can be resumed, and
    /// releases the reservation if the run released nothing.
    pub fn conclude(&self, ended: Ended) -> Outcome {
        match ended {
            Ended::Finished => self.settle(),
            Ended::Failed if !self.has_begun() => self.give_back(),
            Ended::Stopped | Ended::Failed => Ok(()),
        }
    }

    /// Whether the folder contains the plan of this run, so that it can be resumed.
    fn has_begun(&self) -> bool {
        let paths = RunPaths::new(&self.out);
        let named =
            RunFile::read_resolved(&paths.plan()).ok().and_then(|resolved| resolved.registered);
        named.is_some_and(|named| named.reservation == self.id)
    }

    fn give_back(&self) -> Outcome {
        // Without the reason for the failure, which may quote the data.
        Ok(self.register.release(&self.id, "the run failed before its first release")?)
    }

    /// Replaces the planned cost by the cost of the run's ledger.
    pub fn settle(&self) -> Outcome {
        let paths = RunPaths::new(&self.out);
        if !paths.ledger().exists() {
            return self.give_back();
        }
        let settlement = settlement(&self.id, &paths)?;
        self.register.settle(&settlement).map_err(|error| {
            Failure::arguments(format!(
                "{error}; the reservation is kept, and this settles it later: undertone register \
                 settle {} --run {}",
                self.register.place(),
                self.out.display()
            ))
        })
    }

    /// One line about the budget after the run.
    pub fn announce(&self) -> Outcome {
        announce(&self.register, &self.id)
    }
}

/// One line about the budget of a reservation.
pub(super) fn announce(register: &Register, id: &str) -> Outcome {
    let state = register.state()?;
    let Some((account, booking)) = state.booking(id) else { return Ok(()) };
    let committed = account.epsilon_of(&account.committed())?.upper;
    let what = match &booking.status {
        Status::Open => "reserved".to_owned(),
        Status::Settled(..) => "settled".to_owned(),
        Status::Released(at, _) => format!("given back on {}", day_and_time(*at)),
    };
    output::note(format_args!(
        "budget of {}: {what}; ε = {} of {} is spent or reserved at δ = {:e}",
        account.set.name,
        output::up(committed),
        account.cap.epsilon,
        account.cap.delta
    ));
    Ok(())
}

/// The actual cost of the run in a folder.
fn settlement(reservation: &str, paths: &RunPaths) -> Outcome<Settlement> {
    let ledger = paths.read_ledger()?;
    let terms = ledger.terms();
    let delta = ledger.delta().ok_or_else(|| {
        Failure::arguments(format!("{} is not the ledger of a run", paths.ledger().display()))
    })?;
    let releases = ledger.spent().clone();
    Ok(Settlement {
        reservation: reservation.to_owned(),
        cost: Cost { unit: terms.unit, threat: terms.threat, delta, releases },
        entries: ledger.entries(),
        ledger: ledger.hash().to_owned(),
        cut_short: ledger.as_planned().is_some(),
    })
}
