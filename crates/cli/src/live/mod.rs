//! `undertone watch` and `undertone train --tui`: a run while it lasts.

mod csv;
mod during;
mod follow;
mod model;
mod screen;
mod view;

pub use during::View;
pub use model::{Live, Point};

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use follow::Follower;
use screen::show;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Follow a training run that was started elsewhere, by its folder: loss, metric, ε, speed and
/// noise, until it is finished
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone watch runs/first\n  undertone watch runs/first | tee \
     progress.txt\n  undertone watch runs/first --json\n  undertone watch runs/first --csv > \
     metrics.csv"
)]
pub struct Watch {
    /// Folder of the run; it is only read
    run: PathBuf,
    /// Print lines, also on a terminal
    #[arg(long)]
    plain: bool,
    /// Print the metrics of each step as CSV; of a finished run all at once. They depend on private
    /// data without noise, as metrics.jsonl does
    #[arg(long, conflicts_with = "plain")]
    csv: bool,
}

/// Between two looks into the folder.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two lines where nothing was measured.
const LINE_EVERY: Duration = Duration::from_secs(15);
/// Between two questions whether anybody is at work, where nothing happens.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Before it is said that nothing happens.
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

/// A line now and then, and whenever something was measured; with `--json` an object in each.
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

/// Where the run stands.
fn tell(live: &Live, output: Output) {
    if output.json {
        output::json(&live.standing());
    } else {
        output::line(live.line());
    }
}

/// Where the run stood last, and how it ended.
fn end(live: &Live, output: Output) {
    tell(live, output);
    if !output.json {
        live.ended.iter().for_each(output::line);
    }
}
