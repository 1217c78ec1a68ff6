//! `register verify`.

use super::FileArgument;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use undertone_register::Status;
use undertone_run::{RunFile, RunPaths};

#[derive(Args)]
pub struct Verify {
    #[command(flatten)]
    register: FileArgument,
    /// Hash of a line that was noted elsewhere, and must be in the register (repeatable)
    #[arg(long, value_name = "HASH")]
    noted: Vec<String>,
    /// Folder of a run: its reservation must be in the register, and be settled at the cost of its
    /// ledger (repeatable)
    #[arg(long, value_name = "DIR")]
    run: Vec<PathBuf>,
}

impl Verify {
    pub fn run(self, output: Output) -> Outcome {
        let register = self.register.open()?;
        let mut noted = self.noted.clone();
        let mut reservations = Vec::new();
        for folder in &self.run {
            let paths = RunPaths::new(folder);
            let named = RunFile::read_resolved(&paths.plan())?.registered.ok_or_else(|| {
                Failure::arguments(format!("{} was started without a register", folder.display()))
            })?;
            noted.push(named.hash);
            reservations.push((paths, named.reservation));
        }
        let verified = register.verify(&noted)?;
        for (paths, id) in &reservations {
            let problem =
                |what: &str| Failure::arguments(format!("{}: {what}", paths.folder().display()));
            let Some((_, booking)) = verified.state.booking(id) else {
                return Err(problem("its reservation is not in the register"));
            };
            let Status::Settled(_, settlement) = &booking.status else {
                return Err(problem("its reservation is not settled"));
            };
            if settlement.ledger != paths.read_ledger()?.hash() {
                return Err(problem("it is settled at the cost of another ledger than its own"));
            }
        }
        if output.json {
            output::json(&json!({ "lines": verified.lines, "hash": verified.hash }));
            return Ok(());
        }
        output::rows(&[
            ("lines", verified.lines.to_string()),
            ("data sets", verified.state.accounts.len().to_string()),
            ("hash of the last line", verified.hash),
        ]);
        output::line(
            "Every line is as it was written. Note the hash elsewhere: it shows later whether the \
             whole register was rewritten (--noted).",
        );
        Ok(())
    }
}
