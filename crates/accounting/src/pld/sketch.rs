//! A quick, uncertified look at a composition: cumulants by quadrature, from which the tilt, the mesh and the window of
//! the certified computation are chosen. A bad sketch makes the certified answer wide, never wrong.

use super::pair::{Pair, Repeated};
use rayon::prelude::*;

/// One part's loss distribution under P, as weighted points.
pub struct Sketch {
    pub count: f64,
    pub loss: Vec<f64>,
    log_weight: Vec<f64>,
}

/// Value and slope of a cumulant generating function.
#[derive(Clone, Copy, Default)]
pub struct Cumulant {
    pub value: f64,
    pub slope: f64,
}

impl Sketch {
    pub fn of(part: &Repeated, reach: f64) -> Self {
        let (mut loss, mut log_weight) = (Vec::new(), Vec::new());
        let atoms = part.pair.atoms();
        if atoms.is_empty() {
            let (low, high) = part.pair.support(reach);
            let shift = match part.pair {
                Pair::Shifted { shift, .. } | Pair::Opposed { shift, .. } => shift,
                Pair::Response { .. } => 0.0,
            };
            // The loss bends over a stretch of 1/shift, the densities over 1.
            let points = ((high - low) / (0.25 / shift).min(0.125)).ceil() as usize;
            let step = (high - low) / points as f64;
            let (means, weights) = (part.pair.means(), part.pair.p_weights());
            for i in 0..=points {
                let z = low + step * i as f64;
                let mass: f64 = means
                    .iter()
                    .zip(weights)
                    .map(|(m, w)| w * crate::normal::density(z - m))
                    .sum::<f64>()
                    * step;
                if mass > 0.0 {
                    loss.push(part.pair.loss(z));
                    log_weight.push(mass.ln());
                }
            }
        } else {
            for (l, mass) in atoms {
                loss.push(l);
                log_weight.push(mass.ln());
            }
        }
        Self { count: part.count as f64, loss, log_weight }
    }

    /// The same pair with P and Q exchanged.
    pub fn reversed(&self) -> Self {
        let mut points: Vec<(f64, f64)> =
            self.loss.iter().zip(&self.log_weight).map(|(&l, &w)| (-l, w - l)).collect();
        points.reverse();
        let (loss, log_weight) = points.into_iter().unzip();
        Self { count: self.count, loss, log_weight }
    }

    /// ln E[e^{tilt·loss}] of one event, and its slope.
    pub fn cumulant(&self, tilt: f64) -> Cumulant {
        let top = self.top_exponent(tilt);
        let (mut sum, mut first) = (0.0, 0.0);
        for (&l, &w) in self.loss.iter().zip(&self.log_weight) {
            let weight = (w + tilt * l - top).exp();
            sum += weight;
            first += weight * l;
        }
        Cumulant { value: top + sum.ln(), slope: first / sum }
    }

    /// The tilted probabilities of the points.
    pub fn tilted(&self, tilt: f64) -> Vec<f64> {
        let top = self.top_exponent(tilt);
        let mut weights: Vec<f64> = self
            .loss
            .iter()
            .zip(&self.log_weight)
            .map(|(&l, &w)| (w + tilt * l - top).exp())
            .collect();
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
        weights
    }

    /// Where most of the mass lies, if it is narrower than `mesh`: with the grid centred there, next to nothing has to be
    /// split or merged. (If the mass is wider, any place will do.)
    ///
    /// Losses above the centre count a little more than those below, a margin for the sketch's own error: so the mass below
    /// outweighs that above, and the lower discretisation can balance the two even where nothing lies farther below.
    pub fn centre(&self, mesh: f64) -> f64 {
        const MARGIN: f64 = 1.1;
        let weights: Vec<f64> = self.log_weight.iter().map(|w| w.exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut below = 0.0;
        let median = weights.iter().position(|w| {
            below += w;
            below >= 0.5 * total
        });
        let mut centre = self.loss[median.unwrap_or(0)];
        for _ in 0..100 {
            let (mut mass, mut moment) = (f64::MIN_POSITIVE, 0.0);
            let from = self.loss.partition_point(|&l| l < centre - 0.5 * mesh);
            for (&l, w) in self.loss.iter().zip(&weights).skip(from) {
                if l > centre + 0.5 * mesh {
                    break;
                }
                let w = if l > centre { MARGIN * w } else { *w };
                mass += w;
                moment += w * (l - centre);
            }
            centre += moment / mass;
            if moment.abs() <= 1e-4 * mesh * mass {
                break;
            }
        }
        centre
    }

    fn top_exponent(&self, tilt: f64) -> f64 {
        self.loss
            .iter()
            .zip(&self.log_weight)
            .map(|(&l, &w)| w + tilt * l)
            .fold(f64::NEG_INFINITY, f64::max)
    }
}

/// ln E[e^{tilt·total loss}] of the whole composition, and its slope.
pub fn total_cumulant(sketches: &[Sketch], tilt: f64) -> Cumulant {
    sketches
        .par_iter()
        .with_min_len(16)
        .map(|s| {
            let c = s.cumulant(tilt);
            Cumulant { value: s.count * c.value, slope: s.count * c.slope }
        })
        .reduce(Cumulant::default, |a, b| Cumulant {
            value: a.value + b.value,
            slope: a.slope + b.slope,
        })
}
