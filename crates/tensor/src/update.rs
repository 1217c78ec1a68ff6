//! Release of a parameter's noisy gradient and the optimizer update, in one pass over memory.
//!
//! ```text
//! g = (sum + noise) / divisor        the released gradient; without noise in non-private training
//! (w, m, v) = rule(w, g, m, v)       SGD with momentum, AdamW, or AdamW corrected for the noise
//! ```
//!
//! The noise of a coordinate is a function of (key, step, coordinate) alone and is bit-identical on
//! every backend.

use super::Matrix;
use super::backend::{Backend, on_backend};
use super::error::{Result, fits};
use crate::noise::Noise;

/// A parameter's gradient sum, value and moments, all of the same shape. After the update, the sum
/// holds the released gradient.
#[derive(Clone, Debug)]
pub struct UpdateState<M = Matrix> {
    pub sum: M,
    pub value: M,
    pub first: M,
    pub second: M,
}

/// Standard deviation of the noise in each coordinate of a sum.
#[derive(Clone, Copy)]
pub enum Stds<'a> {
    /// The same in all coordinates.
    Same(f32),
    /// The product of the row's and the column's standard deviations.
    Product { rows: &'a [f32], columns: &'a [f32] },
    /// A function that writes the standard deviations of the coordinates starting at an index.
    Each(&'a (dyn Fn(usize, &mut [f32]) + Sync)),
}

impl Stds<'_> {
    /// Writes the standard deviations of the coordinates starting at `start`.
    pub(super) fn write(&self, start: usize, out: &mut [f32]) {
        match self {
            Self::Same(std) => out.fill(*std),
            Self::Product { rows, columns } => write_products(rows, columns, start, out),
            Self::Each(write) => write(start, out),
        }
    }
}

/// Writes rows_i · columns_j for the coordinates starting at index `start`.
#[inline(always)]
pub fn write_products(rows: &[f32], columns: &[f32], start: usize, out: &mut [f32]) {
    let (mut at, mut out) = (start, out);
    while !out.is_empty() {
        let (row, column) = (rows[at / columns.len()], at % columns.len());
        let (now, later) = out.split_at_mut((columns.len() - column).min(out.len()));
        for (out, w) in now.iter_mut().zip(&columns[column..]) {
            *out = row * w;
        }
        at += now.len();
        out = later;
    }
}

/// The noise of a release.
#[derive(Clone, Copy)]
pub struct NoiseOfRelease<'a> {
    pub noise: &'a Noise,
    /// Index of the step, on which the noise depends.
    pub step: u64,
    /// Index of the parameter's first coordinate among all coordinates, a multiple of
    /// [`NOISE_BLOCK`](crate::noise::NOISE_BLOCK).
    pub first: u64,
    pub stds: Stds<'a>,
}

/// The optimizer's update rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// m ← μ m + g, w ← w − η m.
    Sgd { momentum: f32 },
    /// Adam with decoupled weight decay.
    Adam {
        betas: (f32, f32),
        epsilon: f32,
        /// Bias corrections 1 − β^t of both moments.
        corrections: (f32, f32),
        /// Whether the noise variance is subtracted from the second moment.
        corrected: bool,
    },
}

/// Release and update of one parameter.
#[derive(Clone, Copy)]
pub struct ParameterUpdate<'a> {
    /// `None` in non-private training.
    pub noise: Option<NoiseOfRelease<'a>>,
    /// Divisor of the noisy sum.
    pub divisor: f32,
    /// Standard deviation of the noise in the released gradient, if it is the same for all
    /// coordinates.
    pub gradient_std: Option<f32>,
    pub learning_rate: f32,
    /// Decoupled weight decay.
    pub decay: f32,
    pub rule: Rule,
}

/// The smallest denominator of noise-corrected Adam, as a fraction of the noise's standard
/// deviation: below it, the second moment is only noise.
pub(super) const CORRECTION_FLOOR: f32 = 0.25;

