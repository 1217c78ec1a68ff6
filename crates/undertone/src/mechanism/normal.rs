//! From random words to standard normal numbers, by the method of Box and Muller, in loops that vectorise.

use std::f32::consts::{LN_2, PI};

/// Two independent standard normal numbers from 64 random bits.
///
/// The radius is √(−2 ln u) with u uniform to 40 bits: the tail reaches to 7.4 deviations, beyond which a true normal number has a chance of 1e-13, and
/// at 6 deviations the steps of the radius are still ten times finer than the grid that results are rounded to. The angle has 24 bits.
#[inline(always)]
pub fn pair(one: u32, other: u32) -> (f32, f32) {
    // In (0, 1]: half of the last bit keeps 0 out.
    let low = ((other & 0xff) as f32 + 0.5) * (1.0 / 1_099_511_627_776.0);
    let u = (one as f32).mul_add(1.0 / 4_294_967_296.0, low);
    let radius = (-2.0 * ln(u)).max(0.0).sqrt();
    let (sine, cosine) = sine_and_cosine(other & 0xffff_ff00);
    (radius * cosine, radius * sine)
}

/// The natural logarithm of a positive normal number.
#[inline(always)]
fn ln(x: f32) -> f32 {
    // x = m · 2^k with √½ ≤ m < √2.
    let bits = x.to_bits();
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (shifted as i32) >> 23;
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    // ln m = 2 artanh s with s = (m − 1)/(m + 1), |s| < 0.1716; the next term of the series would be below 2e-9.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = z.mul_add(1.0 / 9.0, 1.0 / 7.0).mul_add(z, 0.2).mul_add(z, 1.0 / 3.0) * z;
    let log = 2.0 * s.mul_add(series, s);
    (exponent as f32).mul_add(LN_2, log)
}

/// Sine and cosine of 2π · angle/2³².
#[inline(always)]
fn sine_and_cosine(angle: u32) -> (f32, f32) {
    // The nearest quarter turn, and what is left of it: at most an eighth of a turn.
    let quarter = angle.wrapping_add(1 << 29) >> 30;
    let rest = angle.wrapping_sub(quarter << 30) as i32;
    let x = rest as f32 * (2.0 * PI / 4_294_967_296.0);
    let z = x * x;
    // Taylor's series; with |x| ≤ π/4 what is left out is below 4e-9 and 3e-8.
    let s = z.mul_add(1.0 / 362_880.0, -1.0 / 5_040.0).mul_add(z, 1.0 / 120.0).mul_add(z, -1.0 / 6.0);
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
    fn logarithm_sine_and_cosine_are_right() {
        for i in 0..200_000_u32 {
            let x = (f64::from(i) + 0.5) / 200_000.0;
            for x in [x, x * 1e-9, x * 1e-18] {
                let x = x as f32;
                let want = f64::from(x).ln();
                assert!((f64::from(ln(x)) - want).abs() <= 2e-7 * want.abs().max(0.1), "ln {x}");
            }
            let angle = i.wrapping_mul(21_474_837);
            let turn = 2.0 * std::f64::consts::PI * f64::from(angle) / 4_294_967_296.0;
            let (sine, cosine) = sine_and_cosine(angle);
            assert!((f64::from(sine) - turn.sin()).abs() < 2e-7, "sin {angle}");
            assert!((f64::from(cosine) - turn.cos()).abs() < 2e-7, "cos {angle}");
        }
    }

    #[test]
    fn the_extremes_are_finite() {
        for one in [0, 1, u32::MAX] {
            for other in [0, 0xff, 1 << 29, 1 << 30, 3 << 30, u32::MAX] {
                let (a, b) = pair(one, other);
                assert!(a.is_finite() && b.is_finite());
            }
        }
        assert!(pair(0, 0).0 > 7.4);
    }
}
