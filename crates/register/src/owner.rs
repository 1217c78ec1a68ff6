//! The decisions of the data's owner: data sets, caps and closing.

use crate::account::shown;
use crate::entry::{Cap, DataSet, Entry, Name};
use crate::error::{Error, Result};
use crate::register::{Clock, Register};
use undertone_accounting::{Accountant, epsilon, limits};

impl Register {
    /// Adds a data set.
    pub fn add(&self, set: DataSet) -> Result<()> {
        set.name.check()?;
        check_cap(set.cap)?;
        self.append(Clock::MustBeRight, &mut |state, _| {
            if state.account(&set.name).is_some() {
                return Err(Error::refused(format!(
                    "{} has a budget already; change its cap with: undertone register cap",
                    set.name
                )));
            }
            let other = state.accounts.iter().find(|other| other.set.name.name == set.name.name);
            if let Some(other) = other.filter(|_| !set.other_people) {
                return Err(Error::refused(format!(
                    "{} has a budget already, and another version of the same people's data \
                     shares it: use that one, or declare with --other-people that nobody is in \
                     both",
                    other.set.name
                )));
            }
            Ok(Some(Entry::Add(set.clone())))
        })?;
        Ok(())
    }

    /// Changes the cap of a data set. A cap below what is spent or reserved is refused.
    pub fn set_cap(&self, dataset: &Name, cap: Cap, approver: &str) -> Result<()> {
        check_cap(cap)?;
        self.append(Clock::MustBeRight, &mut |state, _| {
            let account = state.account(dataset).ok_or_else(|| unknown(dataset))?;
            let committed = account.committed();
            let taken = match committed.releases() {
                0 => 0.0,
                _ => epsilon(&committed, cap.delta, Accountant::Auto)?.epsilon.upper,
            };
            if taken > cap.epsilon {
                return Err(Error::refused(format!(
                    "a cap of {cap} is below the ε = {} that is spent or reserved; to allow no \
                     further run, close the data set with: undertone register close",
                    shown(taken)
                )));
            }
            let (dataset, approver) = (dataset.clone(), approver.to_owned());
            Ok(Some(Entry::Cap { dataset, cap, approver }))
        })?;
        Ok(())
    }

    /// Allows no further run on a data set. Open reservations are still settled.
    pub fn close(&self, dataset: &Name, reason: &str) -> Result<()> {
        self.append(Clock::MustBeRight, &mut |state, _| {
            let account = state.account(dataset).ok_or_else(|| unknown(dataset))?;
            if account.closed.is_some() {
                return Err(Error::refused(format!("{dataset} is closed already")));
            }
            Ok(Some(Entry::Close { dataset: dataset.clone(), reason: reason.to_owned() }))
        })?;
        Ok(())
    }
}

pub(crate) fn unknown(name: &Name) -> Error {
    Error::refused(format!("the register has no data set {name}"))
}

fn check_cap(cap: Cap) -> Result<()> {
    let valid = cap.epsilon > 0.0 && cap.epsilon <= limits::EPSILON;
    if !valid {
        return Err(Error::refused("the cap's ε must be above 0 and at most 1000"));
    }
    if !limits::DELTA.contains(&cap.delta) {
        return Err(Error::refused("the cap's δ must be from 1e-18 to 0.5"));
    }
    Ok(())
}
