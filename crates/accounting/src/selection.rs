//! Private selection: the best of a random number of private runs (after Papernot and Steinke,
//! 2022).
//!
//! K is drawn from a [distribution](NumberOfRuns). K times, a candidate is chosen uniformly,
//! trained and scored. Only the best of them is released: neither K nor anything about the others.
//! Knowing K would reveal more, so it stays secret.
//!
//! # What is proved
//!
//! Let Q be one run on the data, Q' the same on neighboring data, each with an independent uniform
//! number that breaks ties, so that the order of outputs is strict. Let F(y) be the probability
//! that a run of Q is no better than y, and f(x) = E[x^K]. The best of K runs has the density
//! f'(F(y)) Q(y), and for λ > 1
//!
//! ```text
//! e^{(λ−1) D_λ(A‖A')} ≤ P[K = 0] + ∫ Q^λ Q'^{1−λ} f'(F)^λ f'(F')^{1−λ}
//!                     ≤ P[K = 0] + e^{(λ−1) D_λ(Q‖Q')} · sup f'(x)^λ f'(x')^{1−λ},
//! ```
//!
//! where x and x' are the probabilities of one event under Q and Q'.
//!
//! *Truncated negative binomial*, f'(x) = E\[K\] (γ/p)^{η+1} with p = 1 − (1−γ)x ≥ γ, and K ≥ 1.
//! Here p and p' are also probabilities of one (randomized) event, so D_λ̂(Q'‖Q) ≤ ε̂ gives p'^λ̂
//! p^{1−λ̂} ≤ e^{(λ̂−1)ε̂}. Substituting this and p ≥ γ into p^{−λ} p'^{λ−1} leaves
//!
//! ```text
//! D_λ(A‖A') ≤ D_λ(Q‖Q') + (1+η)(1 − 1/λ̂) ε̂ + (1+η) ln(1/γ)/λ̂ + ln E[K]/(λ−1).
//! ```
//!
//! *Poisson with mean μ*, f'(x) = μ e^{−μ(1−x)}. If Q is (ε̂, δ̂)-DP with e^ε̂ ≤ λ/(λ−1), then
//! (λ−1)(1−x') − λ(1−x) ≤ (λ−1)δ̂, and
//!
//! ```text
//! e^{(λ−1) D_λ(A‖A')} ≤ e^{−μ} + μ e^{(λ−1)(D_λ(Q‖Q') + μ δ̂)}.
//! ```
//!
//! *Candidates.* A run that first chooses among candidates by public randomness and reports its
//! choice has, at each order, at most the largest divergence of any candidate.

use crate::accountant::samples_examples;
use crate::event::{Adjacency, Event};
use crate::{Accountant, Composition, Error, Result, epsilon, rdp};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The distribution of the number of runs, K.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NumberOfRuns {
    /// Truncated negative binomial: K ≥ 1, P[K = k] ∝ (1−γ)^k Π_{l<k} (l+η)/(l+1).
    NegativeBinomial {
        /// Shape, above −1: 1 is the geometric distribution, 0 the logarithmic one. A smaller value
        /// costs less, and leaves more to chance.
        eta: f64,
        /// In (0, 1): the smaller, the more runs.
        gamma: f64,
    },
    /// Poisson: K may be 0, in which case nothing is released.
    Poisson {
        /// The mean number of runs.
        mean: f64,
    },
}

impl NumberOfRuns {
    /// Checks that the parameters are in their ranges.
    pub fn validate(&self) -> Result<()> {
        let within = |name, value: f64, least: f64, most: f64, rule: &str| match value >= least
            && value <= most
        {
            true => Ok(()),
            false => Err(Error::invalid(name, value, rule)),
        };
        match *self {
            Self::NegativeBinomial { eta, gamma } => {
                within("η of the number of runs", eta, -0.999, 100.0, "from -0.999 to 100")?;
                within("γ of the number of runs", gamma, 1e-6, 0.999, "from 1e-6 to 0.999")?;
                within("mean number of runs", self.mean(), 1.0, 1e5, "at most 100,000")
            }
            // Beyond this, e^{−mean} underflows, and no draw would have the right distribution.
            Self::Poisson { mean } => {
                within("mean number of runs", mean, 0.01, 700.0, "from 0.01 to 700")
            }
        }
    }

