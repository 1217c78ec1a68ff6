//! Output for people and programs.

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use undertone::audit::statistics::Interval;
pub use undertone_accounting::rounded_up as up;
use undertone_accounting::{Accountant, Adjacency, Answer, Bounds, Mode, Threat, Unit};
use undertone_run::{printable, printable_json, printable_line};

/// Output format of a command, selected by the global `--json`.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Print JSON instead of text.
    pub json: bool,
}

/// Whether this process prints only errors, because another rank prints for all.
static HUSHED: AtomicBool = AtomicBool::new(false);

/// Silences this process, except for errors: another rank prints for all.
pub fn hush() {
    HUSHED.store(true, Ordering::Relaxed);
}

/// Whether this process is silenced.
pub fn is_hushed() -> bool {
    HUSHED.load(Ordering::Relaxed)
}

/// Prints a line to standard error. Failures to write, such as a closed pipe or a full disk, are
/// ignored.
pub fn note(text: impl std::fmt::Display) {
    if !is_hushed() {
        tell(&text.to_string());
    }
}

fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// Prints an error in one line. Very long names and values are abbreviated in the middle.
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

/// Prints a line to standard output. Exits quietly if the pipe is closed; any other write error is
/// a failure.
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
            error(&format!("error: the output could not be written: {e}"));
            std::process::exit(1);
        }
    }
}

/// Shows a progress bar while a file is read, if standard error is a terminal.
pub fn show_reading(file: &Path, done: u64, total: u64) {
    static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);
    if is_hushed() || !std::io::stderr().is_terminal() {
        return;
    }
    let mut bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    if done >= total {
        bar.take().iter().for_each(ProgressBar::finish_and_clear);
        return;
    }
    let bar = bar.get_or_insert_with(|| {
        let bar = ProgressBar::new(total);
        let template = "reading {msg} {bar:30} {percent:>3} %, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        bar.with_message(printable_line(&name).into_owned())
    });
    bar.set_position(done);
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

/// Prints a table with right-aligned numbers and columns as wide as their content.
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

/// A proportion with its confidence interval.
pub fn share(i: &Interval) -> String {
    format!("{:.1} % ({:.1} … {:.1})", 100.0 * i.estimate, 100.0 * i.lower, 100.0 * i.upper)
}

/// An AUC with its confidence interval.
pub fn area(i: &Interval) -> String {
    format!("{:.3} ({:.3} … {:.3})", i.estimate, i.lower, i.upper)
}

/// ε rounded down, for a lower bound.
pub fn down(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).floor() / 1e4)
}

/// δ to five digits, rounded up.
pub fn delta_up(delta: f64) -> String {
    format!("{:.4e}", delta * (1.0 + 5e-5))
}

/// δ to five digits, rounded down.
pub fn delta_down(delta: f64) -> String {
    format!("{:.4e}", delta * (1.0 - 5e-5))
}

/// A noise multiplier to six decimals, rounded up, since less noise would not meet the target.
pub fn noise(noise_multiplier: f64) -> String {
    format!("{:.6}", (noise_multiplier * 1e6).ceil() / 1e6)
}

/// An interval as text.
pub fn interval(bounds: &Bounds) -> String {
    format!("{} … {} (estimate {:.4})", down(bounds.lower), up(bounds.upper), bounds.estimate)
}

/// One sentence that states the guarantee of an answer, or that there is none.
pub fn sentence(answer: &Answer) -> String {
    if !answer.certified {
        return format!(
            "By the central limit theorem, ε is about {:.4} at δ = {:e}: an approximation, not a \
             guarantee; use the prv accountant for a guarantee.",
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

/// Display name of a privacy unit.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "example",
        Unit::User => "user",
    }
}

/// Display name of a threat model.
pub fn threat(threat: Threat) -> &'static str {
    match threat {
        Threat::Central => "central",
        Threat::Local => "local",
    }
}

/// Display name of a mode.
pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Proved => "proved",
        Mode::Paper => "paper",
        Mode::Seeded => "seeded (nothing is guaranteed)",
    }
}
