//! Certified intervals.

use serde::{Deserialize, Serialize};

/// `lower ≤ true value ≤ upper`, with an estimate in between.
///
/// For an approximation that proves nothing (the central limit of Gaussian DP) all three are the
/// estimate, and [`crate::Answer::certified`] is false. For Rényi accounting only `upper` is
/// proved; `lower` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Lower bound of the true value.
    pub lower: f64,
    /// Best estimate of the true value.
    pub estimate: f64,
    /// Upper bound of the true value.
    pub upper: f64,
}

impl Bounds {
    /// Bounds that all equal `value`.
    pub fn exact(value: f64) -> Self {
        Self { lower: value, estimate: value, upper: value }
    }

    /// Bounds from two numerical computations. Splitting adds about twice the variance that merging
    /// removes, so the true value lies about a third of the way up. Bounds that crossed by a
    /// rounding error become the larger of the two.
    pub(crate) fn ordered(lower: f64, upper: f64) -> Self {
        debug_assert!(lower <= upper * (1.0 + 1e-9) + 1e-12, "bounds crossed: {lower} > {upper}");
        let upper = upper.max(lower);
        Self { lower, estimate: lower + (upper - lower) / 3.0, upper }
    }

    /// The intersection of two pairs of bounds on the same quantity.
    pub(crate) fn intersect(self, other: Self) -> Self {
        Self::ordered(self.lower.max(other.lower), self.upper.min(other.upper))
    }

    /// Width of the interval.
    pub fn gap(&self) -> f64 {
        self.upper - self.lower
    }

    /// Whether `value` lies in the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }

    /// Bounds on the maximum of two quantities.
    pub fn max(self, other: Self) -> Self {
        Self {
            lower: self.lower.max(other.lower),
            estimate: self.estimate.max(other.estimate),
            upper: self.upper.max(other.upper),
        }
    }
}
