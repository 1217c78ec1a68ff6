//! What people and machines read.

use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone::audit::statistics::Interval;
pub use undertone_accounting::rounded_up as up;
use undertone_accounting::{Accountant, Adjacency, Answer, Bounds, Mode, Threat, Unit};
use undertone_run::{printable, printable_json, printable_line};

/// The form in which a verb answers, as the global `--json` says.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON for programs, in place of text for people.
    pub json: bool,
}

/// Whether this process says nothing but what went wrong: another rank speaks for all.
static HUSHED: AtomicBool = AtomicBool::new(false);

/// Leaves it to another rank to speak. Mistakes are told all the same.
pub fn hush() {
    HUSHED.store(true, Ordering::Relaxed);
}

/// Whether another rank speaks for this one.
pub fn is_hushed() -> bool {
    HUSHED.load(Ordering::Relaxed)
}

/// Tells something on standard error. Nobody may be reading there, and the disk that it goes to may
/// be full: that stops nothing.
pub fn note(text: impl std::fmt::Display) {
    if !is_hushed() {
        tell(&text.to_string());
    }
}

fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// Tells what went wrong, in one line. A name or value that is pages long is shown by its ends.
pub fn error(sentence: &str) {
    const MOST: usize = 600;
    let mut sentence = printable_line(sentence).into_owned();
    let length = sentence.chars().count();
    if length > MOST {
        let start: String = sentence.chars().take(MOST / 2).collect();
        let end: String = sentence.chars().skip(length - MOST / 2).collect();
        sentence = format!("{start} … {end}");
    }
    tell(&sentence);
}

/// Prints a line, and ends quietly if nobody reads it any more (a closed pipe); an answer that is
/// lost otherwise is a failure.
pub fn line(text: impl std::fmt::Display) {
    write_line(&printable(&text.to_string()));
}

fn write_line(text: &str) {
    if is_hushed() {
        return;
    }
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            error(&format!("error: the answer could not be written: {e}"));
            std::process::exit(1);
        }
    }
}

/// Prints one JSON object.
pub fn json(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("answers are finite numbers and names");
    write_line(&printable_json(&text));
}

/// Rows of names and values, the values in one column.
pub fn rows(rows: &[(&str, String)]) {
    let width = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0);
    for (name, value) in rows {
        line(format_args!("  {name:width$}  {value}"));
    }
}

/// A table: numbers to the right, each column as wide as it must be.
pub fn table(head: &[&str], body: &[Vec<String>]) {
    let widths: Vec<usize> = (0..head.len())
        .map(|c| {
            let cells = body.iter().map(|r| r[c].chars().count());
            cells.chain([head[c].chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let join = |cells: Vec<&str>| -> String {
        cells.iter().zip(&widths).map(|(c, w)| format!("  {c:>w$}")).collect()
    };
    line(join(head.to_vec()));
    line(widths.iter().map(|w| format!("  {}", "─".repeat(*w))).collect::<String>());
    for row in body {
        line(join(row.iter().map(String::as_str).collect()));
    }
}

/// A share with its interval.
pub fn share(i: &Interval) -> String {
    format!("{:.1} % ({:.1} … {:.1})", 100.0 * i.estimate, 100.0 * i.lower, 100.0 * i.upper)
}

/// An area under a curve with its interval.
pub fn area(i: &Interval) -> String {
    format!("{:.3} ({:.3} … {:.3})", i.estimate, i.lower, i.upper)
}

/// ε rounded downwards, for a lower bound.
pub fn down(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).floor() / 1e4)
}

/// δ to five digits, rounded upwards.
pub fn delta_up(delta: f64) -> String {
    format!("{:.4e}", delta * (1.0 + 5e-5))
}

/// δ to five digits, rounded downwards.
pub fn delta_down(delta: f64) -> String {
    format!("{:.4e}", delta * (1.0 - 5e-5))
}

/// A noise multiplier to six decimals, rounded upwards: less noise would not meet the target.
pub fn noise(noise_multiplier: f64) -> String {
    format!("{:.6}", (noise_multiplier * 1e6).ceil() / 1e6)
}

/// An interval as people read it.
pub fn interval(bounds: &Bounds) -> String {
    format!("{} … {} (estimate {:.4})", down(bounds.lower), up(bounds.upper), bounds.estimate)
}

/// The sentence that states what an answer guarantees, or that it does not.
pub fn sentence(answer: &Answer) -> String {
    if !answer.certified {
        return format!(
            "By the central limit ε is about {:.4} at δ = {:e}: an approximation, not a guarantee; \
             the prv accountant gives one.",
            answer.epsilon.estimate, answer.delta.upper
        );
    }
    let change = match answer.adjacency {
        Adjacency::AddRemove => "adding or removing",
        Adjacency::ReplaceOne => "replacing",
    };
    format!(
        "Everything released is ({}, {:e})-differentially private for {change} one unit.",
        up(answer.epsilon.upper),
        answer.delta.upper
    )
}

/// The rows that explain an answer.
pub fn explain(answer: &Answer) -> Vec<(&'static str, String)> {
    let how = match answer.accountant {
        Accountant::Gaussian => "gaussian (exact)",
        Accountant::Rdp => "rdp (certified from above only)",
        Accountant::Gdp => "gdp (an approximation, not a bound)",
        _ => "prv (certified on both sides)",
    };
    let epsilon = match answer.accountant {
        Accountant::Rdp => format!("≤ {}", up(answer.epsilon.upper)),
        Accountant::Gdp => format!("about {:.4}", answer.epsilon.estimate),
        _ => interval(&answer.epsilon),
    };
    vec![
        ("ε", epsilon),
        ("δ", format!("{:e}", answer.delta.upper)),
        ("accountant", how.to_owned()),
        ("adjacency", answer.adjacency.to_string()),
    ]
}

/// How a unit is called.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "example",
        Unit::User => "user",
    }
}

/// How a threat model is called.
pub fn threat(threat: Threat) -> &'static str {
    match threat {
        Threat::Central => "central",
        Threat::Local => "local",
    }
}

/// How a mode is called.
pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Proved => "proved",
        Mode::Paper => "paper",
        Mode::Seeded => "seeded (nothing is guaranteed)",
    }
}
