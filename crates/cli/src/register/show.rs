//! `register show`.

use super::FileArgument;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use undertone_accounting::{Bounds, Composition};
use undertone_register::{Account, Booking, Cap, DataSet, Status, date, day_and_time};

#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    register: FileArgument,
    /// Data set to show with its runs [default: all data sets]
    #[arg(value_name = "NAME")]
    dataset: Option<String>,
}

/// A data set as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    set: &'a DataSet,
    cap: Cap,
    spent: Bounds,
    spent_or_reserved: Bounds,
    closed: &'a Option<String>,
    runs: Vec<ShownRun<'a>>,
}

/// A run as JSON.
#[derive(Serialize)]
struct ShownRun<'a> {
    reservation: &'a str,
    run: &'a str,
    verb: &'a str,
    at: u64,
    status: &'static str,
    epsilon: Bounds,
    cut_short: bool,
}

impl Show {
    pub fn run(self, output: Output) -> Outcome {
        let register = self.register.open()?;
        let state = register.state()?;
        let accounts: Vec<&Account> = match &self.dataset {
            Some(name) => vec![state.find(name)?],
            None => state.accounts.iter().collect(),
        };
        if output.json {
            let shown = accounts.iter().map(|account| shown(account));
            let shown = shown.collect::<Outcome<Vec<Shown>>>()?;
            output::json(&json!({ "id": state.id, "hash": state.hash, "datasets": shown }));
            return Ok(());
        }
        if accounts.is_empty() {
            output::line("no data set; add one with: undertone register add");
            return Ok(());
        }
        if self.dataset.is_none() {
            return table(&accounts);
        }
        accounts.iter().try_for_each(|account| in_full(account))
    }
}

fn table(accounts: &[&Account]) -> Outcome {
    let rows = accounts.iter().map(|account| {
        Ok(vec![
            account.set.name.to_string(),
            output::unit(account.set.unit).to_owned(),
            up(account.epsilon_of(&account.spent())?),
            up(account.epsilon_of(&account.committed())?),
            account.cap.epsilon.to_string(),
            format!("{:e}", account.cap.delta),
            account.bookings.len().to_string(),
            standing(account),
        ])
    });
    let rows = rows.collect::<Outcome<Vec<_>>>()?;
    let head =
        ["data set", "unit", "ε spent", "ε spent or reserved", "cap ε", "δ", "runs", "status"];
    output::table(&head, &rows);
    Ok(())
}

fn up(epsilon: Bounds) -> String {
    output::up(epsilon.upper)
}

fn standing(account: &Account) -> String {
    match (&account.closed, account.set.expires) {
        (Some(_), _) => "closed".to_owned(),
        (None, Some(expires)) => format!("until {}", date(expires)),
        (None, None) => "open".to_owned(),
    }
}

fn in_full(account: &Account) -> Outcome {
    let set = &account.set;
    let mut rows = vec![
        ("data set", set.name.to_string()),
        ("covers", set.covers.clone()),
        ("privacy unit", output::unit(set.unit).to_owned()),
    ];
    rows.extend(set.units.map(|units| ("units, declared", units.to_string())));
    rows.extend([
        ("cap", account.cap.to_string()),
        ("spent", format!("ε = {}", up(account.epsilon_of(&account.spent())?))),
        ("spent or reserved", format!("ε = {}", up(account.epsilon_of(&account.committed())?))),
        ("approved by", set.approver.clone()),
        ("since", day_and_time(account.since)),
    ]);
    rows.extend(set.expires.map(|expires| ("until", date(expires))));
    rows.extend(account.closed.as_ref().map(|reason| ("closed", reason.clone())));
    output::rows(&rows);
    if account.bookings.is_empty() {
        return Ok(());
    }
    output::line("");
    let runs = account.bookings.iter().map(|booking| {
        let (status, epsilon, cut_short) = facts(account, booking)?;
        let status = if cut_short { format!("{status}, cut short") } else { status.to_owned() };
        let reservation = &booking.reservation;
        let (at, run) = (day_and_time(booking.at), reservation.run.clone());
        Ok(vec![at, status, up(epsilon), reservation.verb.clone(), reservation.id.clone(), run])
    });
    let runs = runs.collect::<Outcome<Vec<_>>>()?;
    output::table(&["reserved", "status", "ε alone", "by", "reservation", "run"], &runs);
    Ok(())
}

/// Status, ε of the run alone at the cap's δ, and whether it was cut short.
fn facts(account: &Account, booking: &Booking) -> Outcome<(&'static str, Bounds, bool)> {
    let nothing = Composition::new(account.set.adjacency);
    let releases = booking.counts().map_or(&nothing, |cost| &cost.releases);
    let epsilon = account.epsilon_of(releases)?;
    Ok(match &booking.status {
        Status::Open => ("reserved", epsilon, false),
        Status::Settled(_, settlement) => ("settled", epsilon, settlement.cut_short),
        Status::Released(..) => ("given back", epsilon, false),
    })
}

fn shown(account: &Account) -> Outcome<Shown<'_>> {
    let runs = account.bookings.iter().map(|booking| {
        let (status, epsilon, cut_short) = facts(account, booking)?;
        let reservation = &booking.reservation;
        let (id, run, verb) = (&reservation.id, &reservation.run, &reservation.verb);
        Ok(ShownRun { reservation: id, run, verb, at: booking.at, status, epsilon, cut_short })
    });
    Ok(Shown {
        set: &account.set,
        cap: account.cap,
        spent: account.epsilon_of(&account.spent())?,
        spent_or_reserved: account.epsilon_of(&account.committed())?,
        closed: &account.closed,
        runs: runs.collect::<Outcome<_>>()?,
    })
}