    /// E\[K\].
    pub fn mean(&self) -> f64 {
        match *self {
            Self::NegativeBinomial { eta, gamma } if eta.abs() < 1e-9 => {
                (1.0 / gamma - 1.0) / -gamma.ln()
            }
            Self::NegativeBinomial { eta, gamma } => {
                eta * (1.0 - gamma) / (gamma * -(eta * gamma.ln()).exp_m1())
            }
            Self::Poisson { mean } => mean,
        }
    }

    /// P[K = k] for k = 0, 1, 2, …
    pub fn probabilities(self) -> impl Iterator<Item = f64> {
        let (none, first) = match self {
            Self::NegativeBinomial { eta, gamma } if eta.abs() < 1e-9 => {
                (0.0, (1.0 - gamma) / -gamma.ln())
            }
            Self::NegativeBinomial { eta, gamma } => {
                (0.0, (1.0 - gamma) * eta / (-eta * gamma.ln()).exp_m1())
            }
            Self::Poisson { mean } => ((-mean).exp(), mean * (-mean).exp()),
        };
        let ratio = move |k: f64| match self {
            Self::NegativeBinomial { eta, gamma } => (1.0 - gamma) * (k + eta) / (k + 1.0),
            Self::Poisson { mean } => mean / (k + 1.0),
        };
        let positive = std::iter::successors(Some((1.0, first)), move |&(k, probability)| {
            Some((k + 1.0, probability * ratio(k)))
        });
        std::iter::once(none).chain(positive.map(|(_, probability)| probability))
    }

    /// K as a function of a uniform number in [0, 1): the quantile function.
    pub fn draw(self, uniform: f64) -> u64 {
        const MOST: usize = 10_000_000;
        let mut below = 0.0;
        for (k, probability) in self.probabilities().enumerate().take(MOST) {
            below += probability;
            // Far in the tail, rounding keeps the sum below 1.
            if uniform < below || (k as f64 > self.mean() && probability < 1e-18) {
                return k as u64;
            }
        }
        MOST as u64
    }
}

/// The Rényi divergence of the best of K runs, from that of one run.
#[derive(Debug, Clone)]
pub(crate) struct BestOf {
    runs: NumberOfRuns,
    /// Orders, and one run's divergence at each.
    curve: Vec<(f64, f64)>,
    /// min over λ̂ of (1+η)((1 − 1/λ̂) ε̂ + ln(1/γ)/λ̂), for the truncated negative binomial.
    overhead: f64,
}

impl BestOf {
    /// The best of runs with the given divergence by order.
    pub fn new(runs: NumberOfRuns, orders: &[f64], of_run: impl Fn(f64) -> f64 + Sync) -> Self {
        let curve: Vec<(f64, f64)> =
            orders.par_iter().map(|&order| (order, of_run(order))).collect();
        let overhead = match runs {
            NumberOfRuns::NegativeBinomial { eta, gamma } => {
                let at = |&(order, divergence): &(f64, f64)| {
                    (1.0 + eta) * ((1.0 - 1.0 / order) * divergence - gamma.ln() / order)
                };
                // λ̂ = 1 needs no divergence at all.
                curve.iter().map(at).fold((1.0 + eta) * -gamma.ln(), f64::min)
            }
            NumberOfRuns::Poisson { .. } => 0.0,
        };
        Self { runs, curve, overhead }
    }

    /// The divergence at an order where one run has the divergence `of_run`.
    pub fn divergence(&self, order: f64, of_run: f64) -> f64 {
        match self.runs {
            NumberOfRuns::NegativeBinomial { .. } => {
                of_run + self.overhead + self.runs.mean().ln() / (order - 1.0)
            }
            NumberOfRuns::Poisson { mean } => {
                let delta = self.delta((1.0 / (order - 1.0)).ln_1p());
                let best = mean.ln() + (order - 1.0) * (of_run + mean * delta);
                // ln(e^{−μ} + e^best)
                let (most, least) = (best.max(-mean), best.min(-mean));
                ((most + (least - most).exp().ln_1p()) / (order - 1.0)).max(0.0)
            }
        }
    }

    /// δ of one run at this ε.
    fn delta(&self, epsilon: f64) -> f64 {
        let at = |&(order, divergence): &(f64, f64)| rdp::delta_at(divergence, order, epsilon);
        self.curve.iter().map(at).filter(|delta| !delta.is_nan()).fold(1.0, f64::min)
    }
}

