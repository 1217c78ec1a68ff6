//! Dominating pairs: for each event, two distributions on the line that are at least as easy to
//! tell apart as the mechanism's outputs on any two neighbours (PROOFS.md, sections 1–3).

use crate::event::{Adjacency, Event};
use crate::normal::{UNIT, upper_quantile, upper_tail};
use crate::sum::Sum;

/// Normal components that both sides of a pair are mixtures of: at 0, at +s and at −s (in noise
/// standard deviations).
pub const COMPONENTS: usize = 3;

/// A pair (P, Q) whose loss ln dP/dQ increases along the line.
#[derive(Debug, Clone, Copy)]
pub enum Pair {
    /// P = (1 − q) N(0, 1) + q N(s, 1) against Q = N(0, 1): one unit added or removed.
    Shifted {
        /// Sampling rate.
        rate: f64,
        /// Distance s between the components.
        shift: f64,
    },
    /// P = (1 − q) N(0, 1) + q N(s, 1) against Q = (1 − q) N(0, 1) + q N(−s, 1): one unit replaced.
    Opposed {
        /// Sampling rate.
        rate: f64,
        /// Distance s of either component from 0.
        shift: f64,
    },
    /// Randomised response: three atoms.
    Response {
        /// ε of the response.
        epsilon: f64,
        /// Number of categories.
        categories: f64,
    },
}

/// A pair and how often it happens.
#[derive(Debug, Clone, Copy)]
pub struct Repeated {
    /// The pair.
    pub pair: Pair,
    /// How often.
    pub count: u64,
}

/// A single Gaussian part never shifts by more than this: a longer shift is split into equal
/// shorter ones, which compose to exactly the same pair (PROOFS.md, section 1) and keep e^loss
/// within range.
const LONGEST_SHIFT: f64 = 4.0;

/// The pairs of a composition. All events without subsampling become one.
pub fn pairs_of(parts: &[crate::Part], adjacency: Adjacency) -> Vec<Repeated> {
    let mut pairs = Vec::new();
    let mut squared_shift = Sum::default();
    for part in parts {
        let count = part.count;
        match part.event {
            Event::Gaussian { noise_multiplier, sensitivity } => {
                squared_shift.add(count as f64 * (sensitivity / noise_multiplier).powi(2));
            }
            Event::PoissonGaussian { noise_multiplier, sampling_rate } => {
                let shift = 1.0 / noise_multiplier;
                let pair = match adjacency {
                    Adjacency::AddRemove if sampling_rate == 1.0 => {
                        squared_shift.add(count as f64 * shift * shift);
                        continue;
                    }
                    Adjacency::ReplaceOne if sampling_rate == 1.0 => {
                        squared_shift.add(count as f64 * 4.0 * shift * shift);
                        continue;
                    }
                    Adjacency::AddRemove => Pair::Shifted { rate: sampling_rate, shift },
                    Adjacency::ReplaceOne => Pair::Opposed { rate: sampling_rate, shift },
                };
                pairs.push(Repeated { pair, count });
            }
            Event::RandomisedResponse { epsilon, categories } => {
                pairs.push(Repeated {
                    pair: Pair::Response { epsilon, categories: categories as f64 },
                    count,
                });
            }
        }
    }
    let squared_shift = squared_shift.total();
    if squared_shift > 0.0 {
        let count = (squared_shift / LONGEST_SHIFT.powi(2)).ceil().max(1.0);
        let shift = (squared_shift / count).sqrt();
        pairs.push(Repeated { pair: Pair::Shifted { rate: 1.0, shift }, count: count as u64 });
    }
    pairs
}

/// ln(1 − q + q e^a), without overflow and exact for small q.
fn log_mix(rate: f64, a: f64) -> f64 {
    if rate == 1.0 {
        a
    } else if a > 30.0 {
        a + (rate + (1.0 - rate) * (-a).exp()).ln()
    } else {
        (rate * a.exp_m1()).ln_1p()
    }
}

impl Pair {
    /// Whether (Q, P) is (P, Q) mirrored, so that one direction stands for both.
    pub fn is_symmetric(&self) -> bool {
        match *self {
            Pair::Shifted { rate, .. } => rate == 1.0,
            Pair::Opposed { .. } | Pair::Response { .. } => true,
        }
    }

    /// Where the mass gathers, if that is known.
    pub fn centre(&self) -> Option<f64> {
        match self {
            Pair::Opposed { .. } => Some(0.0),
            _ => None,
        }
    }

    /// How many of the components it has; the others weigh nothing.
    pub fn components(&self) -> usize {
        match self {
            Pair::Shifted { .. } => 2,
            Pair::Opposed { .. } => 3,
            Pair::Response { .. } => 0,
        }
    }

    /// Where the components sit.
    pub fn means(&self) -> [f64; COMPONENTS] {
        match *self {
            Pair::Shifted { shift, .. } | Pair::Opposed { shift, .. } => [0.0, shift, -shift],
            Pair::Response { .. } => [0.0; COMPONENTS],
        }
    }

    /// The loss ln dP/dQ at the point z.
    pub fn loss(&self, z: f64) -> f64 {
        match *self {
            Pair::Shifted { rate, shift } => log_mix(rate, shift * z - 0.5 * shift * shift),
            Pair::Opposed { rate, shift } => {
                let half = 0.5 * shift * shift;
                log_mix(rate, shift * z - half) - log_mix(rate, -shift * z - half)
            }
            Pair::Response { .. } => unreachable!("atoms have no density"),
        }
    }

