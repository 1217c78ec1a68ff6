//! The page on a register: for each data set, the spent and the remaining budget, and when it will
//! be exhausted.

use crate::chart::{Axis, Bar, Chart, Group, Mark, Plot, Series, bars};
use crate::document::{Block, Document, Section, Table};
use crate::error::Result;
use crate::words::{self, short};
use std::path::Path;
use undertone_accounting::rounded_up;
use undertone_register::{Account, Booking, Point, Status, date, day_and_time};

const DAY: f64 = 86_400.0;

/// Maximum number of runs in the bar chart, which shows the last ones.
const BARS: usize = 12;

/// The page on some data sets. `hash` is the hash of the register's last line.
pub fn budgets(accounts: &[&Account], now: u64, hash: &str) -> Result<Document> {
    let mut sections = vec![overview(accounts, hash)?];
    for account in accounts {
        sections.extend(about(account, now)?);
    }
    Ok(Document {
        title: "Privacy budgets".to_owned(),
        subtitle: format!(
            "{} as of {}.",
            words::times(accounts.len() as u64, "data set"),
            date(now)
        ),
        sections,
    })
}

fn overview(accounts: &[&Account], hash: &str) -> Result<Section> {
    let rows = accounts.iter().map(|account| {
        Ok(vec![
            account.set.name.to_string(),
            up(account.epsilon_of(&account.spent())?.upper),
            up(account.epsilon_of(&account.committed())?.upper),
            account.cap.epsilon.to_string(),
            words::small(account.cap.delta),
            words::count(account.bookings.len() as u64),
            standing(account),
        ])
    });
    let head = ["data set", "ε spent", "spent or reserved", "cap ε", "δ", "runs", "status"];
    let table = Table::new("Budgets", &head, rows.collect::<Result<Vec<_>>>()?);
    Ok(Section::new(2, "All data sets")
        .with(Block::Table(table))
        .paragraph(format!("Hash of the register's last line: {hash}."))
        .note(
            "Each ε is a certified upper bound for all runs on the data set together, composed from \
             their releases. It assumes that noise, sampling rate and steps of each run were fixed \
             before another run's results were seen, and that every use of the data is in the \
             register.",
        ))
}

fn up(epsilon: f64) -> String {
    if epsilon.is_finite() { rounded_up(epsilon) } else { "more than 1000".to_owned() }
}

fn standing(account: &Account) -> String {
    match (&account.closed, account.set.expires) {
        (Some(reason), _) => format!("closed: {reason}"),
        (None, Some(expires)) => format!("open until {}", date(expires)),
        (None, None) => "open".to_owned(),
    }
}

fn about(account: &Account, now: u64) -> Result<Vec<Section>> {
    let set = &account.set;
    let mut facts = vec![
        ("People covered", set.covers.clone()),
        ("Privacy unit", words::unit(set.unit).to_owned()),
        ("Adjacency", words::adjacency(set.adjacency).to_owned()),
        ("Cap", account.cap.to_string()),
        ("Approved by", set.approver.clone()),
        ("Added", day_and_time(account.since)),
        ("Status", standing(account)),
    ];
    facts.extend(set.units.map(|units| ("Units, as declared", words::count(units))));
    facts.push(("Left", left(account)?));
    facts.push(("At the pace so far", projection(account, now)?));
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut section = Section::new(2, set.name.to_string()).with(Block::Facts(facts));
    if account.bookings.is_empty() {
        return Ok(vec![section.paragraph("No run has used this data set.")]);
    }
    section = section.chart(over_time(account, &account.course(now)?)?);
    section = section.chart(by_run(account)?);
    Ok(vec![section.with(Block::Table(runs(account)?))])
}

/// The remaining budget, in words.
fn left(account: &Account) -> Result<String> {
    if account.closed.is_some() {
        return Ok("nothing: the budget is closed".to_owned());
    }
    Ok(match account.room()? {
        Some(room) => format!(
            "one more Gaussian release with ε up to {:.3} at δ = {} would fit",
            (room * 1e3).floor() / 1e3,
            words::small(account.cap.delta)
        ),
        None => "nothing: no further release fits".to_owned(),
    })
}

fn projection(account: &Account, now: u64) -> Result<String> {
    let committed = account.epsilon_of(&account.committed())?.upper;
    if committed >= account.cap.epsilon {
        return Ok("the cap is reached".to_owned());
    }
    Ok(match account.exhausted_at(now)? {
        Some(at) => format!("the cap is reached about {}", date(at)),
        None => "too little to judge by, or no end within a hundred years".to_owned(),
    })
}

