//! AdaClip (after Pichapati and others, 2019), factored: the noise std is proportional to the
//! square root of the gradient's root mean square.
//!
//! Among all weights w that leave the expected squared norm Σ_j w_j E[g_j²] of a gradient
//! unchanged, which give the least total noise? Noise of variance σ²C²/w_j adds up to σ²C² Σ_j
//! 1/w_j, which under that constraint is minimized by w_j ∝ E[g_j²]^(−½): coordinates with large
//! gradients get more noise, those with small gradients less. ANADP does the opposite: it gives the
//! least noise to the coordinates that it considers most important.
//!
//! E[g²] is estimated from released gradients, minus the known variance of their noise. For a
//! single coordinate this estimate is mostly noise, but for the mean over a row, a column or a
//! tensor it is not. The weight of a coordinate is therefore a row weight times a column weight,
//! and per-example norms under such weights need no per-example gradient (ghost clipping). Clipping
//! uses the same weights, so the effective noise multiplier is σ, whatever they are.
//!
//! With `importance = { public = … }`, E[g²] is computed from [public examples](super::public)
//! instead, without noise. In that case every coordinate can have its own weight.

mod second_moments;
mod weigh;

pub(super) use second_moments::SecondMoments;

use crate::gradient::{Bounds, Clip, Clipping, ClippingGroups};
use crate::model::Parameters;
use crate::step::Released;
use crate::step::{Allocation, Allocator};
use crate::tensor::{GradientStatistic, Host, Result};
use std::sync::Arc;
use undertone_run::AdaclipSection;
use weigh::factored;

/// Averages of g² over each row and each column of one parameter.
#[derive(Clone, Debug)]
pub(in crate::method::central) struct Squares {
    name: String,
    rows: Vec<f32>,
    columns: Vec<f32>,
}

impl Squares {
    /// Zeros for each trainable parameter.
    fn zeros(parameters: &Parameters) -> Vec<Option<Self>> {
        let zeros = |count: usize| vec![0.0; count];
        let of = parameters.iter().map(|(_, parameter)| {
            parameter.trainable.then(|| Self {
                name: parameter.name.clone(),
                rows: zeros(parameter.value.rows()),
                columns: zeros(parameter.value.columns()),
            })
        });
        of.collect()
    }
}

/// The allocator of AdaClip.
#[derive(Debug)]
pub struct Adaclip {
    settings: AdaclipSection,
    plain: Arc<ClippingGroups>,
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    bound: f64,
    squares: Vec<Option<Squares>>,
    /// Whether a gradient has been released yet.
    seen: bool,
}

impl Adaclip {
    /// Starts with uniform weights.
    pub fn new(clip: &Clip, settings: AdaclipSection, parameters: &Parameters) -> Self {
        let plain = Arc::new(clip.groups(parameters));
        Self {
            settings,
            bounds: clip.bounds(plain.count()),
            bound: clip.bound(),
            groups: plain.clone(),
            squares: Squares::zeros(parameters),
            plain,
            seen: false,
        }
    }

    fn weigh(&mut self) {
        // The weights are a function of the moving averages alone, so that a resumed run has the
        // same weights as an uninterrupted one.
        self.groups = self.plain.clone();
        let weights = self.seen.then(|| factored(&self.settings, &self.squares)).flatten();
        if let Some(weights) = weights {
            self.groups = Arc::new(self.plain.weighted(|id| weights[id.index()].clone()));
        }
    }
}

impl Allocator for Adaclip {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.groups, &self.bounds, noise_multiplier * self.bound)
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, released: Released, parameters: &Parameters) -> Result<()> {
        let beta = self.settings.beta;
        for (id, means) in released.means(GradientStatistic::Square, parameters)? {
            let Some(squares) = &mut self.squares[id.index()] else { continue };
            let sides = [(&mut squares.rows, means.rows), (&mut squares.columns, means.columns)];
            for (kept, square) in
                sides.into_iter().flat_map(|(kept, squares)| kept.iter_mut().zip(squares))
            {
                *kept = beta * *kept + (1.0 - beta) * square as f32;
            }
        }
        self.seen = true;
        drop(released);
        self.weigh();
        Ok(())
    }

    fn state(&self) -> Vec<(String, Host)> {
        if !self.seen {
            return Vec::new();
        }
        let host = |numbers: &[f32]| Host::from_vec(1, numbers.len(), numbers.to_vec());
        let of = |squares: &Squares| {
            [
                (format!("squares.rows.{}", squares.name), host(&squares.rows)),
                (format!("squares.columns.{}", squares.name), host(&squares.columns)),
            ]
        };
        self.squares.iter().flatten().flat_map(of).collect()
    }

    fn restore(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        let mut all = true;
        for squares in self.squares.iter_mut().flatten() {
            for (kind, numbers) in [("rows", &mut squares.rows), ("columns", &mut squares.columns)]
            {
                match find(&format!("squares.{kind}.{}", squares.name)) {
                    Some(restored) if restored.len() == numbers.len() => {
                        *numbers = restored;
                    }
                    _ => all = false,
                }
            }
        }
        self.seen = all;
        self.weigh();
        all
    }
}
