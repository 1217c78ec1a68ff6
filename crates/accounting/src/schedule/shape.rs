//! Schedules of a given shape: the first epoch has `ratio` times the noise multiplier of the last.

use super::{Passes, Schedule};
use crate::calibrate::least_noise;
use crate::{Accountant, Error, Result};
use serde::{Deserialize, Serialize};

/// How the noise multiplier falls from epoch to epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Constant.
    Uniform,
    /// By equal differences between epochs.
    Linear,
    /// By equal factors between epochs.
    Exponential,
    /// Along half a cosine: slowly, then fast, then slowly.
    Cosine,
    /// In one step, after half of the epochs.
    Step,
}

impl Shape {
    /// The noise multiplier of each epoch relative to that of the last.
    pub fn factors(&self, epochs: u32, ratio: f64) -> Vec<f64> {
        let last = f64::from(epochs.max(2) - 1);
        (0..epochs)
            .map(|e| {
                // 1 in the first epoch, 0 in the last.
                let left = 1.0 - f64::from(e) / last;
                match self {
                    Shape::Uniform => 1.0,
                    _ if epochs == 1 => 1.0,
                    Shape::Linear => 1.0 + (ratio - 1.0) * left,
                    Shape::Exponential => ratio.powf(left),
                    Shape::Cosine => {
                        1.0 + (ratio - 1.0) * 0.5 * (1.0 - (std::f64::consts::PI * left).cos())
                    }
                    Shape::Step if e < epochs / 2 => ratio,
                    Shape::Step => 1.0,
                }
            })
            .collect()
    }
}

/// Calibrates a schedule of this shape to (ε, δ).
pub fn shaped(
    shape: Shape,
    passes: &Passes,
    ratio: f64,
    epsilon: f64,
    delta: f64,
) -> Result<Schedule> {
    if !(1e-2..=1e2).contains(&ratio) {
        return Err(Error::invalid(
            "ratio of the first to the last noise",
            ratio,
            "between 0.01 and 100",
        ));
    }
    let factors = shape.factors(passes.epochs, ratio);
    let at = |noise: f64| -> Vec<f64> { factors.iter().map(|f| f * noise).collect() };
    let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
    let most = factors.iter().copied().fold(0.0, f64::max);
    // Every epoch must stay within the certified range.
    let (low, high) = passes.noise_range();
    let range = (low / least * (1.0 + 1e-12), high / most * (1.0 - 1e-12));
    if range.0 >= range.1 {
        return Err(Error::invalid("ratio of the first to the last noise", ratio, "closer to 1"));
    }
    let calibrated =
        least_noise(epsilon, delta, Accountant::Auto, range, |n| passes.compose(&at(n)))?;
    Ok(Schedule { noise_multipliers: at(calibrated.noise), answer: calibrated.answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fall_from_the_ratio_to_one() {
        for shape in [Shape::Linear, Shape::Exponential, Shape::Cosine, Shape::Step] {
            for epochs in [2, 3, 10] {
                let factors = shape.factors(epochs, 3.0);
                assert!((factors[0] - 3.0).abs() < 1e-12, "{shape:?} {factors:?}");
                assert!(
                    (factors[epochs as usize - 1] - 1.0).abs() < 1e-12,
                    "{shape:?} {factors:?}"
                );
                assert!(factors.windows(2).all(|f| f[0] >= f[1]), "{shape:?} {factors:?}");
            }
        }
    }

    #[test]
    fn every_shape_meets_the_target() {
        let passes = Passes::over(5_000, 100, 4).unwrap();
        for shape in [Shape::Uniform, Shape::Linear, Shape::Exponential, Shape::Cosine, Shape::Step]
        {
            let calibrated = shaped(shape, &passes, 2.0, 3.0, 1e-5).unwrap();
            let upper = calibrated.answer.epsilon.upper;
            assert!(upper <= 3.0 && upper > 2.99, "{shape:?}: {upper}");
        }
    }
}
