//! Per-attribute MVG: token budgets, noise of the sanitizer's columns, and the sufficient condition
//! of the matrix-variate Gaussian mechanism.
//!
//! As published, column j of a row z ∈ [0, C]^d gets noise of std C σ_j, where σ_j² = Σ_t C_jt²
//! σ_t² maps the noise multipliers σ_t of the tokens' own budgets through the tokens' contributions
//! C_jt. This is a statement about each column and token in isolation. Replacing an example moves
//! all columns at once: its μ per release is (Σ_j σ_j⁻²)^½, and paper mode prints the corresponding
//! ε next to the budgets.
//!
//! In proved mode, only the *ratios* σ_1 : … : σ_d are kept, as the direction of the noise; its
//! scale is calibrated.

use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::{Accountant, Result};

/// ε of the positions in a sequence: an inverted bell (equations 2 to 5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    /// Position of the smallest budget: −1 is the beginning of the sequence, 0 its middle, 1 its
    /// end.
    pub shift: f64,
    /// Width of the bell, in the same units.
    pub spread: f64,
    /// The smallest ε.
    pub least: f64,
    /// The largest ε.
    pub most: f64,
}

impl Budgets {
    /// ε of each position.
    pub fn of(&self, tokens: usize) -> Vec<f64> {
        let inverted: Vec<f64> = (0..tokens)
            .map(|i| {
                let place =
                    if tokens > 1 { 2.0 * i as f64 / (tokens - 1) as f64 - 1.0 } else { 0.0 };
                1.0 - (-(place - self.shift).powi(2) / (2.0 * self.spread.powi(2))).exp()
            })
            .collect();
        let low = inverted.iter().copied().fold(f64::INFINITY, f64::min);
        let high = inverted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let scaled = |x: &f64| if high > low { (x - low) / (high - low) } else { 0.0 };
        inverted.iter().map(|x| self.least + (self.most - self.least) * scaled(x)).collect()
    }

    /// Noise multiplier of each position by the RDP accountant, for its ε and a given number of
    /// sampled steps.
    pub fn noise_multipliers(
        &self,
        tokens: usize,
        delta: f64,
        sampling_rate: f64,
        steps: u64,
    ) -> Result<Vec<f64>> {
        let mut known: Vec<(f64, f64)> = Vec::new();
        self.of(tokens)
            .into_iter()
            .map(|epsilon| {
                // Positions to the left and right of the minimum have the same budget.
                if let Some((_, noise)) = known.iter().find(|(e, _)| (e - epsilon).abs() < 1e-9) {
                    return Ok(*noise);
                }
                let noise =
                    noise_multiplier(epsilon, delta, sampling_rate, steps, Accountant::Rdp)?.noise;
                known.push((epsilon, noise));
                Ok(noise)
            })
            .collect()
    }
}

/// Noise of the columns, σ_j = (Σ_t C_tj² σ_t²)^½ (equation 7), with contributions
/// `[tokens, columns]`.
pub fn mapped(contributions: &nalgebra::DMatrix<f64>, noise: &[f64]) -> Vec<f64> {
    let of_column = |column: nalgebra::DVectorView<f64>| {
        column.iter().zip(noise).map(|(share, noise)| (share * noise).powi(2)).sum::<f64>().sqrt()
    };
    contributions.column_iter().map(of_column).collect()
}

/// The direction of the noise: the same ratios, scaled to a mean square of 1.
pub fn direction(noise: &[f64]) -> Vec<f32> {
    let mean_square = noise.iter().map(|s| s * s).sum::<f64>() / noise.len().max(1) as f64;
    noise.iter().map(|s| (s / mean_square.sqrt().max(1e-300)) as f32).collect()
}

/// μ of one release, the shift caused by an example in standard deviations: (Σ_j σ_j⁻²)^½.
pub fn example_shift(noise: &[f64]) -> f64 {
    noise.iter().map(|s| s.powi(-2)).sum::<f64>().sqrt()
}

/// The two forms of the sufficient condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// With the sensitivity s₂, as in the theorem that the paper cites. Scaling rows and noise by
    /// the same number does not change it.
    Theorem,
    /// With s₂² in its place, as the paper prints α and β.
    Printed,
}

