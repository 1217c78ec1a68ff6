//! The training part of `undertone synthesize`: an ordinary run.

use super::again;
use crate::before_training::Siblings;
use crate::display::Display;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::stop::Stop;
use undertone::train::{Error, Start, TrainingEvent, train_until};

/// Trains the model of a plan, or resumes its training.
pub fn train(start: Start, stop: &Stop, watch: &mut dyn FnMut(&TrainingEvent)) -> Outcome {
    let out = start.out;
    if start.plan.synthesis.is_none() {
        return Err(Failure::arguments(format!(
            "{} is a run without a section [synthesis]; start a new one for synthetic rows",
            out.display()
        )));
    }
    let mut display = Display::new();
    display.beside = Some(Siblings::of(out));
    let mut announcement = None;
    let done = train_until(&stop.asked, start, &mut |event: TrainingEvent| {
        display.show(&event);
        watch(&event);
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
