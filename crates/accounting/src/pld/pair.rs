//! Dominating pairs: for each event, two distributions on the real line that are at least as
//! distinguishable as the mechanism's outputs on any two neighboring data sets (PROOFS.md, sections
//! 1–3).

use super::mixture::Mixture;
use crate::event::{Adjacency, Event};
use crate::normal::{UNIT, upper_quantile, upper_tail};
use crate::sum::Sum;
use std::sync::Arc;

/// A pair (P, Q) whose privacy loss ln dP/dQ increases along the line. Unless it has atoms, both
/// are mixtures of the same few normal distributions of variance 1.
#[derive(Debug, Clone)]
pub enum Pair {
    /// P = (1 − q) N(0, 1) + q N(s, 1) against Q = N(0, 1): one unit added or removed.
    Shifted {
        /// Sampling rate q.
        sampling_rate: f64,
        /// Distance s between the components.
        shift: f64,
    },
    /// P = (1 − q) N(0, 1) + q N(s, 1) against Q = (1 − q) N(0, 1) + q N(−s, 1): one unit replaced.
    Opposed {
        /// Sampling rate q.
        sampling_rate: f64,
        /// Distance s of either component from 0.
        shift: f64,
    },
    /// P = Σᵢ wᵢ N(i·s, 1) against Q = N(0, 1): one user with several examples added or removed.
    Mixed(Arc<Mixture>),
    /// Randomized response: three atoms.
    Response {
        /// ε of one response.
        epsilon: f64,
        /// Number of possible values.
        categories: f64,
    },
}

/// A pair and its number of repetitions.
#[derive(Debug, Clone)]
pub struct Repeated {
    /// The repeated pair.
    pub pair: Pair,
    /// Number of repetitions.
    pub count: u64,
}

/// Maximum shift of a single Gaussian part: a larger shift is split into equal smaller ones, which
/// compose to exactly the same pair (PROOFS.md, section 1) and keep e^loss within range.
const LONGEST_SHIFT: f64 = 4.0;

/// 1/x, rounded up: a longer shift dominates a shorter one, so the pair covers the exact noise
/// multiplier. (A lower bound then belongs to noise that is smaller by at most two roundings.)
fn inverse_up(x: f64) -> f64 {
    let quotient = 1.0 / x;
    match quotient.mul_add(x, -1.0) < 0.0 {
        true => quotient.next_up(),
        false => quotient,
    }
}

/// The dominating pairs of a composition. All events without subsampling become one pair.
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
                let shift = inverse_up(noise_multiplier);
                let pair = match adjacency {
                    Adjacency::AddRemove if sampling_rate == 1.0 => {
                        squared_shift.add(count as f64 * shift * shift);
                        continue;
                    }
                    Adjacency::ReplaceOne if sampling_rate == 1.0 => {
                        squared_shift.add(count as f64 * 4.0 * shift * shift);
                        continue;
                    }
                    Adjacency::AddRemove => Pair::Shifted { sampling_rate, shift },
                    Adjacency::ReplaceOne => Pair::Opposed { sampling_rate, shift },
                };
                pairs.push(Repeated { pair, count });
            }
            Event::MixtureOfGaussians { noise_multiplier, sampling_rate, examples_per_user } => {
                let shift = inverse_up(noise_multiplier);
                let pair = match examples_per_user {
                    _ if sampling_rate == 1.0 => {
                        squared_shift
                            .add(count as f64 * (examples_per_user as f64 * shift).powi(2));
                        continue;
                    }
                    1 => Pair::Shifted { sampling_rate, shift },
                    k => Pair::Mixed(Arc::new(Mixture::new(k, sampling_rate, shift))),
                };
                pairs.push(Repeated { pair, count });
            }
            Event::RandomizedResponse { epsilon, categories } => {
                pairs.push(Repeated {
                    pair: Pair::Response { epsilon, categories: categories as f64 },
                    count,
                });
            }
            Event::Selection { .. } | Event::Exponential { .. } | Event::Threshold { .. } => {
                unreachable!("Rényi DP accounts for the first two, and thresholds count apart")
            }
        }
    }
    let squared_shift = squared_shift.total();
    if squared_shift > 0.0 {
        let count = (squared_shift / LONGEST_SHIFT.powi(2)).ceil().max(1.0);
        // Covers a few roundings of each square, of their sum and of the root.
        let shift = (squared_shift / count).sqrt() * (1.0 + 16.0 * UNIT);
        pairs.push(Repeated {
            pair: Pair::Shifted { sampling_rate: 1.0, shift },
            count: count as u64,
        });
    }
    pairs
}

