//! Standard normal variates from random bits by the Box–Muller transform, in vectorizable code.

use std::f32::consts::{LN_2, PI};

/// Two independent standard normal variates from 64 random bits.
///
/// The radius is √(−2 ln u) with u uniform to 40 bits, (N + ½)/2⁴⁰; the angle uses the other 24
/// bits. Noise is rounded to a grid, and the possible radii must be closer together than the grid
/// cells *everywhere*: a grid cell that no radius reaches would be an output that rules out some
/// sums. Near u = 1, where the radius is small, an `f32` is too coarse for u itself, so u is
/// represented by its distance from the nearer of 0 and 1. Near u = 0, where N is small and radii
/// are far apart, [`tail_pair`] uses more bits: it must be used when `high` is below [`TAIL`].
#[inline(always)]
pub fn pair(high: u32, low: u32) -> (f32, f32) {
    let radius = (-2.0 * ln_of_uniform(high, low & 0xff)).sqrt();
    let (sine, cosine) = sine_and_cosine(low & 0xffff_ff00);
    (radius * cosine, radius * sine)
}

/// A pair whose first word is below this needs more bits: it lies beyond 4.7 standard deviations.
/// At or above it, neighboring radii are less than 2e-8 apart.
pub const TAIL: u32 = 1 << 16;

/// Like [`pair`], with 64 more bits after the 40 bits of u.
pub fn tail_pair(high: u32, low: u32, more: u64) -> (f32, f32) {
    let whole = f64::from(high) * 256.0 + f64::from(low & 0xff);
    let u = (whole + (more as f64 + 0.5) / 2_f64.powi(64)) / 2_f64.powi(40);
    let radius = (-2.0 * natural_log(u)).sqrt() as f32;
    let (sine, cosine) = sine_and_cosine(low & 0xffff_ff00);
    (radius * cosine, radius * sine)
}

/// ln u, using only operations that every machine rounds identically, which the system's logarithm
/// does not guarantee: the noise must be the same on all machines.
fn natural_log(u: f64) -> f64 {
    const ROOT_OF_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    // u = m · 2^k with √½ ≤ m < √2.
    let shifted = u.to_bits().wrapping_sub(ROOT_OF_HALF);
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT_OF_HALF));
    let k = (shifted as i64 >> 52) as f64;
    // ln m = 2 artanh s, |s| < 0.1716; the next term of the series would be below 1e-20.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut series: f64 = 1.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0_f64] {
        series = series.mul_add(z, 1.0 / odd);
    }
    k.mul_add(std::f64::consts::LN_2, 2.0 * (s * z).mul_add(series, s))
}

/// ln u for u = (256 · high + low + ½)/2⁴⁰, with a relative error of 2e-7 at both ends.
#[inline(always)]
fn ln_of_uniform(high: u32, low: u32) -> f32 {
    // The distance of u from the nearer of 0 and 1.
    let upper = high >> 31 == 1;
    let (n, low) = if upper { (!high, 255.5 - low as f32) } else { (high, low as f32 + 0.5) };
    let x = (n as f32).mul_add(1.0 / 4_294_967_296.0, low * (1.0 / 1_099_511_627_776.0));
    // u = m · 2^k with √½ ≤ m < √2, and (m − 1)/(m + 1) as a fraction. In the upper half, m is 1 −
    // x or 2 − 2x.
    let shifted = x.to_bits().wrapping_sub(0x3f35_04f3);
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    let far = x > 0.292_893_2;
    let (above, below, k) = match (upper, far) {
        (false, _) => (m - 1.0, m + 1.0, ((shifted as i32) >> 23) as f32),
        (true, false) => (-x, 2.0 - x, 0.0),
        (true, true) => (2.0_f32.mul_add(-x, 1.0), 2.0_f32.mul_add(-x, 3.0), -1.0),
    };
    // ln m = 2 artanh s, |s| < 0.1716; the next term of the series would be below 2e-9.
    let s = above / below;
    let z = s * s;
    let series = z.mul_add(1.0 / 9.0, 1.0 / 7.0).mul_add(z, 0.2).mul_add(z, 1.0 / 3.0) * z;
    k.mul_add(LN_2, 2.0 * s.mul_add(series, s))
}

