//! `register settle` and `release`.

use super::FileArgument;
use super::booking::Booking;
use super::budget::RegisterArguments;
use super::change::said;
use super::ledger::LedgerBooking;
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
        if !paths.plan().exists() && paths.ledger().exists() {
            return self.by_ledger(output);
        }
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
        let Some(booking) = Booking::of_run(&self.run, &given)? else {
            return Err(Failure::arguments(format!(
                "{} was started without a register, so it has no reservation",
                self.run.display()
            )));
        };
        booking.settle()?;
        if output.json {
            output::json(&json!({ "run": self.run, "status": "settled" }));
            return Ok(());
        }
        booking.announce()
    }

    /// Settles statistics or a selection, whose folder has no plan.
    fn by_ledger(&self, output: Output) -> Outcome {
        let Some(booking) = LedgerBooking::find(self.register.open()?, &self.run, |_| true)? else {
            return Err(Failure::arguments(format!(
                "{} has no reservation in this register",
                self.run.display()
            )));
        };
        booking.settle()?;
        if output.json {
            output::json(&json!({ "run": self.run, "status": "settled" }));
            return Ok(());
        }
        output::line(format_args!("{} is settled at the cost of its ledger.", self.run.display()));
        Ok(())
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
