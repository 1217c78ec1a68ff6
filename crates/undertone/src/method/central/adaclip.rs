//! AdaClip (after Pichapati and others, 2019), factored: noise std in proportion to the square root
//! of the gradient's root mean square.
//!
//! Among all weights w that leave the expected squared norm Σ_j w_j E[g_j²] of a gradient the same,
//! which give the least total noise? Noise of variance σ²C²/w_j adds up to σ²C² Σ_j 1/w_j, which
//! under that condition is least for w_j ∝ E[g_j²]^(−½): coordinates with large gradients get more
//! noise, those with small ones less. ANADP does the opposite: it gives the least noise to the
//! coordinates that it considers most important.
//!
//! E[g²] is estimated from released gradients, minus the known variance of their noise. For a
//! single coordinate that estimate is mostly noise; for the mean over a row, a column or a tensor
//! it is not. So the weight of a coordinate is a weight of its row times one of its column, and
//! per-example norms under such weights need no per-example gradient (ghost clipping). Clipping
//! uses the same weights, so the effective noise multiplier is σ whatever they are.

use super::allocation::{Allocation, Allocator};
use crate::gradient::{Bounds, Clip, Clipping, ClippingGroups, Weights};
use crate::method::Released;
use crate::model::Parameters;
use crate::tensor::{GradientStatistic, Host, Result};
use std::sync::Arc;
use undertone_run::AdaclipSection;

/// Moving averages of g² over each row and each column of one parameter.
#[derive(Clone, Debug)]
struct Squares {
    name: String,
    rows: Vec<f32>,
    columns: Vec<f32>,
}

/// Weights of one parameter: of the tensor relative to all, of rows and columns within it.
struct Relative {
    tensor: f64,
    rows: Vec<f64>,
    columns: Vec<f64>,
}

/// AdaClip's allocator.
#[derive(Debug)]
pub struct Adaclip {
    settings: AdaclipSection,
    plain: Arc<ClippingGroups>,
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    bound: f64,
    squares: Vec<Option<Squares>>,
    /// Whether any gradient was released yet.
    seen: bool,
}

impl Adaclip {
    /// Starts with uniform weights.
    pub fn new(clip: &Clip, settings: AdaclipSection, parameters: &Parameters) -> Self {
        let plain = Arc::new(clip.groups(parameters));
        let squares = parameters.iter().map(|(_, parameter)| {
            let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
            parameter.trainable.then(|| Squares {
                name: parameter.name.clone(),
                rows: vec![0.0; rows],
                columns: vec![0.0; columns],
            })
        });
        Self {
            settings,
            bounds: clip.bounds(plain.count()),
            bound: clip.bound(),
            groups: plain.clone(),
            squares: squares.collect(),
            plain,
            seen: false,
        }
    }

    fn weigh(&mut self) {
        if !self.seen {
            return;
        }
        let mean = |numbers: &[f32]| {
            numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / numbers.len().max(1) as f64
        };
        // E[g²] over all coordinates, which the tensors' are relative to.
        let count = |s: &Squares| (s.rows.len() * s.columns.len()) as f64;
        let all: f64 = self.squares.iter().flatten().map(count).sum();
        let whole =
            self.squares.iter().flatten().map(|s| count(s) * mean(&s.rows).max(0.0)).sum::<f64>()
                / all.max(1.0);
        // The weights are a function of the moving averages alone, so that a resumed run has those
        // of the uninterrupted one.
        self.groups = self.plain.clone();
        if whole.is_nan() || whole <= 0.0 {
            return;
        }
        let (least, largest) = (f64::from(self.settings.range.0), f64::from(self.settings.range.1));
        let exponent = self.settings.exponent;
        // Rows and columns each have the fourth root of the tensors' range.
        let factor = |square: f64, relative_to: f64, range: (f64, f64)| {
            let ratio = (square / relative_to).max(1e-12);
            ratio.powf(-exponent).clamp(range.0, range.1)
        };
        let inner = (least.powf(0.25), largest.powf(0.25));
        let mut weights: Vec<Option<Relative>> = Vec::with_capacity(self.squares.len());
        let mut sum = 0.0;
        for squares in &self.squares {
            let Some(squares) = squares else {
                weights.push(None);
                continue;
            };
            let own = mean(&squares.rows).max(0.0);
            let tensor = factor(own, whole, (least, largest));
            let side = |numbers: &[f32]| -> Vec<f64> {
                let weight =
                    |x: &f32| if own > 0.0 { factor(f64::from(*x), own, inner) } else { 1.0 };
                let weights: Vec<f64> = numbers.iter().map(weight).collect();
                let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
                weights.into_iter().map(|w| w / mean).collect()
            };
            sum += tensor * count(squares);
            let (rows, columns) = (side(&squares.rows), side(&squares.columns));
            weights.push(Some(Relative { tensor, rows, columns }));
        }
        let scale = all / sum;
        let of = |Relative { tensor, rows, columns }: &Relative| Weights::Factored {
            rows: rows.iter().map(|w| (scale * tensor * w) as f32).collect(),
            columns: columns.iter().map(|&w| w as f32).collect(),
        };
        self.groups = Arc::new(self.plain.weighted(|id| weights[id.index()].as_ref().map(of)));
    }
}

impl Allocator for Adaclip {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.groups, &self.bounds, noise_multiplier * self.bound)
    }

    fn observe(&mut self, released: Released, parameters: &Parameters) -> Result<()> {
        let beta = self.settings.beta;
        for (id, means) in released.means(GradientStatistic::Square, parameters)? {
            let Some(squares) = &mut self.squares[id.index()] else { continue };
            let sides = [(&mut squares.rows, means.rows), (&mut squares.columns, means.columns)];
            for (kept, found) in
                sides.into_iter().flat_map(|(kept, found)| kept.iter_mut().zip(found))
            {
                *kept = beta * *kept + (1.0 - beta) * found as f32;
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
                    Some(found) if found.len() == numbers.len() => {
                        *numbers = found;
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
