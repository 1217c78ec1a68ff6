//! `register init`, `add`, `cap` and `close`.

use super::{DataSetArgument, FileArgument};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, ValueEnum};
use serde_json::json;
use undertone_accounting::{Adjacency, Threat, Unit};
use undertone_register::{Cap, DataSet, Name, Register, end_of_day};

#[derive(Args)]
pub struct Init {
    #[command(flatten)]
    register: FileArgument,
}

impl Init {
    pub fn run(self, output: Output) -> Outcome {
        let register = Register::create(self.register.path())?;
        let state = register.state()?;
        if output.json {
            output::json(&json!({ "register": self.register.path(), "id": state.id }));
            return Ok(());
        }
        output::line(format_args!("Register {}: no data set yet.", register.place()));
        Ok(())
    }
}

/// The privacy unit of a budget.
#[derive(Clone, Copy, Default, ValueEnum)]
enum BudgetUnit {
    /// One training example
    #[default]
    Example,
    /// All examples of one user
    User,
}

#[derive(Args)]
pub struct CapArguments {
    /// Cap on ε of all runs together
    #[arg(long)]
    epsilon: f64,
    /// δ of the cap, well below 1 / number of people; no run may have a larger one
    #[arg(long)]
    delta: f64,
    /// Who approves it
    #[arg(long, value_name = "NAME", value_parser = said)]
    approver: String,
}

impl CapArguments {
    fn cap(&self) -> Cap {
        Cap { epsilon: self.epsilon, delta: self.delta }
    }
}

/// Non-empty text in one line.
pub fn said(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.is_empty() || text.contains('\n') || text.len() > 500 {
        true => Err("must be 1 to 500 characters in one line".to_owned()),
        false => Ok(text.to_owned()),
    }
}

#[derive(Args)]
pub struct Add {
    #[command(flatten)]
    register: FileArgument,
    /// Name and version of the data set, as its owner declares them
    #[arg(value_name = "NAME@VERSION")]
    dataset: String,
    /// The people it covers, in words
    #[arg(long, value_name = "TEXT", value_parser = said)]
    covers: String,
    /// Number of privacy units, from which runs compute sampling rate and steps, so that their cost
    /// is known before the data are read
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    units: Option<u64>,
    /// Privacy unit of all runs on it
    #[arg(long, value_enum, default_value_t)]
    unit: BudgetUnit,
    #[command(flatten)]
    cap: CapArguments,
    /// Last day on which a run may begin, such as 2028-12-31 (UTC)
    #[arg(long, value_name = "DATE", value_parser = day)]
    expires: Option<u64>,
    /// Declare that nobody is in this and in another version of the same name, which then has a
    /// budget of its own
    #[arg(long)]
    other_people: bool,
}

fn day(text: &str) -> Result<u64, String> {
    end_of_day(text).ok_or_else(|| "must be a day such as 2028-12-31".to_owned())
}

impl Add {
    pub fn run(self, output: Output) -> Outcome {
        let Some((name, version)) = self.dataset.split_once('@') else {
            return Err(Failure::arguments(format!(
                "give a version too, such as {}@1: the budget of one version is not that of \
                 another only if nobody is in both",
                self.dataset
            )));
        };
        let name = Name { name: name.to_owned(), version: version.to_owned() };
        let set = DataSet {
            name: name.clone(),
            covers: self.covers,
            units: self.units,
            unit: match self.unit {
                BudgetUnit::Example => Unit::Example,
                BudgetUnit::User => Unit::User,
            },
            adjacency: Adjacency::AddRemove,
            threat: Threat::Central,
            cap: self.cap.cap(),
            approver: self.cap.approver,
            expires: self.expires,
            other_people: self.other_people,
        };
        self.register.open()?.add(set)?;
        let cap = Cap { epsilon: self.cap.epsilon, delta: self.cap.delta };
        announce(output, &name, "open", cap)
    }
}

#[derive(Args)]
pub struct ChangeCap {
    #[command(flatten)]
    register: FileArgument,
    #[command(flatten)]
    dataset: DataSetArgument,
    #[command(flatten)]
    cap: CapArguments,
}

impl ChangeCap {
    pub fn run(self, output: Output) -> Outcome {
        let register = self.register.open()?;
        let name = register.state()?.find(&self.dataset.dataset)?.set.name.clone();
        register.set_cap(&name, self.cap.cap(), &self.cap.approver)?;
        announce(output, &name, "open", self.cap.cap())
    }
}

#[derive(Args)]
pub struct Close {
    #[command(flatten)]
    register: FileArgument,
    #[command(flatten)]
    dataset: DataSetArgument,
    /// Why, for those who read the register later
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
}

impl Close {
    pub fn run(self, output: Output) -> Outcome {
        let register = self.register.open()?;
        let account = register.state()?.find(&self.dataset.dataset)?.clone();
        register.close(&account.set.name, &self.reason)?;
        announce(output, &account.set.name, "closed", account.cap)
    }
}

/// Prints the data set and its cap.
fn announce(output: Output, name: &Name, is: &str, cap: Cap) -> Outcome {
    if output.json {
        output::json(&json!({ "dataset": name.to_string(), "cap": cap, "status": is }));
        return Ok(());
    }
    output::line(format_args!("{name} is {is}, with a cap of {cap}."));
    Ok(())
}
