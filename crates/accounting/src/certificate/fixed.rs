//! Fixed-point arithmetic with hundreds of bits: exp, ln and the normal distribution.
//!
//! A number is an integer over 2^bits. Results are accurate to well below 2^−(bits − 40) times
//! their condition number. This is not proved: the independent checker encloses every number
//! rigorously and refuses a wrong certificate.

use num_bigint::BigInt;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Arithmetic on integers over 2^bits.
#[derive(Clone, Copy)]
pub struct Fixed {
    pub bits: u64,
}

impl Fixed {
    pub fn one(&self) -> BigInt {
        BigInt::from(1) << self.bits
    }

    /// n/d.
    pub fn ratio(&self, n: &BigInt, d: &BigInt) -> BigInt {
        (n << self.bits) / d
    }

    pub fn mul(&self, a: &BigInt, b: &BigInt) -> BigInt {
        (a * b) >> self.bits
    }

    pub fn div(&self, a: &BigInt, b: &BigInt) -> BigInt {
        (a << self.bits) / b
    }

    pub fn sqrt(&self, a: &BigInt) -> BigInt {
        (a << self.bits).sqrt()
    }

    /// e^t, by the Taylor series of a small fraction of t, squared repeatedly.
    pub fn exp(&self, t: &BigInt) -> BigInt {
        if t < &BigInt::ZERO {
            return self.div(&self.one(), &self.exp(&-t));
        }
        let halvings = (t.bits() + 8).saturating_sub(self.bits);
        let fine = Fixed { bits: self.bits + 64 + halvings };
        let small = t << 64;
        let (mut term, mut sum) = (fine.one(), fine.one());
        for k in 1_u32.. {
            term = fine.mul(&term, &small) / k;
            if term == BigInt::ZERO {
                break;
            }
            sum += &term;
        }
        for _ in 0..halvings {
            sum = fine.mul(&sum, &sum);
        }
        sum >> (64 + halvings)
    }

    /// ln v for v > 0, by Halley's iteration on exp, which triples the number of correct bits.
    pub fn ln(&self, v: &BigInt) -> BigInt {
        let exponent = v.bits() as i64 - self.bits as i64;
        let top = if v.bits() > 60 { v >> (v.bits() - 60) } else { v << (60 - v.bits()) };
        let mantissa = u64::try_from(top).map_or(1.0, |m| m as f64 / (1_u64 << 60) as f64);
        // Logarithm of the mantissa in [1/2, 1), and an exact multiple of ln 2.
        let m = if exponent >= 0 { v >> exponent } else { v << -exponent };
        let mut y = BigInt::from((mantissa.ln() * (1_u64 << 52) as f64) as i64);
        y = if self.bits >= 52 { y << (self.bits - 52) } else { y >> (52 - self.bits) };
        let mut correct = 45;
        while correct < self.bits {
            let e = self.exp(&y);
            y += self.div(&((&m - &e) * 2), &(&m + &e));
            correct *= 3;
        }
        y + self.ln2() * exponent
    }

    fn ln2(&self) -> BigInt {
        // ln 2 = 2 atanh(1/3).
        self.constant(2, |fine| {
            let (mut power, mut sum) = (fine.one() / 3, BigInt::ZERO);
            for k in (1_u32..).step_by(2) {
                if power == BigInt::ZERO {
                    break;
                }
                sum += &power / k;
                power /= 9;
            }
            sum * 2
        })
    }

    /// 1/√(2π), with Machin's π = 16 atan(1/5) − 4 atan(1/239).
    fn density_at_zero(&self) -> BigInt {
        self.constant(0, |fine| {
            let atan_of_inverse = |n: u32| {
                let (mut power, mut sum) = (fine.one() / n, BigInt::ZERO);
                for k in 0_u32.. {
                    if power == BigInt::ZERO {
                        break;
                    }
                    let term = &power / (2 * k + 1);
                    sum += if k % 2 == 0 { term } else { -term };
                    power /= n * n;
                }
                sum
            };
            let two_pi = atan_of_inverse(5) * 32 - atan_of_inverse(239) * 8;
            fine.div(&fine.one(), &fine.sqrt(&two_pi))
        })
    }