    /// The point z where the loss passes `loss`; −∞ where every loss is above it.
    pub fn threshold(&self, loss: f64) -> f64 {
        match *self {
            Pair::Shifted { rate, shift } => {
                if rate == 1.0 {
                    return loss / shift + 0.5 * shift;
                }
                let excess = loss.exp_m1() / rate;
                if excess <= -1.0 {
                    return f64::NEG_INFINITY;
                }
                excess.ln_1p() / shift + 0.5 * shift
            }
            Pair::Opposed { rate, shift } => {
                // (1 − q) + κu = e^ℓ((1 − q) + κ/u) with u = e^{sz}, κ = q e^{−s²/2}: u = e^{ℓ/2}
                // e^y, sinh y as below.
                let kappa = rate * (-0.5 * shift * shift).exp();
                (0.5 * loss + ((1.0 - rate) * (0.5 * loss).sinh() / kappa).asinh()) / shift
            }
            Pair::Response { .. } => unreachable!("atoms have no density"),
        }
    }

    /// For each component, its weight in P − e^loss·Q. Computed so that a small rate costs no
    /// accuracy.
    pub fn excess_weights(&self, loss: f64) -> [f64; COMPONENTS] {
        match *self {
            // Without sampling losses go down without end, and e^loss must keep its accuracy there.
            Pair::Shifted { rate: 1.0, .. } => [-loss.exp(), 1.0, 0.0],
            Pair::Shifted { rate, .. } => [-(rate + loss.exp_m1()), rate, 0.0],
            Pair::Opposed { rate, .. } => [-(1.0 - rate) * loss.exp_m1(), rate, -rate * loss.exp()],
            Pair::Response { .. } => [0.0; COMPONENTS],
        }
    }

    /// Bounds on the rounding errors of [`Pair::excess_weights`], where `loss` itself is off by one
    /// rounding.
    pub fn excess_weight_errors(&self, loss: f64) -> [f64; COMPONENTS] {
        let moved = 4.0 * loss.exp_m1().abs() + 2.0 * loss.abs() * loss.exp();
        let errors = match *self {
            Pair::Shifted { rate: 1.0, .. } => [(4.0 + 2.0 * loss.abs()) * loss.exp(), 0.0, 0.0],
            Pair::Shifted { rate, .. } => [moved + 4.0 * rate, 0.0, 0.0],
            Pair::Opposed { rate, .. } => {
                [(1.0 - rate) * moved, 0.0, rate * (4.0 + 2.0 * loss.abs()) * loss.exp()]
            }
            Pair::Response { .. } => [0.0; COMPONENTS],
        };
        errors.map(|e| e * UNIT)
    }

    /// For each component, its weight in P.
    pub fn p_weights(&self) -> [f64; COMPONENTS] {
        match *self {
            Pair::Shifted { rate, .. } | Pair::Opposed { rate, .. } => [1.0 - rate, rate, 0.0],
            Pair::Response { .. } => [0.0; COMPONENTS],
        }
    }

    /// For each component, its weight in Q.
    pub fn q_weights(&self) -> [f64; COMPONENTS] {
        match *self {
            Pair::Shifted { .. } => [1.0, 0.0, 0.0],
            Pair::Opposed { rate, .. } => [1.0 - rate, 0.0, rate],
            Pair::Response { .. } => [0.0; COMPONENTS],
        }
    }

    /// The stretch of the line outside of which P has no more than `cut` above and Q no more than
    /// `cut` below.
    pub fn support(&self, cut: f64) -> (f64, f64) {
        let (rate, shift) = match *self {
            Pair::Shifted { rate, shift } | Pair::Opposed { rate, shift } => (rate, shift),
            Pair::Response { .. } => return (0.0, 0.0),
        };
        let above = |z: f64| (1.0 - rate) * upper_tail(z) + rate * upper_tail(z - shift);
        let (mut low, mut high) = (0.0, shift + 40.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if above(middle) > cut { low = middle } else { high = middle }
        }
        match self {
            Pair::Shifted { .. } => (-upper_quantile(cut.min(0.5)), high),
            _ => (-high, high),
        }
    }

    /// The atoms of a pair that has no density: (loss, mass under P).
    pub fn atoms(&self) -> Vec<(f64, f64)> {
        let Pair::Response { epsilon, categories } = *self else { return Vec::new() };
        let others = (categories - 1.0) * (-epsilon).exp();
        let truth = 1.0 / (1.0 + others);
        let one_other = (-epsilon).exp() / (1.0 + others);
        let mut atoms = vec![(-epsilon, one_other)];
        if categories > 2.0 {
            atoms.push((0.0, (categories - 2.0) * one_other));
        }
        atoms.push((epsilon, truth));
        atoms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_inverts_loss() {
        for rate in [1e-7, 1e-3, 0.3, 0.999] {
            for shift in [1e-3, 0.5, 2.0, 20.0] {
                for pair in [Pair::Shifted { rate, shift }, Pair::Opposed { rate, shift }] {
                    for z in [-1.0, 0.0, 0.7, 3.0, 9.0] {
                        let loss = pair.loss(z);
                        let back = pair.loss(pair.threshold(loss));
                        assert!(
                            (back - loss).abs() <= 1e-12 * (1.0 + loss.abs()),
                            "{pair:?} z={z}: {loss} came back as {back}"
                        );
                    }
                }
            }
        }
    }
}
