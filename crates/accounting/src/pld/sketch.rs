//! Sketches: quick, uncertified cumulants of a composition by quadrature, from which the tilt, the
//! mesh and the window of the certified computation are chosen. A bad sketch makes the certified
//! interval wide, never wrong.

use super::pair::Repeated;
use rayon::prelude::*;

/// One part's privacy-loss distribution under P, as weighted points.
#[derive(Clone)]
pub struct Sketch {
    pub count: f64,
    /// The loss at the center of the noise, where the mass concentrates if the sampling rate is
    /// small.
    pub middle: f64,
    /// Whether the part is discretized on a grid, and therefore needs a mesh.
    pub on_grid: bool,
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
    pub fn of(part: &Repeated, cut: f64) -> Self {
        let (mut loss, mut log_weight) = (Vec::new(), Vec::new());
        let atoms = part.pair.atoms();
        let atoms_only = !atoms.is_empty();
        if !atoms_only {
            let (low, high) = part.pair.support(cut);
            // The loss bends on a scale of its own, the densities on a scale of 1.
            let points = ((high - low) / (0.25 * part.pair.bend()).min(0.125)).ceil() as usize;
            let step = (high - low) / points as f64;
            let pair = &part.pair;
            for i in 0..=points {
                let z = low + step * i as f64;
                let mass: f64 = (0..pair.components())
                    .map(|c| pair.p_weight(c) * crate::normal::density(z - pair.mean(c)))
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
        let middle = if atoms_only { loss[0] } else { part.pair.loss(0.0) };
        Self { count: part.count as f64, middle, on_grid: true, loss, log_weight }
    }

    /// A sketch of exactly composed responses.
    pub fn of_atoms(atoms: &[(f64, f64)]) -> Self {
        let mut atoms = atoms.to_vec();
        atoms.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (loss, log_weight) = atoms.into_iter().map(|(l, m)| (l, m.ln())).unzip();
        Self { count: 1.0, middle: 0.0, on_grid: false, loss, log_weight }
    }

    /// The same pair with P and Q exchanged.
    pub fn reversed(&self) -> Self {
        let mut points: Vec<(f64, f64)> =
            self.loss.iter().zip(&self.log_weight).map(|(&l, &w)| (-l, w - l)).collect();
        points.reverse();
        let (loss, log_weight) = points.into_iter().unzip();
        Self { middle: -self.middle, loss, log_weight, ..*self }
    }

    /// Mass of one event above a loss.
    pub fn mass_above(&self, loss: f64) -> f64 {
        self.log_weight[self.loss.partition_point(|&l| l <= loss)..].iter().map(|w| w.exp()).sum()
    }

    /// The same sketch with all losses above `cap` moved to `cap`.
    pub fn capped(&self, cap: f64) -> Self {
        let above = self.mass_above(cap);
        if !self.on_grid || above == 0.0 {
            return self.clone();
        }
        let mut capped = self.below(cap);
        capped.loss.push(cap);
        capped.log_weight.push(above.ln());
        capped
    }

    /// The same sketch without the losses above `threshold`.
    pub fn below(&self, threshold: f64) -> Self {
        let kept = self.loss.partition_point(|&l| l <= threshold).max(1);
        let (loss, log_weight) = (self.loss[..kept].to_vec(), self.log_weight[..kept].to_vec());
        if self.on_grid { Self { loss, log_weight, ..*self } } else { self.clone() }
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

    /// The loss at which mass concentrates around the center of the noise, if it is narrower than
    /// `mesh`: with the grid centered there, almost nothing has to be split or merged. (If the mass
    /// is wider, any center will do.)
    ///
    /// The center o is the loss at which the mass up to half a mesh above o and the mass below it
    /// have equal excess, so that the lower discretization can balance the two. The balance is
    /// shifted slightly to the side given by `lean` (−1 or 1), where an imbalance does less harm.
    pub fn center(&self, mesh: f64, lean: f64) -> f64 {
        let weights: Vec<f64> = self.log_weight.iter().map(|w| w.exp()).collect();
        let mut center = self.middle;
        let mut spread = 0.0;
        for _ in 0..100 {
            let (mut mass, mut excess, mut absolute) = (f64::MIN_POSITIVE, 0.0, 0.0);
            let from = self.loss.partition_point(|&l| l < center - 0.5 * mesh);
            for (&l, w) in self.loss.iter().zip(&weights).skip(from) {
                if l > center + 0.5 * mesh {
                    break;
                }
                let difference = -(center - l).exp_m1();
                mass += w;
                excess += w * difference;
                absolute += w * difference.abs();
            }
            center += excess / mass;
            spread = absolute / mass;
            if excess.abs() <= 1e-7 * absolute {
                break;
            }
        }
        center + lean * 1e-5 * spread
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
