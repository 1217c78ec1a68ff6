//! Run-time selection of the instruction set, and elementary functions that vectorize.

use super::level::arch;
use pulp::{Simd, WithSimd};

/// Runs a loop compiled for the widest instruction set of this process's [level](crate::CpuLevel).
#[inline]
pub fn widest<R>(body: impl FnOnce() -> R) -> R {
    struct Body<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Body<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            (self.0)()
        }
    }
    arch().dispatch(Body(body))
}

#[cfg(target_arch = "x86_64")]
pub use super::x86::prefetch;

/// Prefetches a cache line; a no-op on this target, which relies on the hardware prefetcher.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch<T>(_: *const T) {}

/// eˣ to 2e-7 relative for −87 ≤ x ≤ 88; x is clamped to this range. NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to an integer and leaves it in the low bits, ready to become the
    // exponent.
    const ROUNDER: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_145_75;
    const LN_2_LOW: f32 = 1.428_606_8e-6;
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let whole = shifted - ROUNDER;
    let r = whole.mul_add(-LN_2_LOW, whole.mul_add(-LN_2_HIGH, x));
    // Taylor series up to the sixth power: |r| ≤ ln 2 / 2, so the remainder is below 2e-7.
    let p = r.mul_add(1.0 / 720.0, 1.0 / 120.0);
    let p = p.mul_add(r, 1.0 / 24.0);
    let p = p.mul_add(r, 1.0 / 6.0);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// 1/√x to 3e-7 relative for normal x: an initial guess from the bits, and three Newton steps.
/// Square roots and divisions take several times as long.
#[inline(always)]
pub fn inverse_root(x: f32) -> f32 {
    let mut y = f32::from_bits(0x5f37_59df - (x.to_bits() >> 1));
    let half = 0.5 * x;
    for _ in 0..3 {
        y = y * (-half * y).mul_add(y, 1.5);
    }
    y
}

/// tanh x to 2e-7 absolute.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The standard normal CDF Φ(x) and density φ(x), from one exponential.
///
/// With z = |x|/√2 and t = 1/(1 + 0.3 z), erfc(z) = e^(−z²) · t · P(t). P is a polynomial of degree
/// 8 fitted to erfcx(z)/t at 400 Chebyshev nodes of t for z ≤ 9.5, by least squares reweighted
/// toward the largest relative error (2e-8).
#[inline(always)]
pub fn normal(x: f32) -> (f32, f32) {
    const P: [f32; 9] = [
        0.169_189_6,
        0.170_692_04,
        0.148_481_64,
        0.214_439_28,
        -0.093_638_11,
        0.546_404_7,
        -0.511_234_7,
        0.485_100_36,
        -0.129_434_87,
    ];
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let bell = exp(-0.5 * x * x);
    let t = 1.0 / z.mul_add(0.3, 1.0);
    let mut p = P[8];
    p = p.mul_add(t, P[7]);
    p = p.mul_add(t, P[6]);
    p = p.mul_add(t, P[5]);
    p = p.mul_add(t, P[4]);
    p = p.mul_add(t, P[3]);
    p = p.mul_add(t, P[2]);
    p = p.mul_add(t, P[1]);
    p = p.mul_add(t, P[0]);
    let tail = 0.5 * bell * t * p;
    let distribution = if x < 0.0 { tail } else { 1.0 - tail };
    (distribution, bell * 0.398_942_3)
}

/// Pairwise sum of sixteen values: four steps instead of fifteen.
#[inline(always)]
pub fn sum_lanes(mut lanes: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// Sum with sixteen running sums, which the compiler keeps in one or two registers.
#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v;
        }
    }
    sum_lanes(lanes) + rest.iter().sum::<f32>()
}

/// Dot product with sixteen running sums.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    let (a_chunks, a_rest) = a.as_chunks::<16>();
    let (b_chunks, b_rest) = b.as_chunks::<16>();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for i in 0..16 {
            lanes[i] = x[i].mul_add(y[i], lanes[i]);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    sum_lanes(lanes) + rest
}

/// The largest value, or −∞ if empty.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = if v > *lane { v } else { *lane };
        }
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = lanes[i].max(lanes[i + half]);
        }
    }
    rest.iter().copied().fold(lanes[0], f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementary_functions_match_double_precision() {
        for i in -8_000..8_000 {
            let x = i as f32 / 100.0;
            let wide = f64::from(x);
            let relative =
                |got: f32, want: f64| ((f64::from(got) - want) / want.abs().max(1e-300)).abs();
            assert!(relative(exp(x), wide.exp()) < 3e-7, "exp({x})");
            assert!((f64::from(tanh(x)) - wide.tanh()).abs() < 3e-7, "tanh({x})");
            if x.abs() < 9.0 {
                let (distribution, density) = normal(x);
                let want = 0.5 * libm_erfc(-wide / std::f64::consts::SQRT_2);
                assert!(
                    relative(distribution, want) < 6e-6,
                    "Φ({x}) = {distribution:e}, not {want:e}"
                );
                assert!(
                    relative(density, (-0.5 * wide * wide).exp() * 0.3989422804014327) < 6e-6,
                    "φ({x})"
                );
            }
        }
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && normal(f32::NAN).0.is_nan());
        assert!(exp(-1e30) < 1e-37 && exp(1e30) > 1e38);
    }

    #[test]
    fn inverse_roots_match_double_precision() {
        let mut x = f32::MIN_POSITIVE;
        while x < 1e38 {
            let want = 1.0 / f64::from(x).sqrt();
            assert!((f64::from(inverse_root(x)) - want).abs() < 3e-7 * want, "{x:e}");
            x *= 1.000_7;
        }
    }

    /// erfc by its continued fraction or series, in double precision.
    fn libm_erfc(z: f64) -> f64 {
        if z < 0.0 {
            return 2.0 - libm_erfc(-z);
        }
        if z < 2.5 {
            let (mut term, mut sum, mut n) = (z, z, 0.0);
            while f64::abs(term) > 1e-18 * sum {
                n += 1.0;
                term *= -z * z / n;
                sum += term / (2.0 * n + 1.0);
                if n > 200.0 || z == 0.0 {
                    break;
                }
            }
            return 1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI;
        }
        let mut fraction = 0.0;
        for k in (1..200).rev() {
            fraction = f64::from(k) / 2.0 / (z + fraction);
        }
        (-z * z).exp() / (z + fraction) / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn sums_match_the_plain_loop() {
        for length in [0, 1, 15, 16, 17, 100] {
            let a: Vec<f32> = (0..length).map(|i| (i as f32 * 0.7).sin()).collect();
            let b: Vec<f32> = (0..length).map(|i| (i as f32 * 1.3).cos()).collect();
            assert!((sum(&a) - a.iter().sum::<f32>()).abs() < 1e-4);
            assert!((dot(&a, &b) - a.iter().zip(&b).map(|(x, y)| x * y).sum::<f32>()).abs() < 1e-4);
            assert_eq!(max(&a), a.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
