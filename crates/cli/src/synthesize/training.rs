//! The training part of `undertone synthesize`: an ordinary run.

use super::again;
use crate::before_training::Siblings;
use crate::display::Display;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::stop::Stop;
use std::path::Path;
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::tensor::Device;
use undertone::train::{Error, Start, TrainingEvent, train_until};
use undertone_run::PrecisionName;

/// Trains the model of a plan, or resumes its training.
pub fn train(
    mut plan: Plan,
    out: &Path,
    resume: bool,
    (device, precision): (Device, Option<PrecisionName>),
    stop: &Stop,
) -> Outcome {
    if plan.synthesis.is_none() {
        return Err(Failure::arguments(format!(
            "{} is a run without a section [synthesis]; start a new one for synthetic rows",
            out.display()
        )));
    }
    if precision.is_some() {
        plan.compute.precision = precision;
    }
    let mut display = Display::new();
    display.beside = Some(Siblings::of(out));
    let mut announcement = None;
    let start = Start { plan, out, resume, device, data: None, ranks: Ranks::alone(), tape: None };
    let done = train_until(&stop.asked, start, &mut |event: TrainingEvent| {
        display.show(&event);
        if matches!(event, TrainingEvent::Ready { .. }) {
            stop.steps_begin();
            announcement = Some(stop.announce(|| output::note("stopping after this step …")));
        }
    });
    drop(announcement);
    display.end();
    match done {
        Ok(_) => Ok(()),
        Err(Error::Stopped { step, steps }) => Err(Failure::Stopped(format!(
            "stopped after step {step} of {steps}; continue with: {}",
            again(out)
        ))),
        Err(source @ Error::FullDisk { .. }) => {
            Err(Failure::FullDisk { source, resume: again(out) })
        }
        Err(other) => Err(other.into()),
    }
}