/// ln(1 − q + q e^a), without overflow and exact for small q.
fn log_mix(sampling_rate: f64, a: f64) -> f64 {
    if sampling_rate == 1.0 {
        a
    } else if a > 30.0 {
        a + (sampling_rate + (1.0 - sampling_rate) * (-a).exp()).ln()
    } else {
        (sampling_rate * a.exp_m1()).ln_1p()
    }
}

impl Pair {
    /// Whether (Q, P) mirrors (P, Q), so that one direction represents both.
    pub fn is_symmetric(&self) -> bool {
        match *self {
            Pair::Shifted { sampling_rate, .. } => sampling_rate == 1.0,
            Pair::Mixed(_) => false,
            Pair::Opposed { .. } | Pair::Response { .. } => true,
        }
    }

    /// The loss at which the mass concentrates, if known.
    pub fn center(&self) -> Option<f64> {
        match self {
            Pair::Opposed { .. } => Some(0.0),
            _ => None,
        }
    }

    /// Number of components of P and Q: at 0, at +s and at −s (in noise standard deviations), or at
    /// the multiples of s.
    pub fn components(&self) -> usize {
        match self {
            Pair::Shifted { .. } => 2,
            Pair::Opposed { .. } => 3,
            Pair::Mixed(mixture) => mixture.components(),
            Pair::Response { .. } => 0,
        }
    }

    /// Mean of a component.
    pub fn mean(&self, component: usize) -> f64 {
        match self {
            Pair::Shifted { shift, .. } | Pair::Opposed { shift, .. } => {
                [0.0, *shift, -shift][component]
            }
            Pair::Mixed(mixture) => mixture.mean(component),
            Pair::Response { .. } => 0.0,
        }
    }

    /// The scale of z on which the loss bends.
    pub fn bend(&self) -> f64 {
        match self {
            Pair::Shifted { shift, .. } | Pair::Opposed { shift, .. } => 1.0 / shift,
            Pair::Mixed(mixture) => 1.0 / mixture.reach(),
            Pair::Response { .. } => f64::INFINITY,
        }
    }

    /// A bound on the weight in P of components that are left out.
    pub fn left_out(&self) -> f64 {
        match self {
            Pair::Mixed(mixture) => mixture.left_out(),
            _ => 0.0,
        }
    }

    /// The privacy loss ln dP/dQ at the point z.
    pub fn loss(&self, z: f64) -> f64 {
        match *self {
            Pair::Shifted { sampling_rate, shift } => {
                log_mix(sampling_rate, shift * z - 0.5 * shift * shift)
            }
            Pair::Opposed { sampling_rate, shift } => {
                let half = 0.5 * shift * shift;
                log_mix(sampling_rate, shift * z - half) - log_mix(sampling_rate, -shift * z - half)
            }
            Pair::Mixed(ref mixture) => mixture.loss(z),
            Pair::Response { .. } => unreachable!("atoms have no density"),
        }
    }

    /// The point z where the loss crosses `loss`, or −∞ if every loss is above it.
    pub fn threshold(&self, loss: f64) -> f64 {
        match *self {
            Pair::Shifted { sampling_rate, shift } => {
                if sampling_rate == 1.0 {
                    return loss / shift + 0.5 * shift;
                }
                let excess = loss.exp_m1() / sampling_rate;
                if excess <= -1.0 {
                    return f64::NEG_INFINITY;
                }
                excess.ln_1p() / shift + 0.5 * shift
            }
            Pair::Opposed { sampling_rate, shift } => {
                // (1 − q) + κu = e^ℓ((1 − q) + κ/u) with u = e^{sz}, κ = q e^{−s²/2}: u = e^{ℓ/2}
                // e^y, sinh y as below.
                let kappa = sampling_rate * (-0.5 * shift * shift).exp();
                (0.5 * loss + ((1.0 - sampling_rate) * (0.5 * loss).sinh() / kappa).asinh()) / shift
            }
            Pair::Mixed(ref mixture) => mixture.threshold(loss),
            Pair::Response { .. } => unreachable!("atoms have no density"),
        }
    }

