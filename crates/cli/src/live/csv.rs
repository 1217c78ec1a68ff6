//! `watch --csv`: the metrics of each step as CSV.

use super::follow::Follower;
use super::{ASK_EVERY, LOOK_EVERY};
use crate::failure::Outcome;
use crate::output;
use std::time::Instant;
use undertone_run::{Record, scalars};

/// Columns after step, epoch and units; a cell is empty if a step lacks the value.
const NAMES: [&str; 9] = [
    "loss",
    "learning_rate",
    "gradient_norm",
    "clipped",
    "epsilon",
    "validation/accuracy",
    "validation/f1",
    "validation/perplexity",
    "validation/loss",
];

/// Prints a header and a line for each step, until the run has finished.
pub fn print(follower: &mut Follower) -> Outcome {
    output::line(format_args!("step,epoch,units,{}", NAMES.join(",")));
    let (mut last, mut asked) = (0, Instant::now());
    loop {
        follower.look()?;
        for record in std::mem::take(&mut follower.records) {
            // A resumed run repeats its last steps.
            if record.step > last {
                output::line(line(&record));
                (last, asked) = (record.step, Instant::now());
            }
        }
        if follower.live.ended.is_some() {
            return Ok(());
        }
        if asked.elapsed() > ASK_EVERY {
            follower.check_that_somebody_is_at_work()?;
            asked = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn line(record: &Record) -> String {
    let scalars = scalars(record);
    let cell = |name: &&str| {
        let scalar = scalars.iter().find(|(tag, _)| tag == name);
        scalar.map_or(String::new(), |(_, value)| value.to_string())
    };
    let cells: Vec<String> = NAMES.iter().map(cell).collect();
    format!("{},{},{},{}", record.step, record.epoch, record.units, cells.join(","))
}