/// The smallest ε that satisfies the sufficient condition of the matrix-variate Gaussian mechanism
/// for one row of d columns with noise covariance Ψ = diag(σ²) and Σ = 1, solved for ε:
///
/// ```text
/// ‖Σ⁻¹‖ ‖Ψ⁻¹‖ ≤ (−β + √(β² + 8αε))²/(4α²)
/// ```
///
/// The exact ε of [`example_shift`] is never larger. That also holds for the printed form if
/// s₂ = C √d ≥ 1.
pub fn sufficient_epsilon(noise: &[f64], norm: f64, delta: f64, form: Condition) -> f64 {
    let columns = noise.len() as f64;
    // For rows in [0, C]^d, the largest norm and the largest distance between two rows.
    let gamma = norm * columns.sqrt();
    let sensitivity = match form {
        Condition::Theorem => gamma,
        Condition::Printed => gamma * gamma,
    };
    let zeta = 2.0 * (-columns * delta.ln()).sqrt() - 2.0 * delta.ln() + columns;
    // For one row, the harmonic numbers H_1 and H_{1,1/2} are 1.
    let alpha = 2.0 * gamma * gamma + 2.0 * gamma * sensitivity;
    let beta = 2.0 * columns.powf(0.25) * sensitivity * zeta;
    let precision = noise.iter().map(|s| (norm * s).powi(-4)).sum::<f64>().sqrt();
    0.5 * (alpha * precision + beta * precision.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;

    #[test]
    fn budgets_are_an_inverted_bell() {
        let middle = Budgets { shift: 0.0, spread: 0.3, least: 1.0, most: 10.0 };
        let budgets = middle.of(65);
        assert_eq!((budgets[32], budgets[0], budgets[64]), (1.0, 10.0, 10.0));
        assert!(budgets[..33].windows(2).all(|w| w[0] >= w[1]));
        // By hand: p = 2·40/64 − 1 = 0.25, G = exp(−0.25²/0.18), and the ends have G =
        // exp(−1/0.18).
        let bell = |p: f64| (-p * p / 0.18).exp();
        let wanted = 1.0 + 9.0 * (1.0 - bell(0.25)) / (1.0 - bell(1.0));
        assert!((budgets[40] - wanted).abs() < 1e-12);
        let least_at = |shift: f64| {
            let budgets = Budgets { shift, ..middle }.of(65);
            budgets.iter().position(|&e| e == 1.0).unwrap()
        };
        assert_eq!((least_at(-0.5), least_at(0.5)), (16, 48));
    }

    #[test]
    fn the_mapping_is_the_std_of_mixed_noise() {
        // Compared with a million draws and by hand: √(0.25·1 + 0.25·4) and √(0.04·1 + 0.64·4).
        let contributions = DMatrix::from_row_slice(2, 2, &[0.5, 0.2, 0.5, 0.8]);
        let stds = mapped(&contributions, &[1.0, 2.0]);
        assert!(
            (stds[0] - 1.25_f64.sqrt()).abs() < 1e-12 && (stds[1] - 2.6_f64.sqrt()).abs() < 1e-12
        );
        let noise = crate::noise::Noise::new(&crate::noise::Secret::from_seed(1));
        let (mut a, mut b) = (vec![0.0_f32; 1 << 20], vec![0.0_f32; 1 << 20]);
        noise.add(0, 0, 1.0, 1.0, &mut a);
        noise.add(1, 0, 2.0, 1.0, &mut b);
        for j in 0..2 {
            let share = |t: usize| contributions[(t, j)] as f32;
            let squares: f64 =
                a.iter().zip(&b).map(|(a, b)| f64::from(share(0) * a + share(1) * b).powi(2)).sum();
            let drawn = (squares / a.len() as f64).sqrt();
            assert!((drawn / stds[j] - 1.0).abs() < 0.005, "{drawn} {}", stds[j]);
        }
    }

    #[test]
    fn the_exact_loss_is_never_above_the_sufficient_condition() {
        for columns in [1, 7, 200, 700] {
            for level in [0.3, 1.0, 8.0] {
                let noise: Vec<f64> =
                    (0..columns).map(|j| level * (1.0 + 0.5 * (j % 3) as f64)).collect();
                let exact =
                    undertone_accounting::gaussian::epsilon(example_shift(&noise), 1e-5).upper;
                for form in [Condition::Theorem, Condition::Printed] {
                    let condition = sufficient_epsilon(&noise, 1.0, 1e-5, form);
                    assert!(
                        exact <= condition,
                        "{columns} columns at {level}: {exact} against {condition}"
                    );
                }
            }
        }
    }

    /// α = (H_r + H_{r,1/2}) γ² + 2 H_r γ s₂² and β = 2 (nd)^¼ H_r s₂² ζ, as the paper prints them,
    /// by hand for one row of 4 columns in [0, 1]⁴ with noise of std 2: γ = s₂ = 2, α = 2·4 +
    /// 2·2·4 = 24, ζ = 2√(−4 ln δ) − 2 ln δ + 4, β = 2·√2·4·ζ and ‖Ψ⁻¹‖ = √(4/16) = ½. With s₂ in
    /// place of s₂², α = 16 and β halves.
    #[test]
    fn the_condition_is_printed_with_the_square_of_the_sensitivity() {
        let delta = 1e-5_f64;
        let zeta = 2.0 * (-4.0 * delta.ln()).sqrt() - 2.0 * delta.ln() + 4.0;
        let wanted = |alpha: f64, sensitivity: f64| {
            let beta = 2.0 * 2.0_f64.sqrt() * sensitivity * zeta;
            0.5 * (alpha * 0.5 + beta * 0.5_f64.sqrt())
        };
        let sufficient = |form| sufficient_epsilon(&[2.0; 4], 1.0, delta, form);
        assert!((sufficient(Condition::Printed) - wanted(24.0, 4.0)).abs() < 1e-9);
        assert!((sufficient(Condition::Theorem) - wanted(16.0, 2.0)).abs() < 1e-9);
        // Rows and noise of half the size are the same mechanism, of which only the theorem's form
        // says the same.
        let half = |form| sufficient_epsilon(&[2.0; 4], 0.5, delta, form);
        assert!((half(Condition::Theorem) - sufficient(Condition::Theorem)).abs() < 1e-9);
        assert!(half(Condition::Printed) < sufficient(Condition::Printed));
    }
}
