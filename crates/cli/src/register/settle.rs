//! `register settle` and `release`.

use super::FileArgument;
use super::booking::Booking;
use super::budget::RegisterArguments;
use super::change::said;
use super::ledger::{LedgerBooking, PREDICTION, SELECTION, STATISTICS};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use undertone_run::{RunPaths, is_locked};

#[derive(Args)]
pub struct Settle {
    #[command(flatten)]
    register: FileArgument,
    /// Folder of the run
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
}

impl Settle {
    pub fn run(self, output: Output) -> Outcome {
        let paths = RunPaths::new(&self.run);
        match paths.plan().exists() {
            false if paths.ledger().exists() => {
                let booking = self.of_ledger()?;
                booking.settle_abandoned()?;
                self.tell(output, || booking.announce())
            }
            _ => {
                let booking = self.of_plan(&paths)?;
                booking.settle()?;
                self.tell(output, || booking.announce())
            }
        }
    }

    fn tell(&self, output: Output, announce: impl Fn() -> Outcome) -> Outcome {
        if output.json {
            output::json(&json!({ "run": self.run, "status": "settled" }));
            return Ok(());
        }
        announce()
    }

    /// The reservation of statistics or a selection, whose folder has no plan.
    fn of_ledger(&self) -> Outcome<LedgerBooking> {
        let booking = LedgerBooking::find(self.register.open()?, &self.run, |own| {
            [STATISTICS, SELECTION, PREDICTION].contains(&own.verb.as_str())
        })?;
        booking.ok_or_else(|| {
            Failure::arguments(format!(
                "{} has no reservation in this register",
                self.run.display()
            ))
        })
    }

    /// The reservation of a run.
    fn of_plan(&self, paths: &RunPaths) -> Outcome<Booking> {
        if !paths.plan().exists() {
            return Err(Failure::arguments(format!(
                "{} contains no run; if it has none because the run never began, use: undertone \
                 register release",
                self.run.display()
            )));
        }
        if is_locked(&self.run) {
            return Err(Failure::arguments(format!(
                "{} is in use by a run; wait until it has ended",
                self.run.display()
            )));
        }
        let given = RegisterArguments::at(self.register.path());
        Booking::of_run(&self.run, &given)?.ok_or_else(|| {
            Failure::arguments(format!(
                "{} was started without a register, so it has no reservation",
                self.run.display()
            ))
        })
    }
}

#[derive(Args)]
pub struct Release {
    #[command(flatten)]
    register: FileArgument,
    /// The reservation, as `register show` lists it
    #[arg(value_name = "RESERVATION")]
    reservation: String,
    /// Why nothing was released, for those who read the register later
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
}

impl Release {
    pub fn run(self, output: Output) -> Outcome {
        let register = self.register.open()?;
        let state = register.state()?;
        if let Some((_, booking)) = state.booking(&self.reservation) {
            let paths = RunPaths::new(booking.reservation.run.as_ref());
            if paths.ledger().exists() {
                return Err(Failure::arguments(format!(
                    "{} has a ledger, so something may have been released; settle it with: \
                     undertone register settle {} --run {}",
                    paths.folder().display(),
                    register.place(),
                    paths.folder().display()
                )));
            }
        }
        register.release(&self.reservation, &self.reason)?;
        if output.json {
            output::json(&json!({ "reservation": self.reservation, "status": "released" }));
            return Ok(());
        }
        output::line(format_args!("Reservation {} is given back.", self.reservation));
        Ok(())
    }
}