/// Sine and cosine of 2π · angle/2³².
#[inline(always)]
fn sine_and_cosine(angle: u32) -> (f32, f32) {
    // The nearest quarter turn, and the remainder: at most an eighth of a turn.
    let quarter = angle.wrapping_add(1 << 29) >> 30;
    let rest = angle.wrapping_sub(quarter << 30) as i32;
    let x = rest as f32 * (2.0 * PI / 4_294_967_296.0);
    let z = x * x;
    // Taylor series; with |x| ≤ π/4 the remainders are below 4e-9 and 3e-8.
    let s =
        z.mul_add(1.0 / 362_880.0, -1.0 / 5_040.0).mul_add(z, 1.0 / 120.0).mul_add(z, -1.0 / 6.0);
    let sine = (x * z).mul_add(s, x);
    let c = z.mul_add(1.0 / 40_320.0, -1.0 / 720.0).mul_add(z, 1.0 / 24.0).mul_add(z, -0.5);
    let cosine = z.mul_add(c, 1.0);
    let (a, b) = if quarter & 1 == 0 { (sine, cosine) } else { (cosine, sine) };
    let sine = if quarter & 2 == 0 { a } else { -a };
    let cosine = if (quarter.wrapping_add(1)) & 2 == 0 { b } else { -b };
    (sine, cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right() {
        for i in 1..=200_000_u64 {
            let u = (i * 5_497) as f64 / 2_f64.powi(40 + (i % 64) as i32);
            let (have, want) = (natural_log(u), u.ln());
            assert!((have - want).abs() <= 4e-16 * want.abs().max(0.25), "{u}: {have}, not {want}");
        }
        assert_eq!(natural_log(1.0), 0.0);
    }

    #[test]
    fn sine_and_cosine_are_right() {
        for i in 0..200_000_u32 {
            let angle = i.wrapping_mul(21_474_837);
            let turn = 2.0 * std::f64::consts::PI * f64::from(angle) / 4_294_967_296.0;
            let (sine, cosine) = sine_and_cosine(angle);
            assert!((f64::from(sine) - turn.sin()).abs() < 2e-7, "sin {angle}");
            assert!((f64::from(cosine) - turn.cos()).abs() < 2e-7, "cos {angle}");
        }
    }

    /// Radii are as fine as defined, especially where u is close to 0 or 1: a sampler that stores u
    /// itself in an `f32` has gaps there.
    #[test]
    fn radii_are_those_of_the_definition_at_both_ends() {
        let ends = (0..2_000_u32).flat_map(|i| [i, u32::MAX - i]);
        let middle = (0..200_000_u32).map(|i| i.wrapping_mul(2_654_435_761));
        for high in ends.chain(middle) {
            for last in [0, 1, 77, 254, 255_u32] {
                let n = u64::from(high) * 256 + u64::from(last);
                let from_one = ((1_u64 << 40) - n) as f64 - 0.5;
                let log = if n >> 39 == 1 {
                    (-from_one / 2_f64.powi(40)).ln_1p()
                } else {
                    ((n as f64 + 0.5) / 2_f64.powi(40)).ln()
                };
                let want = (-2.0 * log).sqrt();
                // With angle 0, the cosine carries the whole radius.
                let (have, zero) = pair(high, last);
                assert!(
                    (f64::from(have) / want - 1.0).abs() < 1e-6,
                    "{high} {last}: {have}, not {want}"
                );
                assert!(have > 0.0 && zero == 0.0);
            }
        }
    }

    #[test]
    fn the_tail_goes_on_where_forty_bits_end() {
        let half = 1_u64 << 63;
        for high in [0, 1, 2, 1_000, TAIL - 1] {
            for last in 0..255 {
                let (radius, middle) = (pair(high, last).0, tail_pair(high, last, half).0);
                assert!((radius - middle).abs() < 1e-5, "{high} {last}: {radius} and {middle}");
                let (end, next) =
                    (tail_pair(high, last, u64::MAX).0, tail_pair(high, last + 1, 0).0);
                assert!((end - next).abs() < 1e-5, "no gap after {high} {last}");
            }
        }
        let ends =
            [tail_pair(0, 0, 0).0, tail_pair(0, 0, u64::MAX).0, tail_pair(0, 255, u64::MAX).0];
        assert!(ends.is_sorted_by(|end, next| end > next), "{ends:?}");
        assert!(ends[0].is_finite() && ends[0] > 11.0);
        let step = pair(TAIL, 0).0 - pair(TAIL, 255).0;
        assert!(step / 255.0 < 2e-8, "{step}");
    }
}
