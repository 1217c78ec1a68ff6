//! `undertone register`: budgets of data sets.

mod booking;
mod budget;
mod change;
mod ledger;
mod report;
mod selection;
mod settle;
mod show;
mod verify;

pub use booking::{Booking, Ended};
pub use budget::{Budget, RegisterArguments};
pub use ledger::{LedgerBooking, PREDICTION, STATISTICS};
pub use selection::book_selection;

use crate::failure::Outcome;
use crate::output::Output;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use undertone_register::Register;

/// Makes registers in databases available, if this program can reach any.
pub fn provide_databases() {
    #[cfg(feature = "postgres")]
    undertone_postgres::provide();
}

#[derive(Subcommand)]
pub enum RegisterVerb {
    /// Create a register
    #[command(after_help = "Example:\n  undertone register init budgets.jsonl")]
    Init(change::Init),
    /// Give a data set a budget
    ///
    /// The name and version are the owner's declaration, not a hash of the rows: adding a row does
    /// not open another budget.
    #[command(
        allow_negative_numbers = true,
        after_help = "Example:\n  undertone register add budgets.jsonl letters@2026 --covers \
                      \"everybody who wrote to us since 2019\" --units 60000 --unit user \
                      --epsilon 8 --delta 1e-7 --approver \"A. Lovelace, DPO\" --expires 2028-12-31"
    )]
    Add(change::Add),
    /// Show data sets with what is spent, reserved and left, and their runs
    #[command(
        after_help = "Examples:\n  undertone register show budgets.jsonl\n  undertone register \
                      show budgets.jsonl letters"
    )]
    Show(show::Show),
    /// Change the cap of a data set
    ///
    /// Refused below what is already spent or reserved.
    #[command(
        allow_negative_numbers = true,
        after_help = "Example:\n  undertone register cap budgets.jsonl letters --epsilon 6 \
                      --delta 1e-7 --approver \"A. Lovelace, DPO\""
    )]
    Cap(change::ChangeCap),
    /// Allow no further run on a data set
    #[command(
        after_help = "Example:\n  undertone register close budgets.jsonl letters --reason \"the \
                      study has ended\""
    )]
    Close(change::Close),
    /// Settle a run that ended without doing so, at the cost of its ledger
    ///
    /// A run that crashed keeps its whole reservation, and `train --resume` continues it. If it
    /// will never be resumed, this records what it has released and frees the rest.
    #[command(after_help = "Example:\n  undertone register settle budgets.jsonl --run runs/first")]
    Settle(settle::Settle),
    /// Give back a reservation whose run released nothing
    #[command(after_help = "Example:\n  undertone register release budgets.jsonl \
                      5f0c3a9e2b7d4d1c8e6f7a8b9c0d1e2f --reason \"the machine was reinstalled \
                      before the run began\"")]
    Release(settle::Release),
    /// Write a page on the budgets: spent over time and by run, what is left, projected exhaustion
    #[command(
        after_help = "Example:\n  undertone register report budgets.jsonl --out budgets.html"
    )]
    Report(report::Report),
    /// Check every line of a register, and that no reservation was over its cap
    #[command(
        after_help = "Examples:\n  undertone register verify budgets.jsonl\n  undertone register \
                      verify budgets.jsonl --run runs/first"
    )]
    Verify(verify::Verify),
}

impl RegisterVerb {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::Init(verb) => verb.run(output),
            Self::Add(verb) => verb.run(output),
            Self::Show(verb) => verb.run(output),
            Self::Cap(verb) => verb.run(output),
            Self::Close(verb) => verb.run(output),
            Self::Settle(verb) => verb.run(output),
            Self::Release(verb) => verb.run(output),
            Self::Report(verb) => verb.run(output),
            Self::Verify(verb) => verb.run(output),
        }
    }
}

/// The register of a command.
#[derive(Args)]
struct FileArgument {
    /// File of the register, or address of its database: postgres://user@host/database
    #[arg(value_name = "FILE|URL")]
    file: PathBuf,
}

impl FileArgument {
    fn open(&self) -> Outcome<Register> {
        Ok(Register::open(&self.file)?)
    }

    fn path(&self) -> &Path {
        &self.file
    }
}

/// The data set of a command.
#[derive(Args)]
struct DataSetArgument {
    /// Name of the data set, or name@version if it has several versions
    #[arg(value_name = "NAME")]
    dataset: String,
}