/// Adds the noise to each parameter's sum and updates the parameter. All updates belong to one
/// step; on a GPU they share one launch.
pub fn release_and_update(
    states: Vec<UpdateState>,
    updates: &[ParameterUpdate],
) -> Result<Vec<UpdateState>> {
    const NAME: &str = "release and update";
    for UpdateState { sum, value, first, second } in &states {
        for other in [value, first, second] {
            let rule = "sum, value and moments must have the same shape";
            fits(sum.shape() == other.shape(), NAME, sum.shape(), other.shape(), rule)?;
        }
    }
    let Some(state) = states.first() else { return Ok(states) };
    // Not one of the states' matrices, which must stay unshared to be updated in place.
    let beside = Matrix::zeros(0, 0).to_device(&state.value.device())?;
    on_backend!(NAME, &beside, |B, at| {
        let take = |UpdateState { sum, value, first, second }| {
            let [sum, value] = [at.take(sum)?, at.take(value)?];
            Ok(UpdateState { sum, value, first: at.take(first)?, second: at.take(second)? })
        };
        let states = states.into_iter().map(take).collect::<Result<Vec<_>>>()?;
        let updated = B::release_and_update(states, updates)?;
        let wrap = |UpdateState { sum, value, first, second }| {
            let [sum, value, first, second] = [sum, value, first, second].map(B::wrap);
            UpdateState { sum, value, first, second }
        };
        Ok(updated.into_iter().map(wrap).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Secret;
    use crate::{CpuLevel, Device};

    /// Deterministic pseudo-random numbers of all magnitudes.
    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0 - 0.5
        };
        (0..count).map(|i| next() * 10_f32.powi(i as i32 % 7 - 3)).collect()
    }

    fn updated(device: &Device, count: usize, update: &ParameterUpdate) -> [Vec<u32>; 4] {
        let matrix =
            |seed| Matrix::from_vec(1, count, numbers(count, seed)).to_device(device).unwrap();
        let second = numbers(count, 4).iter().map(|x| x * x).collect();
        let second = Matrix::from_vec(1, count, second).to_device(device).unwrap();
        let state = UpdateState { sum: matrix(1), value: matrix(2), first: matrix(3), second };
        let mut updated = release_and_update(vec![state], &[*update]).unwrap();
        let UpdateState { sum, value, first, second } = updated.remove(0);
        [sum, value, first, second]
            .map(|matrix| matrix.to_vec().unwrap().iter().map(|x| x.to_bits()).collect())
    }

    /// Noise, weights and moments are bit-identical on every device and at every instruction-set
    /// level of the CPU; a million coordinates include about a dozen in the tails of the noise.
    #[test]
    fn every_device_computes_the_same_bits() {
        let mut devices = Vec::new();
        if std::env::var("UNDERTONE_TEST_DEVICE").as_deref() == Ok("cuda") {
            devices.push(Device::cuda(0).unwrap());
        }
        let noise = Noise::new(&Secret::from_seed(5));
        let each = |start: usize, out: &mut [f32]| {
            for (i, std) in out.iter_mut().enumerate() {
                *std = [0.0, 0.3, 1.7, 42.0][(start + i) % 4];
            }
        };
        let adam = |corrected| Rule::Adam {
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            corrections: (0.19, 0.002),
            corrected,
        };
        for rule in [Rule::Sgd { momentum: 0.9 }, adam(false), adam(true)] {
            let rows = [0.3, 1.7, 42.0, 0.9, 1.1];
            let columns: Vec<f32> = (0..1_000_003).map(|i| 0.1 + (i % 7) as f32).collect();
            let product = Stds::Product { rows: &rows, columns: &columns };
            for stds in [None, Some(Stds::Same(0.7)), Some(Stds::Each(&each)), Some(product)] {
                let noise =
                    stds.map(|stds| NoiseOfRelease { noise: &noise, step: 17, first: 512, stds });
                let gradient_std = match stds {
                    None => Some(0.0),
                    Some(Stds::Same(std)) => Some(std / 20.0),
                    Some(_) => None,
                };
                let update = ParameterUpdate {
                    noise,
                    divisor: 20.0,
                    gradient_std,
                    learning_rate: 1e-3,
                    decay: 0.01,
                    rule,
                };
                for count in [1, 15, 255, 256, 257, 1_300, 1_000_003] {
                    let mut update = update;
                    if let Some(NoiseOfRelease { stds: Stds::Product { rows, columns }, .. }) =
                        &mut update.noise
                    {
                        let height = if count % 5 == 0 { 5 } else { 1 };
                        (*rows, *columns) = (&rows[..height], &columns[..count / height]);
                    }
                    let want = updated(&Device::Cpu, count, &update);
                    if count < 10_000 {
                        CpuLevel::each(|level| {
                            let have = updated(&Device::Cpu, count, &update);
                            assert_eq!(have, want, "{level:?}, {count}, {rule:?}");
                        });
                    }
                    for device in &devices {
                        let have = updated(device, count, &update);
                        for (what, (have, want)) in ["gradient", "value", "first", "second"]
                            .iter()
                            .zip(have.iter().zip(&want))
                        {
                            let different = have.iter().zip(want).filter(|(a, b)| a != b).count();
                            assert_eq!(different, 0, "{what} of {count}, {rule:?}");
                        }
                    }
                }
            }
        }
    }
}
