//! The combined privacy cost of several runs on the same data.

use crate::RunFile;
use crate::{Error, Result};
use std::path::Path;
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Guarantee, Unit};

/// A run's ledger, with the plan that says which rows form a unit.
#[derive(Clone, Copy, Debug)]
pub struct Cost<'a> {
    /// The run folder or the ledger, for error messages.
    pub path: &'a Path,
    /// Every release of the run.
    pub ledger: &'a Ledger,
    /// The run's plan; `None` for a ledger without a run.
    pub plan: Option<&'a RunFile>,
}

impl Cost<'_> {
    /// The column by which users are known; `Some(None)` if each row is a unit, `None` if nothing
    /// says so.
    fn author(&self) -> Option<Option<&str>> {
        match self.plan {
            Some(plan) => Some(plan.data.author.as_deref()),
            None => self.ledger.terms().author().map(Some),
        }
    }
}

/// The combined guarantee of all runs at this δ. Runs with a different privacy unit, adjacency,
/// threat model or author column are rejected, because their ε values refer to different changes of
/// the data.
pub fn cost_together(costs: &[Cost], delta: f64) -> Result<Guarantee> {
    let mut authors = costs.iter().filter_map(|cost| Some((cost.path, cost.author()?)));
    if let Some((first, author)) = authors.next()
        && let Some((other, _)) = authors.find(|(_, theirs)| *theirs != author)
    {
        return Err(Error::folder(
            other,
            format!(
                "has another data.author than {}: its privacy unit is another, and the two cannot \
                 be added up",
                first.display()
            ),
        ));
    }
    let of_users = |cost: &&Cost| cost.ledger.terms().unit == Unit::User && cost.author().is_none();
    if costs.len() > 1
        && let Some(unknown) = costs.iter().find(of_users)
    {
        return Err(Error::folder(
            unknown.path,
            "does not say by which column its users are known, and cannot be added up with others",
        ));
    }
    let ledgers: Vec<&Ledger> = costs.iter().map(|cost| cost.ledger).collect();
    Ok(Ledger::together(&ledgers, delta)?)
}