/// One event that covers a selection among candidates, each a whole run: steps of a subsampled
/// Gaussian whose divergence is at least that of every candidate, at every order used.
pub fn selection(
    runs: NumberOfRuns,
    candidates: &[Composition],
    delta: f64,
) -> Result<(Event, f64)> {
    runs.validate()?;
    let adjacency = candidates.first().map_or(Adjacency::AddRemove, |first| first.adjacency);
    let orders = rdp::default_orders();
    let mut shapes: Vec<(f64, u64)> = Vec::new();
    for candidate in candidates {
        candidate.validate()?;
        if candidate.adjacency != adjacency {
            return Err(Error::Unsupported { accountant: "rdp", what: "two adjacencies" });
        }
        if samples_examples(candidate) {
            return Err(Error::SampledExamples { what: "a private selection" });
        }
        for part in candidate.parts() {
            if let Event::PoissonGaussian { sampling_rate, .. } = part.event {
                let steps = candidate.parts().iter().map(|part| part.count).sum();
                if !shapes.contains(&(sampling_rate, steps)) {
                    shapes.push((sampling_rate, steps));
                }
            }
        }
    }
    // The largest divergence of any candidate.
    let divergence = |order: f64| {
        let of = |composition: &Composition| rdp::total(composition, order);
        candidates.iter().map(of).fold(0.0, f64::max)
    };
    let most: Vec<f64> = orders.par_iter().map(|&order| divergence(order)).collect();
    let mut best: Option<(Event, f64)> = None;
    for (sampling_rate, steps) in shapes {
        let event =
            |noise_multiplier: f64| Event::PoissonGaussian { noise_multiplier, sampling_rate };
        let covers = |noise: f64| {
            let covered = |(&order, &most): (&f64, &f64)| {
                steps as f64 * rdp::divergence(&event(noise), adjacency, order) >= most
            };
            orders.par_iter().zip(&most).all(covered)
        };
        let Some(noise_multiplier) = largest(candidates, covers) else { continue };
        let selection_event = Event::Selection { runs, noise_multiplier, sampling_rate, steps };
        let once = Composition::new(adjacency).with(selection_event, 1);
        let upper = epsilon(&once, delta, Accountant::Rdp)?.epsilon.upper;
        if best.as_ref().is_none_or(|(_, least)| upper < *least) {
            best = Some((selection_event, upper));
        }
    }
    best.ok_or(Error::Unsupported {
        accountant: "rdp",
        what: "a selection among runs that are not steps of a subsampled Gaussian",
    })
}

