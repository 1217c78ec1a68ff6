//! Tails of the standard normal distribution, with bounds on their rounding errors.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Unit roundoff: the largest relative error of one rounding, half the distance from 1 to the next
/// number.
pub const UNIT: f64 = f64::EPSILON / 2.0;

/// P(N > z).
pub fn upper_tail(z: f64) -> f64 {
    0.5 * libm::erfc(z * FRAC_1_SQRT_2)
}

/// An upper bound of the relative rounding error of [`upper_tail`] at `z`.
///
/// `erfc` itself has an error below one unit in the last place. Its argument has two roundings (the
/// constant and the product), and the caller's `z` has its own. The slope d ln P(N > z) / d ln z is
/// at most z² + 1 for z > 0 and below 1 for z ≤ 0. The bound allows for five roundings of the
/// argument.
pub fn tail_relative_error(z: f64) -> f64 {
    let slope = if z > 0.0 { z * z + 1.0 } else { 1.0 };
    (4.0 + 5.0 * slope) * UNIT
}

/// Density of the standard normal distribution.
pub fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

/// Mills' ratio P(N > z) / density(z) for z ≥ 0, without underflow.
pub fn mills(z: f64) -> f64 {
    if z < 25.0 {
        return upper_tail(z) / density(z);
    }
    // Laplace's continued fraction 1/(z + 1/(z + 2/(z + 3/…))): at z ≥ 25 forty terms are exact to
    // rounding.
    let mut rest = z;
    for k in (1..=40).rev() {
        rest = z + f64::from(k) / rest;
    }
    1.0 / rest
}

/// The z with P(N > z) = p, for 0 < p ≤ 0.5, to about 1e-9. For planning only; no certified bound
/// depends on it.
pub fn upper_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 40.0_f64);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if upper_tail(middle) > p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_match_high_precision_values() {
        // mpmath, 30 digits: ncdf(-z)
        let reference = [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457_05),
            (5.0, 2.866_515_718_791_939e-7),
            (10.0, 7.619_853_024_160_526e-24),
            (-3.0, 0.998_650_101_968_369_9),
        ];
        for (z, tail) in reference {
            let error = (upper_tail(z) / tail - 1.0).abs();
            assert!(error <= tail_relative_error(z), "z = {z}: off by {error:e}");
        }
    }

    #[test]
    fn mills_is_continuous_where_the_method_changes() {
        let (below, above) = (mills(25.0 - 1e-9), mills(25.0));
        assert!((below / above - 1.0).abs() < 1e-9);
    }
}
