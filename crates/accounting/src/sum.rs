//! Compensated (Neumaier) summation, exact to a few roundings for any number of terms, and clamping
//! of rounding errors below zero.

/// Compensated sum: a running sum and its accumulated rounding error.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub fn add(&mut self, x: f64) {
        let next = self.sum + x;
        self.lost +=
            if self.sum.abs() >= x.abs() { (self.sum - next) + x } else { (x - next) + self.sum };
        self.sum = next;
    }

    pub fn total(self) -> f64 {
        self.sum + self.lost
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut sum = Sum::default();
        terms.into_iter().for_each(|x| sum.add(x));
        sum
    }
}

/// The compensated sum of a slice.
pub(crate) fn compensated_sum(terms: &[f64]) -> f64 {
    terms.iter().copied().collect::<Sum>().total()
}

/// Clamps negative rounding errors to 0. A NaN stays a NaN and is detected where results are built.
pub(crate) fn not_negative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_terms_are_not_lost_beside_a_large_one() {
        let terms = std::iter::once(1.0).chain((0..1_000_000).map(|_| 1e-17));
        let sum = terms.collect::<Sum>().total();
        assert_eq!(sum, 1.0 + 1e-11);
        assert_eq!(compensated_sum(&[1e300, 1.0, -1e300]), 1.0);
    }
}
