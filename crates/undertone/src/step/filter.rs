//! DiSK: a simplified Kalman filter over the released gradients (arXiv 2410.03883).
//!
//! With gain κ, weights x and released (noisy) gradients g, step t computes
//!
//! ```text
//! g_t from examples at x_t + γ (x_t − x_{t−1}),  γ = (1 − κ)/κ      Learner::look_ahead
//! f_t = (1 − κ) f_{t−1} + κ g_t                                     GradientFilter::carry
//! x_{t+1} = optimizer(x_t, f_t)
//! ```
//!
//! Noise averages out over about 1/κ steps. Gradients change over these steps, too, so they are
//! taken at weights further along the path: for this γ, f_t estimates the gradient at x_t without a
//! first-order lag, by one backward pass per example.
//!
//! **Statement.** The filter costs no privacy. The weights at which gradients are taken are a
//! function of earlier releases, as in every adaptive composition, and f_t is a function of
//! released gradients: post-processing. The release itself is unchanged: (1 − κ)/κ · divisor ·
//! f_{t−1}, which is already public, is added to the clipped sum before its noise, and the divisor
//! is divided by κ. So f_t comes out of the same pass over memory that adds the noise.
//!
//! **Noise.** Independent noise of std s on each g has std s·κ·(Σ_{i<t} (1 − κ)^{2i})^½ in f_t,
//! which AdamW corrected for noise subtracts.

use super::learner::Learner;
use crate::collective::Slice;
use crate::model::{ParameterId, Parameters};
use crate::tensor::{Matrix, Result, add, lerp};

/// The state of the filter.
#[derive(Debug)]
pub struct GradientFilter {
    gain: f64,
    /// f_t of each slice that this process updates; empty before the first step.
    filtered: Vec<Matrix>,
    /// x_{t−1} of each trainable parameter; empty before the second step.
    previous: Vec<(ParameterId, Matrix)>,
    /// x_t, while the model has the weights further along the path.
    current: Vec<(ParameterId, Matrix)>,
}

impl GradientFilter {
    /// A filter with gain κ in (0, 1).
    pub fn new(gain: f64) -> Self {
        Self { gain, filtered: Vec::new(), previous: Vec::new(), current: Vec::new() }
    }

    /// The divisor of the release.
    pub(super) fn divisor(&self, divisor: f64) -> f64 {
        divisor / self.gain
    }

    /// Std of the noise in f_t relative to κ·s, for the release after `steps` others.
    pub(super) fn spread(&self, steps: u64) -> f64 {
        let squared = (1.0 - self.gain).powi(2);
        let power = squared.powf(steps as f64 + 1.0);
        ((1.0 - power) / (1.0 - squared)).sqrt()
    }

    /// Adds (1 − κ)/κ · divisor · f_{t−1} to the sums of a step, by slice.
    pub(super) fn carry(
        &self,
        sums: &mut [Option<Matrix>],
        divisor: f64,
        parameters: &Parameters,
        slices: &[Slice],
    ) -> Result<()> {
        let factor = ((1.0 - self.gain) / self.gain * divisor) as f32;
        for ((filtered, sum), slice) in self.filtered.iter().zip(sums).zip(slices) {
            let device = parameters.value(slice.parameter).device();
            let zeros = Matrix::zeros(filtered.rows(), filtered.columns()).to_device(&device)?;
            let carried = lerp(zeros, filtered, factor)?;
            *sum = Some(match sum.take() {
                Some(sum) => add(&sum, &carried)?,
                None => carried,
            });
        }
        Ok(())
    }

    /// Ends a step: keeps f_t, and the weights before the step.
    pub(super) fn keep(&mut self, filtered: Vec<Matrix>, before: Vec<(ParameterId, Matrix)>) {
        (self.filtered, self.previous) = (filtered, before);
    }

    /// f_t of this process's slices, in order.
    pub(crate) fn filtered(&self) -> &[Matrix] {
        &self.filtered
    }

    /// The weights of a parameter before the last step.
    pub(crate) fn previous(&self, id: ParameterId) -> Option<&Matrix> {
        self.previous.iter().find(|(own, _)| *own == id).map(|(_, value)| value)
    }

    /// Restores the state from a checkpoint.
    pub(crate) fn restore(&mut self, filtered: Vec<Matrix>, previous: Vec<(ParameterId, Matrix)>) {
        (self.filtered, self.previous, self.current) = (filtered, previous, Vec::new());
    }
}

impl Learner {
    /// Moves the weights along the path of the last step, if there is a filter.
    pub(super) fn look_ahead(&mut self) -> Result<()> {
        self.look_back();
        let Some(filter) = &mut self.filter else { return Ok(()) };
        let distance = (1.0 + (1.0 - filter.gain) / filter.gain) as f32;
        for (id, previous) in &filter.previous {
            let value = &mut self.model.parameters.get_mut(*id).value;
            let ahead = lerp(previous.clone(), value, distance)?;
            filter.current.push((*id, std::mem::replace(value, ahead)));
        }
        Ok(())
    }

    /// Moves the weights back.
    pub(super) fn look_back(&mut self) {
        let Some(filter) = &mut self.filter else { return };
        for (id, value) in filter.current.drain(..) {
            self.model.parameters.get_mut(id).value = value;
        }
    }

    /// The trainable weights, if there is a filter.
    pub(super) fn before_filtered_step(&self) -> Vec<(ParameterId, Matrix)> {
        match &self.filter {
            Some(_) => {
                let value = |id| (id, self.model.parameters.value(id).clone());
                self.trainable().into_iter().map(value).collect()
            }
            None => Vec::new(),
        }
    }
}
