//! `undertone watch` and `undertone train --tui`: the progress of a run.

mod csv;
mod during;
mod follow;
mod model;
mod screen;
mod view;

pub use during::View;
pub use model::{Live, Point, in_words, seconds_left};

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use follow::Follower;
use screen::show;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Follow the progress of a training run
///
/// Shows loss, metrics, ε, speed and noise until the run has finished. Use it for a run that was
/// started elsewhere.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone watch runs/first\n  undertone watch runs/first | tee \
     progress.txt\n  undertone watch runs/first --json\n  undertone watch runs/first --csv > \
     metrics.csv"
)]
pub struct Watch {
    /// Folder of the run, opened read-only
    run: PathBuf,
    /// Print plain lines, even on a terminal
    #[arg(long)]
    plain: bool,
    /// Print the metrics of each step as CSV. Like metrics.jsonl, they are computed from private
    /// data without noise
    #[arg(long, conflicts_with = "plain")]
    csv: bool,
}

/// Polling interval of the run folder.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval between lines without new metrics.
const LINE_EVERY: Duration = Duration::from_secs(15);
/// Interval between checks that the run is alive, while nothing is written.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Time without news after which this is reported.
const SILENCE: Duration = Duration::from_secs(300);

impl Watch {
    pub fn run(self, output: Output) -> Outcome {
        if self.csv && output.json {
            return Err(Failure::arguments("--csv cannot be used with --json"));
        }
        let mut follower = Follower::new(&self.run)?;
        if self.csv {
            return csv::print(&mut follower);
        }
        if self.plain || output.json || !std::io::stdout().is_terminal() {
            return lines(&mut follower, output);
        }
        let mut failed = None;
        let shown = show(|| {
            if follower.live.ended.is_some() {
                return None;
            }
            match follower.look() {
                Ok(_) => Some(follower.live.clone()),
                Err(failure) => {
                    failed = Some(failure);
                    None
                }
            }
        });
        shown.map_err(|e| Failure::write("the terminal".as_ref(), e))?;
        if let Some(failure) = failed {
            return Err(failure);
        }
        end(&follower.live, output);
        Ok(())
    }
}

/// Prints a line at intervals and for every new metric; with `--json`, an object per line.
fn lines(follower: &mut Follower, output: Output) -> Outcome {
    let (mut said, mut heard, mut asked) = (None::<Instant>, Instant::now(), Instant::now());
    loop {
        let news = follower.look()?;
        if follower.live.ended.is_some() {
            end(&follower.live, output);
            return Ok(());
        }
        let due = follower.measured || said.is_none_or(|said| said.elapsed() > LINE_EVERY);
        if news && due {
            tell(&follower.live, output);
            said = Some(Instant::now());
        }
        if news {
            (heard, asked) = (Instant::now(), Instant::now());
        } else if asked.elapsed() > ASK_EVERY {
            follower.check_that_somebody_is_at_work()?;
            asked = Instant::now();
        } else if heard.elapsed() > SILENCE {
            if !output.json {
                output::line("nothing new for five minutes");
            }
            heard = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Prints the current state of the run.
fn tell(live: &Live, output: Output) {
    if output.json {
        output::json(&live.standing());
    } else {
        output::line(live.line());
    }
}

/// Prints the last state of the run and how it ended.
fn end(live: &Live, output: Output) {
    tell(live, output);
    if !output.json {
        live.ended.iter().for_each(output::line);
    }
}
