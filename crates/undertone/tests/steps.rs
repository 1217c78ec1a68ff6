//! Steps of a learner without a ledger: the examples are synthetic.

use undertone::data::Batch;
use undertone::step::{Cost, Learner, Step, StepSettings};

/// Begins a step of which only the sum matters.
///
pub fn begun(learner: &mut Learner, noise_multiplier: f64) -> Step {
    let settings = StepSettings { number: 0, noise_multiplier, divisor: 1.0, learning_rate: 0.0 };
    learner.begin_step(settings).unwrap()
}

/// Takes a step on a batch.
pub fn take(learner: &mut Learner, batch: &Batch, settings: StepSettings) {
    let mut step = learner.begin_step(settings).unwrap();
    let mut sum = learner.empty_sum();
    learner.accumulate(&step, batch, None, &mut sum).unwrap();
    learner.observe_raw(&sum, &mut step).unwrap();
    learner.release(sum, step, Cost::NonPrivate).unwrap();
}
