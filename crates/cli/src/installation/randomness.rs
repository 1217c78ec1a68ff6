//! Randomness, noise and sampling against known answers, at every level of the processor.
//!
//! The draws come from fixed keys, so a check either always holds on a machine or never does. The
//! limits are six standard deviations of what they bound.

use super::check::Checked;
use undertone::data::PoissonSampler;
use undertone::noise::{Noise, Secret, purpose};
use undertone::tensor::CpuLevel;
use undertone_accounting::normal_tail;

/// Number of coordinates on which noise is compared bit by bit.
const COORDINATES: usize = 1 << 20;

/// FNV-1a hash of the bits of [`noise`] on every supported machine.
const NOISE_HASH: u64 = 0xe577_58f9_1bfb_700d;

pub fn checks() -> Vec<Checked> {
    vec![
        Checked::of("randomness", system()),
        Checked::of("noise", every_level()),
        Checked::of("sampling", sampling()),
    ]
}

/// The operating system's generator: no two secrets are equal, and half of their bits are set.
fn system() -> Result<String, String> {
    const SECRETS: usize = 1024;
    let mut secrets = Vec::with_capacity(SECRETS);
    for _ in 0..SECRETS {
        secrets.push(*Secret::from_system().map_err(|e| e.to_string())?.bytes());
    }
    let ones: u32 = secrets.iter().flatten().map(|byte| byte.count_ones()).sum();
    let bits = (SECRETS * 256) as f64;
    secrets.sort_unstable();
    secrets.dedup();
    let away = (f64::from(ones) - 0.5 * bits).abs() / (0.25 * bits).sqrt();
    if secrets.len() < SECRETS || away > 6.0 {
        return Err("the operating system's random numbers are not random".to_owned());
    }
    Ok("the operating system's generator works".to_owned())
}

/// Standard normal noise from a fixed key.
fn noise() -> Vec<f32> {
    let mut values = vec![0.0; COORDINATES];
    Noise::new(&Secret::from_bytes([7; 32])).add(3, 0, 1.0, 1.0, &mut values);
    values
}

fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn every_level() -> Result<String, String> {
    let mut names = Vec::new();
    for level in CpuLevel::available() {
        let values = level.run(noise).map_err(|e| e.to_string())?;
        let problem = |what: String| format!("at {}: {what}", level.name());
        is_normal(&values).map_err(problem)?;
        let hash = hash(&values);
        if hash != NOISE_HASH {
            return Err(problem(format!(
                "the noise has hash {hash:#018x}, not {NOISE_HASH:#018x}"
            )));
        }
        names.push(level.name());
    }
    Ok(format!("{COORDINATES} draws are normal, and bit-identical at {}", names.join(", ")))
}

/// Compares mean, variance and tails with those of the standard normal distribution.
fn is_normal(values: &[f32]) -> Result<(), String> {
    let n = values.len() as f64;
    let mean = values.iter().map(|&z| f64::from(z)).sum::<f64>() / n;
    let variance = values.iter().map(|&z| f64::from(z).powi(2)).sum::<f64>() / n;
    if mean.abs() > 6.0 / n.sqrt() || (variance - 1.0).abs() > 6.0 * (2.0 / n).sqrt() {
        return Err(format!("the noise has mean {mean:.5} and variance {variance:.5}"));
    }
    for at in [0.1, 0.5, 1.0, 2.0, 3.0, 4.0] {
        let expected = 2.0 * normal_tail(at);
        let share = values.iter().filter(|z| f64::from(z.abs()) > at).count() as f64 / n;
        // A grid of 1/256 moves a tail by at most its density times half a cell.
        let grid = (-0.5 * at * at).exp() / 256.0;
        if (share - expected).abs() > 6.0 * (expected / n).sqrt() + grid {
            return Err(format!("{share:.6} of the noise is beyond ±{at}, not {expected:.6}"));
        }
    }
    Ok(())
}

/// Poisson sampling: batch sizes have the binomial distribution's mean and variance.
fn sampling() -> Result<String, String> {
    const UNITS: usize = 10_000;
    const RATE: f64 = 0.02;
    const STEPS: u64 = 500;
    let key = Secret::from_bytes([9; 32]).key(purpose::SAMPLING);
    let sampler = PoissonSampler::new(UNITS, RATE, key).map_err(|e| e.to_string())?;
    let sizes: Vec<f64> = (0..STEPS).map(|step| sampler.step(step).len() as f64).collect();
    let (n, expected) = (STEPS as f64, UNITS as f64 * RATE);
    let spread = expected * (1.0 - RATE);
    let mean = sizes.iter().sum::<f64>() / n;
    let variance = sizes.iter().map(|size| (size - expected).powi(2)).sum::<f64>() / n;
    let far = (mean - expected).abs() > 6.0 * (spread / n).sqrt()
        || (variance / spread - 1.0).abs() > 6.0 * (2.0 / n).sqrt();
    if far {
        return Err(format!(
            "batch sizes have mean {mean:.1} and variance {variance:.1}, not {expected:.1} and \
             {spread:.1}"
        ));
    }
    Ok(format!("{STEPS} Poisson batches have binomial sizes"))
}
