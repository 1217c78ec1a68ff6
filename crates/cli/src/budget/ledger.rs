//! `budget ledger`.

use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use undertone_run::{FinishedRun, RunPaths};

#[derive(Args)]
#[command(after_help = "Example:
  undertone budget ledger runs/demo/ledger.jsonl --delta 1e-5")]
pub struct Ledger {
    /// Ledger of a run or of private predictions (JSON lines)
    path: PathBuf,
    /// δ of the guarantee
    #[arg(long, default_value = "1e-5")]
    delta: f64,
}

impl Ledger {
    pub fn run(self, output: Output) -> Outcome {
        let ledger = match self.path.parent().map(RunPaths::new) {
            // In the folder of a run it must be the run's own.
            Some(run) if run.ledger() == self.path && run.plan().exists() => {
                if run.is_finished() {
                    FinishedRun::read(run.folder())?;
                }
                run.read_ledger()?
            }
            _ => undertone_accounting::ledger::Ledger::read(&self.path)?,
        };
        let guarantee = ledger.guarantee(self.delta)?;
        if output.json {
            output::json(&json!({
                "guarantee": guarantee,
                "entries": ledger.entries(),
                "releases": ledger.spent().releases(),
                "torn_lines": ledger.torn_lines(),
                "hash": ledger.hash(),
            }));
            return Ok(());
        }
        output::rows(&[
            ("entries", ledger.entries().to_string()),
            ("releases", ledger.spent().releases().to_string()),
            ("torn lines counted as spent", ledger.torn_lines().to_string()),
            ("ε", output::interval(&guarantee.epsilon)),
            ("δ", format!("{:e}", guarantee.delta)),
            ("unit", output::unit(guarantee.unit).to_owned()),
            ("adjacency", guarantee.adjacency.to_string()),
            ("threat model", output::threat(guarantee.threat).to_owned()),
            ("mode", output::mode(guarantee.mode).to_owned()),
            ("hash", ledger.hash().to_owned()),
        ]);
        for assumption in &guarantee.assumptions {
            output::line(format_args!("  assuming: {assumption}"));
        }
        output::line("");
        output::line(format_args!("{guarantee}."));
        Ok(())
    }
}
