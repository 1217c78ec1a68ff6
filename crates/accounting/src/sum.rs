//! Sums that are exact to a few roundings, however many terms they have (Neumaier), and what
//! rounding makes of zero.

/// A running sum and what rounding has taken from it.
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

/// The sum of some numbers.
pub(crate) fn compensated_sum(terms: &[f64]) -> f64 {
    terms.iter().copied().collect::<Sum>().total()
}

/// Zero for what rounding has made negative. A NaN stays one, and is found where answers are made.
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
