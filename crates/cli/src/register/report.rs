//! `register report`.

use super::FileArgument;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::report::Format;
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use undertone_report::budgets;
use undertone_run::check_output;

#[derive(Args)]
pub struct Report {
    #[command(flatten)]
    register: FileArgument,
    /// Data set to report on [default: all data sets]
    #[arg(value_name = "NAME")]
    dataset: Option<String>,
    /// Page to write: .html or .md
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Report {
    pub fn run(self, output: Output) -> Outcome {
        let own = self.register.path();
        let read = [own];
        check_output(&self.out, &read, |text| text.contains(undertone_report::MARK))?;
        let state = self.register.open()?.state()?;
        let accounts = match &self.dataset {
            Some(name) => vec![state.find(name)?],
            None => state.accounts.iter().collect(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let document = budgets(&accounts, now, &state.hash)?;
        let text = match Format::of(&self.out) {
            Format::Html => document.html(),
            Format::Markdown => document.markdown(),
        };
        undertone_run::write_atomically(&self.out, |file| file.write_all(text.as_bytes()))
            .map_err(|e| Failure::write(&self.out, e))?;
        match output.json {
            true => output::json(&json!({ "report": self.out, "datasets": accounts.len() })),
            false => output::line(format_args!("The report is in {}.", self.out.display())),
        }
        Ok(())
    }
}