/// The largest noise multiplier that `covers`, by bisection below the largest of the candidates.
fn largest(candidates: &[Composition], covers: impl Fn(f64) -> bool) -> Option<f64> {
    let noise =
        candidates.iter().flat_map(Composition::parts).filter_map(|part| match part.event {
            Event::PoissonGaussian { noise_multiplier, .. } => Some(noise_multiplier),
            _ => None,
        });
    let mut high = noise.fold(0.0, f64::max);
    if covers(high) {
        return Some(high);
    }
    let mut low = *crate::limits::NOISE_MULTIPLIER.start();
    if !covers(low) {
        return None;
    }
    for _ in 0..30 {
        let middle = 0.5 * (low + high);
        if covers(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published result for runs with pure ε-DP: (2 + η) ε, that is 3ε for the geometric
    /// distribution and 2ε for the logarithmic one.
    #[test]
    fn pure_runs_cost_what_was_published() {
        for eta in [-0.5, 0.0, 0.5, 1.0, 2.0] {
            let runs = NumberOfRuns::NegativeBinomial { eta, gamma: 0.1 };
            let orders: Vec<f64> = (1..60).map(|k| 1.0 + 2_f64.powi(k)).collect();
            let best = BestOf::new(runs, &orders, |_| 0.3);
            let divergence = best.divergence(1e15, 0.3);
            assert!((divergence - (2.0 + eta) * 0.3).abs() < 1e-9, "η = {eta}: {divergence}");
        }
    }

    #[test]
    fn probabilities_add_up_and_have_the_stated_mean() {
        for runs in [
            NumberOfRuns::NegativeBinomial { eta: 1.0, gamma: 0.1 },
            NumberOfRuns::NegativeBinomial { eta: 0.0, gamma: 0.02 },
            NumberOfRuns::NegativeBinomial { eta: -0.5, gamma: 0.01 },
            NumberOfRuns::NegativeBinomial { eta: 3.0, gamma: 0.3 },
            NumberOfRuns::Poisson { mean: 10.0 },
        ] {
            let all: Vec<f64> = runs.probabilities().take(20_000).collect();
            let mean: f64 = all.iter().enumerate().map(|(k, p)| k as f64 * p).sum();
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{runs:?}");
            assert!((mean / runs.mean() - 1.0).abs() < 1e-9, "{runs:?}: {mean}");
            // The quantile function, on a fine grid of uniform numbers.
            let draws = 200_000;
            let mut counts = [0_u32; 30];
            for i in 0..draws {
                let k = runs.draw((f64::from(i) + 0.5) / f64::from(draws)) as usize;
                if k < counts.len() {
                    counts[k] += 1;
                }
            }
            for (k, (&count, p)) in counts.iter().zip(&all).enumerate() {
                let share = f64::from(count) / f64::from(draws);
                assert!((share - p).abs() < 1e-5, "{runs:?}, {k}: {share}, not {p}");
            }
        }
    }

    fn random(state: &mut u64) -> f64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn renyi(p: &[f64], q: &[f64], order: f64) -> f64 {
        let terms = p.iter().zip(q).filter(|(p, _)| **p > 0.0);
        let sum: f64 = terms.map(|(p, q)| p.powf(order) * q.powf(1.0 - order)).sum();
        sum.ln() / (order - 1.0)
    }

    /// The distribution of the best of K draws from `q`, whose outcomes are ordered by score; the
    /// first outcome of the result is "nothing".
    fn best_of(runs: NumberOfRuns, q: &[f64]) -> Vec<f64> {
        let all: Vec<f64> = runs.probabilities().take(3_000).collect();
        let f = |x: f64| {
            let mut power = 1.0;
            let mut sum = 0.0;
            for p in &all {
                sum += p * power;
                power *= x;
            }
            sum
        };
        let (mut below, mut distribution) = (0.0, vec![f(0.0)]);
        for p in q {
            distribution.push((f((below + p).min(1.0)) - f(below)).max(0.0));
            below += p;
        }
        distribution
    }

    /// Brute force: for random pairs of distributions the best of K runs is never further apart
    /// than stated, in either direction, at any order.
    #[test]
    fn no_pair_of_distributions_is_worse_than_stated() {
        let orders: Vec<f64> = (1..400).map(|k| 1.0 + 0.1 * f64::from(k)).collect();
        let mut state = 7;
        let mut tightest = f64::INFINITY;
        for trial in 0..60 {
            let outcomes = 2 + trial % 6;
            let far = [0.1, 0.5, 2.0][trial % 3];
            let mut distribution = |from: Option<&Vec<f64>>| -> Vec<f64> {
                let weight = |i: usize, state: &mut u64| match from {
                    None => 0.02 + random(state),
                    Some(from) => from[i] * (far * (random(state) - 0.5)).exp(),
                };
                let weights: Vec<f64> = (0..outcomes).map(|i| weight(i, &mut state)).collect();
                let sum: f64 = weights.iter().sum();
                weights.iter().map(|w| w / sum).collect()
            };
            let p = distribution(None);
            let q = distribution(Some(&p));
            for runs in [
                NumberOfRuns::NegativeBinomial { eta: 1.0, gamma: 0.1 },
                NumberOfRuns::NegativeBinomial { eta: 0.0, gamma: 0.05 },
                NumberOfRuns::NegativeBinomial { eta: -0.7, gamma: 0.05 },
                NumberOfRuns::NegativeBinomial { eta: 2.5, gamma: 0.3 },
                NumberOfRuns::Poisson { mean: 8.0 },
                NumberOfRuns::Poisson { mean: 0.7 },
            ] {
                let of_run = |order: f64| renyi(&p, &q, order).max(renyi(&q, &p, order)).max(0.0);
                let stated = BestOf::new(runs, &orders, of_run);
                let (a, b) = (best_of(runs, &p), best_of(runs, &q));
                for order in [1.1, 1.5, 2.0, 4.0, 10.0, 30.0] {
                    let divergence = renyi(&a, &b, order).max(renyi(&b, &a, order));
                    let bound = stated.divergence(order, of_run(order));
                    assert!(
                        divergence <= bound + 1e-9,
                        "{runs:?} at {order}: {divergence} above {bound}"
                    );
                    tightest = tightest.min(bound - divergence);
                }
            }
        }
        // A bound that is never nearly reached would indicate a wrong formula on the safe side.
        assert!(tightest < 0.2, "{tightest}");
    }
}
