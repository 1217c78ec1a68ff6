//! Certified intervals.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// `lower ≤ true value ≤ upper`, with an estimate in between.
///
/// For an approximation without a proof (the central limit of Gaussian DP) all three equal the
/// estimate, and [`crate::Answer::certified`] is false. For Rényi accounting only `upper` is
/// proved, and `lower` is 0.
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
    /// removes, so the true value lies about a third of the way up. If the bounds cross by no more
    /// than a rounding error, both become the larger one; if they cross by more, or one is a NaN,
    /// the result is an error.
    pub(crate) fn ordered(lower: f64, upper: f64) -> Result<Self> {
        let in_order = lower <= upper * (1.0 + 1e-9) + 1e-12;
        if !in_order {
            return Err(Error::Crossed { lower, upper });
        }
        let upper = upper.max(lower);
        Ok(Self { lower, estimate: lower + (upper - lower) / 3.0, upper })
    }

    /// The intersection of two pairs of bounds on the same quantity.
    pub(crate) fn intersect(self, other: Self) -> Result<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The check runs in every build, not only with debug assertions.
    #[test]
    fn crossed_bounds_are_an_error() {
        assert!(Bounds::ordered(1.0, 2.0).is_ok());
        let touching = Bounds::ordered(1.0 + 1e-12, 1.0).unwrap();
        assert!(touching.lower <= touching.upper);
        for (lower, upper) in [(1.1, 1.0), (f64::NAN, 1.0), (0.0, f64::NAN)] {
            let refused = Bounds::ordered(lower, upper);
            assert!(matches!(refused, Err(Error::Crossed { .. })), "{refused:?}");
        }
        let (low, high) = (Bounds::exact(1.0), Bounds::exact(2.0));
        assert!(low.intersect(high).is_err());
    }
}