/// A day, or the time of day if the axis is short.
fn day(x: f64) -> String {
    date((x * DAY) as u64)
}

fn time(x: f64) -> String {
    day_and_time((x * DAY) as u64)[5..16].to_owned()
}

/// ε over time: steps for settled runs and for all reservations, and the cap.
fn over_time(account: &Account, course: &[Point]) -> Result<Chart> {
    let at = |point: &Point| point.at as f64 / DAY;
    let steps = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        let corners = course
            .windows(2)
            .flat_map(|pair| [(at(&pair[0]), value(&pair[0])), (at(&pair[1]), value(&pair[0]))]);
        let last = course.last().map(|point| (at(point), value(point)));
        corners.chain(last).collect()
    };
    let (from, to) = (course.first().map_or(0.0, at), course.last().map_or(1.0, at));
    let to = if to > from { to } else { from + 1.0 / 24.0 };
    let most = course.iter().map(|point| point.committed).filter(|e| e.is_finite());
    let top = most.fold(account.cap.epsilon, f64::max);
    let format = if to - from > 4.0 { day } else { time };
    let cap = vec![(from, account.cap.epsilon), (to, account.cap.epsilon)];
    let plot = Plot {
        x: Axis::linear("time (UTC)", from, to, format),
        y: Axis::linear("ε, at most", 0.0, 1.08 * top, short),
        series: vec![
            Series::new("cap", 5, Mark::Dashed, cap),
            Series::new("spent or reserved", 1, Mark::Thin, steps(|point| point.committed)),
            Series::new("spent", 0, Mark::Line, steps(|point| point.spent)),
        ],
    };
    let rows = course
        .iter()
        .map(|point| vec![day_and_time(point.at), up(point.spent), up(point.committed)]);
    let head = ["time", "ε spent", "spent or reserved"];
    let table = Table::new("Spent over time", &head, rows.collect());
    let description = format!(
        "Certified upper bound on ε of all runs together at δ = {}, whenever it changed.",
        words::small(account.cap.delta)
    );
    plot.chart("Spent over time", &description, table)
}

/// ε of each run alone at the cap's δ, compared with the cap.
fn by_run(account: &Account) -> Result<Chart> {
    let skipped = account.bookings.len().saturating_sub(BARS);
    let mut all = Vec::new();
    for booking in &account.bookings[skipped..] {
        let epsilon = alone(account, booking)?;
        all.push(Bar {
            name: name(booking),
            series: usize::from(booking.status == Status::Open),
            length: epsilon / account.cap.epsilon,
            value: format!("{} {}", up(epsilon), status(booking)),
            bound: None,
        });
    }
    let groups =
        [Group { title: "ε of the run alone, as a share of the cap".to_owned(), bars: all }];
    let description = "Costs of runs do not add up to the total, which is composed and smaller.";
    bars("By run", description, &["settled or given back", "reserved"], &groups)
}

fn alone(account: &Account, booking: &Booking) -> Result<f64> {
    match booking.counts() {
        Some(cost) => Ok(account.epsilon_of(&cost.releases)?.upper),
        None => Ok(0.0),
    }
}

/// The name of the run's folder.
fn name(booking: &Booking) -> String {
    let run = Path::new(&booking.reservation.run);
    run.file_name().unwrap_or(run.as_os_str()).to_string_lossy().into_owned()
}

fn status(booking: &Booking) -> &'static str {
    match &booking.status {
        Status::Open => "reserved",
        Status::Settled(_, settlement) if settlement.cut_short => "settled, cut short",
        Status::Settled(..) => "settled",
        Status::Released(..) => "given back",
    }
}

fn runs(account: &Account) -> Result<Table> {
    let rows = account.bookings.iter().map(|booking| {
        let epsilon = up(alone(account, booking)?);
        let (reservation, status) = (&booking.reservation, status(booking).to_owned());
        let (verb, at) = (reservation.verb.clone(), day_and_time(booking.at));
        Ok(vec![name(booking), verb, at, status, epsilon, reservation.id.clone()])
    });
    let head = ["run", "by", "reserved", "status", "ε alone", "reservation"];
    Ok(Table::new("Runs", &head, rows.collect::<Result<Vec<_>>>()?))
}