    /// The weight of a component in P − e^loss·Q, computed so that a small sampling rate costs no
    /// accuracy.
    pub fn excess_weight(&self, component: usize, loss: f64) -> f64 {
        match *self {
            // Without sampling, losses have no lower bound, and e^loss must keep its accuracy
            // there.
            Pair::Shifted { sampling_rate: 1.0, .. } => match component {
                0 => -loss.exp(),
                _ => 1.0,
            },
            Pair::Shifted { sampling_rate, .. } => match component {
                0 => -(sampling_rate + loss.exp_m1()),
                _ => sampling_rate,
            },
            Pair::Opposed { sampling_rate, .. } => match component {
                0 => -(1.0 - sampling_rate) * loss.exp_m1(),
                1 => sampling_rate,
                _ => -sampling_rate * loss.exp(),
            },
            Pair::Mixed(ref mixture) => mixture.excess_weight(component, loss),
            Pair::Response { .. } => 0.0,
        }
    }

    /// A bound on the rounding error of [`Pair::excess_weight`], where `loss` itself has one
    /// rounding.
    pub fn excess_weight_error(&self, component: usize, loss: f64) -> f64 {
        let moved = || 4.0 * loss.exp_m1().abs() + 2.0 * loss.abs() * loss.exp();
        let error = match *self {
            Pair::Mixed(ref mixture) => return mixture.excess_weight_error(component, loss),
            Pair::Response { .. } => 0.0,
            _ if component == 1 => 0.0,
            Pair::Shifted { sampling_rate: 1.0, .. } => (4.0 + 2.0 * loss.abs()) * loss.exp(),
            Pair::Shifted { sampling_rate, .. } => moved() + 4.0 * sampling_rate,
            Pair::Opposed { sampling_rate, .. } if component == 0 => {
                (1.0 - sampling_rate) * moved()
            }
            Pair::Opposed { sampling_rate, .. } => {
                sampling_rate * (4.0 + 2.0 * loss.abs()) * loss.exp()
            }
        };
        error * UNIT
    }

    /// The weight of a component in P.
    pub fn p_weight(&self, component: usize) -> f64 {
        match *self {
            Pair::Shifted { sampling_rate, .. } | Pair::Opposed { sampling_rate, .. } => {
                [1.0 - sampling_rate, sampling_rate, 0.0][component]
            }
            Pair::Mixed(ref mixture) => mixture.weight(component),
            Pair::Response { .. } => 0.0,
        }
    }

    /// The weight of a component in Q.
    pub fn q_weight(&self, component: usize) -> f64 {
        match *self {
            Pair::Opposed { sampling_rate, .. } => {
                [1.0 - sampling_rate, 0.0, sampling_rate][component]
            }
            Pair::Shifted { .. } | Pair::Mixed(_) => f64::from(u8::from(component == 0)),
            Pair::Response { .. } => 0.0,
        }
    }

    /// The interval above which P, and below which Q, has at most the mass `cut`.
    pub fn support(&self, cut: f64) -> (f64, f64) {
        let (sampling_rate, shift) = match *self {
            Pair::Shifted { sampling_rate, shift } | Pair::Opposed { sampling_rate, shift } => {
                (sampling_rate, shift)
            }
            Pair::Mixed(ref mixture) => return mixture.support(cut),
            Pair::Response { .. } => return (0.0, 0.0),
        };
        let above =
            |z: f64| (1.0 - sampling_rate) * upper_tail(z) + sampling_rate * upper_tail(z - shift);
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

    /// (loss, mass under P) of the atoms of a pair without density.
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

    /// s·σ is at least 1 exactly, by one fused multiplication, and not much larger.
    #[test]
    fn shifts_are_rounded_up() {
        let mut rounded_down_before = 0;
        for i in 1..2000 {
            let sigma = 0.05 + 0.0137 * f64::from(i);
            let shift = inverse_up(sigma);
            let excess = shift.mul_add(sigma, -1.0);
            assert!((0.0..1e-15).contains(&excess), "{sigma}: {excess:e}");
            rounded_down_before += u32::from((1.0 / sigma).mul_add(sigma, -1.0) < 0.0);
        }
        assert!(rounded_down_before > 100, "{rounded_down_before}");
    }

    #[test]
    fn threshold_inverts_loss() {
        for sampling_rate in [1e-7, 1e-3, 0.3, 0.999] {
            for shift in [1e-3, 0.5, 2.0, 20.0] {
                for pair in
                    [Pair::Shifted { sampling_rate, shift }, Pair::Opposed { sampling_rate, shift }]
                {
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
