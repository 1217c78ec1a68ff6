//! Banded matrices that correlate the noise across steps (banded matrix factorization, BandMF).
//!
//! With x_t the clipped sum of step t, DP-SGD releases x + z. Here x + C⁻¹z is released, where C is
//! a lower triangular Toeplitz matrix with the coefficients c_0 … c_{b−1} in every column, of ℓ2
//! norm 1. A sum over many steps, such as the weights, then has far less noise: if C⁻¹z of one step
//! is large, the next steps partly cancel it.

/// The coefficients of C.
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    coefficients: Vec<f64>,
}

impl Bands {
    /// The square root of the prefix-sum matrix, truncated after `bands` coefficients: c_k is
    /// proportional to C(2k, k)/4^k. Without truncation, C⁻¹ and the sums contribute equally to the
    /// error, which is the best Toeplitz factorization.
    pub fn square_root(bands: usize) -> Self {
        let ratio = |k: usize| (2 * k - 1) as f64 / (2 * k) as f64;
        let mut coefficients = vec![1.0];
        for k in 1..bands.max(1) {
            coefficients.push(coefficients[k - 1] * ratio(k));
        }
        let norm = coefficients.iter().map(|c| c * c).sum::<f64>().sqrt();
        coefficients.iter_mut().for_each(|c| *c /= norm);
        Self { coefficients }
    }

    /// The number of bands, b.
    pub fn count(&self) -> usize {
        self.coefficients.len()
    }

    /// c_0 … c_{b−1}.
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// The first coefficients of C⁻¹, which is also lower triangular and Toeplitz.
    pub fn inverse(&self, count: usize) -> Vec<f64> {
        let c = &self.coefficients;
        let mut inverse: Vec<f64> = Vec::with_capacity(count);
        for t in 0..count {
            let own = if t == 0 { 1.0 } else { 0.0 };
            let past: f64 = (1..c.len().min(t + 1)).map(|k| c[k] * inverse[t - k]).sum();
            inverse.push((own - past) / c[0]);
        }
        inverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_is_one_and_columns_have_norm_one() {
        for bands in [1, 2, 5, 16] {
            let c = Bands::square_root(bands);
            let norm: f64 = c.coefficients().iter().map(|c| c * c).sum();
            assert!((norm - 1.0).abs() < 1e-12);
            let inverse = c.inverse(60);
            for t in 0..60 {
                let product: f64 =
                    (0..bands.min(t + 1)).map(|k| c.coefficients()[k] * inverse[t - k]).sum();
                let identity = if t == 0 { 1.0 } else { 0.0 };
                assert!((product - identity).abs() < 1e-12, "{bands} bands, {t}");
            }
        }
    }

    /// A unit that participates in steps t, t + b, … moves C x by columns that share no row, each
    /// of norm at most 1. The block accounting relies on this.
    #[test]
    fn participations_that_are_b_steps_apart_do_not_meet() {
        let (steps, bands) = (23, 4);
        let c = Bands::square_root(bands);
        for group in 0..bands {
            let mut rows = vec![0; steps];
            for t in (group..steps).step_by(bands) {
                let column: Vec<(usize, f64)> =
                    c.coefficients().iter().enumerate().map(|(k, &c)| (t + k, c)).collect();
                let inside = column.iter().filter(|(row, _)| *row < steps);
                assert!(inside.clone().map(|(_, c)| c * c).sum::<f64>() <= 1.0 + 1e-12);
                inside.for_each(|(row, _)| rows[*row] += 1);
            }
            assert!(rows.iter().all(|&times| times <= 1));
        }
    }
}