    /// A constant, computed once for each number of bits.
    fn constant(&self, name: u8, compute: impl Fn(Fixed) -> BigInt) -> BigInt {
        static KNOWN: Mutex<Option<HashMap<(u8, u64), BigInt>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        let fresh = || compute(Fixed { bits: self.bits + 32 }) >> 32;
        known.entry((name, self.bits)).or_insert_with(fresh).clone()
    }

    /// P(N > z) of a standard normal N.
    ///
    /// For z ≥ 0 it is ½ − density(z)·(z + z³/3 + z⁵/(3·5) + z⁷/(3·5·7) + …), whose terms all have
    /// the same sign.
    pub fn upper_tail(&self, z: &BigInt) -> BigInt {
        if z < &BigInt::ZERO {
            return self.one() - self.upper_tail(&-z);
        }
        let square = u64::try_from((z * z) >> (2 * self.bits)).unwrap_or(u64::MAX);
        if square > 2 * self.bits {
            return BigInt::ZERO;
        }
        // The series grows to e^{z²/2}; extra bits keep the product accurate.
        let more = square + 32;
        let fine = Fixed { bits: self.bits + more };
        let z = z << more;
        let z_squared = fine.mul(&z, &z);
        let (mut term, mut sum) = (z, BigInt::ZERO);
        for k in (3_u32..).step_by(2) {
            if term == BigInt::ZERO {
                break;
            }
            sum += &term;
            term = fine.mul(&term, &z_squared) / k;
        }
        let exponent: BigInt = z_squared >> 1;
        let density = fine.mul(&fine.exp(&-exponent), &fine.density_at_zero());
        ((fine.one() >> 1) - fine.mul(&density, &sum)) >> more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fixed: Fixed, x: f64) -> BigInt {
        BigInt::from((x * 2_f64.powi(52)) as i64) << (fixed.bits - 52)
    }

    fn back(fixed: Fixed, x: &BigInt) -> f64 {
        let x = x >> (fixed.bits - 100);
        x.to_string().parse::<f64>().unwrap() / 2_f64.powi(100)
    }

    #[test]
    fn functions_agree_with_double_precision() {
        let fixed = Fixed { bits: 300 };
        for x in [1e-3, 0.4, 1.0, 2.7, 30.0, 90.0] {
            for x in [x, -x] {
                let computed = back(fixed, &fixed.exp(&of(fixed, x)));
                assert!((computed - x.exp()).abs() <= 1e-12 * x.exp() + 1e-29, "e^{x}: {computed}");
                let computed = back(fixed, &fixed.upper_tail(&of(fixed, x)));
                let wanted = crate::normal::upper_tail(x);
                assert!((computed - wanted).abs() <= 1e-12 * wanted + 1e-29, "{x}: {computed}");
            }
            let computed = back(fixed, &fixed.ln(&of(fixed, x)));
            assert!((computed - x.ln()).abs() < 1e-12, "ln {x}: {computed}");
        }
    }

    /// The identities hold to far more bits than a double has.
    #[test]
    fn hundreds_of_bits_are_right() {
        let (coarse, fine) = (Fixed { bits: 300 }, Fixed { bits: 500 });
        let close = |a: &BigInt, b: BigInt, what: &str| {
            let off = (a - b).bits();
            assert!(off < 40, "{what} is off by {off} bits of 300");
        };
        for x in [0.1, 3.0, 11.0] {
            let x = of(coarse, x);
            close(&x, coarse.ln(&coarse.exp(&x)), "ln e^x");
            close(&coarse.upper_tail(&x), fine.upper_tail(&(&x << 200)) >> 200, "a tail");
        }
    }
}
