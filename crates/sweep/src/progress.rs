//! Progress of a sweep: bars on a terminal, otherwise one line per run.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use undertone_run::printable_line;

/// The view of all runs.
pub struct Progress {
    bars: Option<(MultiProgress, ProgressBar)>,
    all: usize,
    done: Mutex<usize>,
}

/// The part of the view that shows one run.
pub struct Job<'a> {
    progress: &'a Progress,
    bar: Option<ProgressBar>,
    name: String,
    start: Instant,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress {
    /// A view of `all` runs, none of which has started.
    pub fn new(all: usize) -> Self {
        let bars = std::io::stderr().is_terminal().then(|| {
            let bars = MultiProgress::new();
            let whole = bars.add(ProgressBar::new(all as u64));
            whole.set_style(style("{bar:30} {pos}/{len} runs, {elapsed}, {eta} left"));
            whole.tick();
            (bars, whole)
        });
        Self { bars, all, done: Mutex::new(0) }
    }

    /// Shows that a run has started.
    pub fn begin(&self, name: &str) -> Job<'_> {
        let bar = self.bars.as_ref().map(|(bars, whole)| {
            let bar = bars.insert_before(whole, ProgressBar::new_spinner());
            bar.set_style(style("{spinner} {msg}"));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar.set_message(name.to_owned());
            bar
        });
        Job { progress: self, bar, name: name.to_owned(), start: Instant::now() }
    }

    /// Removes the view.
    pub fn end(&self) {
        if let Some((bars, whole)) = &self.bars {
            whole.finish_and_clear();
            let _ = bars.clear();
        }
    }
}

impl Job<'_> {
    /// Shows a progress message of the run.
    pub fn tell(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(printable_line(&format!("{}: {line}", self.name)).into_owned());
        }
    }

    /// Shows how the run ended.
    pub fn end(self, outcome: &str) {
        let mut done = self.progress.done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *done += 1;
        let line = format!(
            "[{done}/{}] {}: {outcome} ({:.0} s)",
            self.progress.all,
            self.name,
            self.start.elapsed().as_secs_f64()
        );
        match (&self.progress.bars, &self.bar) {
            (Some((bars, whole)), Some(bar)) => {
                bar.finish_and_clear();
                whole.inc(1);
                bars.suspend(|| note(&line));
            }
            _ => note(&line),
        }
    }
}

/// Prints a line to standard error and ignores a closed pipe.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable_line(line));
}
