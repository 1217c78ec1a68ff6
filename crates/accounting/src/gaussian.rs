//! The Gaussian mechanism without subsampling, in closed form.
//!
//! # What is proved
//!
//! Let a release be f(D) + N(0, s²I), where f has ℓ2 sensitivity Δ. With μ = Δ/s the pair N(μ, 1),
//! N(0, 1) dominates: the likelihood ratio depends only on the projection onto the direction of the
//! difference, and a smaller difference is a post-processing of a larger one. k releases with μ₁ …
//! μ_k shift the mean by (μ₁, …, μ_k), so they are equivalent to one release with μ² = Σ μᵢ². The
//! hockey-stick divergence of that pair is
//!
//! ```text
//! δ(ε) = P(N > t) − e^ε P(N > t + μ),     t = ε/μ − μ/2,
//! ```
//!
//! and since e^ε φ(t + μ) = φ(t), the second term is φ(t)·m(t + μ) with Mills' ratio m, which does
//! not overflow at large ε. The pair is its own mirror image, so both directions agree.

use crate::normal::{UNIT, density, mills, tail_relative_error, upper_tail};
use crate::{Bounds, Error, Result};

/// δ(ε) of the pair N(μ, 1), N(0, 1), with its rounding error enclosed.
pub fn delta(mu: f64, epsilon: f64) -> Bounds {
    if mu == 0.0 {
        return Bounds::exact(0.0);
    }
    let t = epsilon / mu - 0.5 * mu;
    let near = upper_tail(t);
    let far = density(t) * mills(t + mu);
    let estimate = (near - far).max(0.0);
    // φ(t) and m(t + μ) each have the relative error of a tail at their argument.
    let error = near * 2.0 * tail_relative_error(t)
        + far * 2.0 * (tail_relative_error(t.abs()) + tail_relative_error(t + mu));
    Bounds {
        lower: (estimate - error).max(0.0),
        estimate,
        upper: (estimate + error + f64::MIN_POSITIVE).min(1.0),
    }
}

/// ε(δ) of the pair N(μ, 1), N(0, 1), with its rounding error enclosed.
pub fn epsilon(mu: f64, delta_target: f64) -> Bounds {
    // μ itself carries a few rounding errors: widen it on both sides.
    let slack = 8.0 * UNIT;
    let lower = crossing(|e| delta(mu * (1.0 - slack), e).lower, mu, delta_target);
    let upper = crossing(|e| delta(mu * (1.0 + slack), e).upper, mu, delta_target);
    let estimate = crossing(|e| delta(mu, e).estimate, mu, delta_target);
    Bounds { lower: lower.0, estimate: estimate.1.clamp(lower.0, upper.1), upper: upper.1 }
}

/// Brackets the point where a decreasing function falls to `target`. Returns (a point above the
/// target, or 0; a point at or below the target).
fn crossing(curve: impl Fn(f64) -> f64, mu: f64, target: f64) -> (f64, f64) {
    if curve(0.0) <= target {
        return (0.0, 0.0);
    }
    // δ(ε) ≤ P(N > t): 40 standard deviations cover every supported δ.
    let (mut low, mut high) = (0.0, mu * mu + 80.0 * mu);
    while high - low > 4.0 * f64::EPSILON * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if curve(middle) > target { low = middle } else { high = middle }
    }
    (low, high)
}

/// The largest μ whose certified ε(δ) does not exceed `epsilon_target`.
pub fn largest_mu(epsilon_target: f64, delta_target: f64) -> Result<f64> {
    let meets = |mu: f64| delta(mu * (1.0 + 8.0 * UNIT), epsilon_target).upper <= delta_target;
    let (mut low, mut high) = (1e-12, 1e5);
    if !meets(low) || meets(high) {
        return Err(Error::Unreachable {
            low: 1.0 / high,
            high: 1.0 / low,
            advice: "choose an ε between 1e-3 and 1e3 and a δ between 1e-18 and 0.5",
        });
    }
    while high / low > 1.0 + 1e-15 {
        let middle = (low * high).sqrt();
        if middle <= low || middle >= high {
            break;
        }
        if meets(middle) { low = middle } else { high = middle }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_matches_high_precision_values() {
        // mpmath, 40 digits: ncdf(mu/2 - eps/mu) - exp(eps)*ncdf(-mu/2 - eps/mu)
        let reference = [
            (1.0, 1.0, 0.126_936_737_506_643_95),
            (0.1, 0.3, 4.435_197_882_025_083_6e-5),
            (8.8823119565, 76.0, 1.292_923_022_461_747_5e-5),
            (0.001, 0.005, 5.359_547_041_057_213e-11),
            (40.0, 1000.0, 2.536_296_514_956_550_9e-7),
        ];
        for (mu, eps, expected) in reference {
            let bounds = delta(mu, eps);
            assert!(bounds.contains(expected), "μ={mu} ε={eps}: {bounds:?}");
            assert!(bounds.gap() < 1e-9 * expected, "μ={mu} ε={eps}: {bounds:?}");
        }
    }

    #[test]
    fn largest_mu_inverts_epsilon() {
        for (eps, del) in [(1e-3, 1e-18), (1.0, 1e-5), (8.0, 1e-5), (1e3, 0.5)] {
            let mu = largest_mu(eps, del).unwrap();
            let bounds = epsilon(mu, del);
            assert!(
                bounds.upper <= eps * (1.0 + 1e-11) && bounds.lower > eps * (1.0 - 1e-8),
                "{eps} {del} {bounds:?}"
            );
        }
    }
}
