//! ANADP: less noise for parameters that are more important.
//!
//! Every coordinate has a weight w, the [importance](super::importance) of equations 3 to 7, and
//! noise of std σC/√w (equation 8, read as a multiple of C).
//!
//! **As published**, gradients are clipped without the weights. Then σ_eff = σ/√(max w): the
//! coordinate with the least noise determines it, and the same total noise proves nothing.
//! Moreover, the weights come from the same step's gradient before clipping and noise, which no
//! ledger accounts for.
//!
//! **Proved**, gradients are clipped in the norm with weights w, so that σ_eff = σ whatever the
//! weights are, and the weights of a step come from the gradients that earlier steps released,
//! minus the known variance of their noise. The first step has uniform weights. With `importance =
//! { public = … }`, the weights come from [public gradients](super::public) and are the same in
//! every step.

use super::dp_sgd::DpSgd;
use super::importance::{Importance, ImportanceSettings};
use crate::gradient::{Bounds, Clip, ClippedSum, Clipping, ClippingGroups};
use crate::model::Parameters;
use crate::step::Released;
use crate::step::{Allocation, Allocator, NoiseWeights, Published};
use crate::tensor::{Host, Result};
use std::sync::Arc;

/// ANADP in proved mode.
#[derive(Debug)]
pub struct Anadp {
    plain: Arc<ClippingGroups>,
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    bound: f64,
    importance: Importance,
}

impl Anadp {
    /// Starts with uniform weights.
    pub fn new(clip: &Clip, settings: ImportanceSettings, parameters: &Parameters) -> Self {
        let plain = Arc::new(clip.groups(parameters));
        Self {
            bounds: clip.bounds(plain.count()),
            bound: clip.bound(),
            groups: plain.clone(),
            plain,
            importance: Importance::new(settings, parameters),
        }
    }

    fn weigh(&mut self) {
        // Drop the old weights first, so that their memory is reused.
        self.groups = self.plain.clone();
        if let Some(weights) = self.importance.weights() {
            self.groups = Arc::new(self.plain.weighted(|id| weights[id.index()].clone()));
        }
    }
}

impl Allocator for Anadp {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.groups, &self.bounds, noise_multiplier * self.bound)
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, released: Released, parameters: &Parameters) -> Result<()> {
        self.importance.observe(&released, parameters)?;
        drop(released);
        self.weigh();
        Ok(())
    }

    fn state(&self) -> Vec<(String, Host)> {
        self.importance.state()
    }

    fn restore(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        let all = self.importance.restore(find);
        self.weigh();
        all
    }
}

/// ANADP in paper mode.
#[derive(Debug)]
pub struct PublishedAnadp {
    uniform: DpSgd,
    importance: Importance,
    weights: Option<Arc<dyn NoiseWeights>>,
}

impl PublishedAnadp {
    /// Starts with uniform weights.
    pub fn new(clip: &Clip, settings: ImportanceSettings, parameters: &Parameters) -> Self {
        let uniform = DpSgd::new(clip, parameters);
        Self { uniform, importance: Importance::new(settings, parameters), weights: None }
    }
}

impl Allocator for PublishedAnadp {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation {
            noise_weights: self.weights.clone(),
            ..self.uniform.allocation(noise_multiplier)
        }
    }

    fn state(&self) -> Vec<(String, Host)> {
        self.importance.state()
    }

    fn restore(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        self.importance.restore(find)
    }
}

impl Published for PublishedAnadp {
    fn observe_raw(&mut self, raw: &ClippedSum, parameters: &Parameters) -> Result<()> {
        // Drop the weights first: they share memory with the averages.
        self.weights = None;
        for (id, parameter) in parameters.iter().filter(|(_, parameter)| parameter.trainable) {
            self.importance.observe_raw(id, raw.unclipped(id), &parameter.value)?;
        }
        self.weights = self.importance.noise_weights();
        Ok(())
    }

    /// Line 6 of Algorithm 1 precedes clipping.
    fn needs_unclipped(&self) -> bool {
        true
    }
}
