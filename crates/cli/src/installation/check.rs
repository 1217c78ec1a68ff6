//! `undertone self check`: what this machine can do, and whether noise, clipping, sampling and
//! accountant give known answers on it.

use super::{machine, mechanism, randomness};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

/// Check this machine and test the mechanisms against known answers, in a few seconds
///
/// Reports the processor, memory and GPU, tests file locking, atomic writes and the operating
/// system's randomness, and compares noise, clipping, sampling, a private step and the accountant
/// with known answers. The exit code is 1 if a check fails.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone self check --json")]
pub struct Check {
    /// Folder in which to test writing and locking files [default: the temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The result of one check.
#[derive(Serialize)]
pub struct Checked {
    pub name: &'static str,
    pub status: Status,
    /// What was measured, or what is wrong.
    pub detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// A fact about the machine that no training needs.
    Note,
    Failed,
}

impl Checked {
    /// The result of a check that either holds or explains what is wrong.
    pub fn of(name: &'static str, result: Result<String, String>) -> Self {
        match result {
            Ok(detail) => Self { name, status: Status::Ok, detail },
            Err(detail) => Self { name, status: Status::Failed, detail },
        }
    }

    pub fn note(name: &'static str, detail: String) -> Self {
        Self { name, status: Status::Note, detail }
    }
}

impl Check {
    pub fn run(self, output: Output) -> Outcome {
        let folder = self.folder.unwrap_or_else(std::env::temp_dir);
        if !folder.is_dir() {
            return Err(Failure::arguments(format!("{} is not a folder", folder.display())));
        }
        let mut all = Vec::new();
        let checks: [&dyn Fn() -> Vec<Checked>; 3] =
            [&|| machine::checks(&folder), &randomness::checks, &|| mechanism::checks(&folder)];
        for check in checks {
            for checked in check() {
                if !output.json {
                    print(&checked);
                }
                all.push(checked);
            }
        }
        let failed = all.iter().filter(|checked| checked.status == Status::Failed).count();
        if output.json {
            output::json(&json!({ "ok": failed == 0, "checks": all }));
        }
        match failed {
            0 => Ok(()),
            _ => Err(Failure::Installation { failed, all: all.len() }),
        }
    }
}

fn print(checked: &Checked) {
    let status = match checked.status {
        Status::Ok => "ok",
        Status::Note => "note",
        Status::Failed => "FAILED",
    };
    output::line(format_args!("{status:<7}{:<12}{}", checked.name, checked.detail));
}
