//! An interval that is known to hold the truth.

use serde::{Deserialize, Serialize};

/// `lower ≤ truth ≤ upper`, with a best guess between them.
///
/// For an approximation that proves nothing (the Gaussian-DP central limit) all three are the
/// estimate and the answer says so in [`crate::Answer::certified`]. For Rényi accounting only
/// `upper` is proved; `lower` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The truth is not below this.
    pub lower: f64,
    /// The best guess.
    pub estimate: f64,
    /// The truth is not above this.
    pub upper: f64,
}

impl Bounds {
    /// All three equal.
    pub fn exact(value: f64) -> Self {
        Self { lower: value, estimate: value, upper: value }
    }

    /// Bounds found by two numerical computations. Splitting adds about twice the variance that
    /// merging loses, so the truth lies about a third of the way up. Should the two ends have
    /// crossed by a rounding, the larger one counts.
    pub(crate) fn ordered(lower: f64, upper: f64) -> Self {
        debug_assert!(lower <= upper * (1.0 + 1e-9) + 1e-12, "bounds crossed: {lower} > {upper}");
        let upper = upper.max(lower);
        Self { lower, estimate: lower + (upper - lower) / 3.0, upper }
    }

    /// What two pairs of bounds on the same quantity say together.
    pub(crate) fn intersect(self, other: Self) -> Self {
        Self::ordered(self.lower.max(other.lower), self.upper.min(other.upper))
    }

    /// How much is not known.
    pub fn gap(&self) -> f64 {
        self.upper - self.lower
    }

    /// Whether `value` may be the truth.
    pub fn contains(&self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }

    /// The larger of two quantities, each known by its bounds.
    pub fn max(self, other: Self) -> Self {
        Self {
            lower: self.lower.max(other.lower),
            estimate: self.estimate.max(other.estimate),
            upper: self.upper.max(other.upper),
        }
    }
}
