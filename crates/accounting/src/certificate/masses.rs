//! Masses on a grid of likelihood ratios, and their composition in exact integers.
//!
//! The rules are those of the checker's README: each number is the least integer that satisfies
//! them, so two implementations agree to the last digit.

use super::fixed::Fixed;
use super::pair::{Curve, Pair, response};
use num_bigint::{BigInt, BigUint};
use rayon::prelude::*;

/// The grid of likelihood ratios r^k, r = 1 + 1/mesh, and the unit 2^−scale of masses.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub mesh: u64,
    pub scale: u64,
}

/// The masses of P: `mass[i]` at the ratio r^(first + i) and `infinite` where Q has none.
#[derive(Clone, Debug)]
pub struct Masses {
    pub first: i64,
    pub mass: Vec<BigUint>,
    pub infinite: BigUint,
}

/// Bits kept beyond the unit of masses.
const SPARE_BITS: u64 = 192;
/// Each mass is rounded up after adding 2^−MARGIN_BITS units, more than its numerical error.
const MARGIN_BITS: u64 = 48;

impl Grid {
    /// The distance between neighboring losses.
    pub fn step(&self) -> f64 {
        (1.0 / self.mesh as f64).ln_1p()
    }

    fn fixed(&self, first: i64, last: i64, shift: f64) -> Fixed {
        let widest = first.unsigned_abs().max(last.unsigned_abs()) / self.mesh + 1;
        let squared = (shift * shift) as u64;
        Fixed { bits: self.scale + SPARE_BITS + 6 * widest + 4 * squared }
    }

    /// r^first, …, r^last.
    fn ratios(&self, first: i64, last: i64, fixed: Fixed) -> Vec<BigInt> {
        let up = |x: &BigInt| x * (self.mesh + 1) / self.mesh;
        let down = |x: &BigInt| x * self.mesh / (self.mesh + 1);
        let mut x = fixed.one() << 64;
        for _ in 0..first.unsigned_abs() {
            x = if first < 0 { down(&x) } else { up(&x) };
        }
        let mut ratios = Vec::with_capacity((last - first + 1) as usize);
        for _ in first..=last {
            ratios.push(&x >> 64);
            x = up(&x);
        }
        ratios
    }

    fn rounded_up(&self, x: &BigInt, fixed: Fixed) -> BigUint {
        let unit = fixed.bits - self.scale;
        let x = x + (BigInt::from(1) << (unit - MARGIN_BITS));
        (-(-x >> unit)).to_biguint().unwrap_or_default()
    }

    /// The masses of a pair, where P's mass outside the grid's range is about `cut`.
    pub fn masses(&self, pair: &Pair, cut: f64) -> Masses {
        let (low, high) = pair.losses(cut);
        let first = (low / self.step()).floor() as i64 - 1;
        let last = (high / self.step()).ceil() as i64 + 1;
        match pair {
            Pair::Response { epsilon, categories } => self.response(*epsilon, *categories),
            Pair::Mixture { kind, q, shift } => {
                let fixed = self.fixed(first, last, shift.approximate);
                let curve = Curve::new(*kind, *q, shift, fixed);
                let ratios = self.ratios(first, last, fixed);
                let heights: Vec<BigInt> = ratios.par_iter().map(|x| curve.at(x)).collect();
                self.polygon(first, &heights, fixed)
            }
        }
    }

    /// The kinks of the polygon through (0, 1) and the heights, flat beyond the last one.
    fn polygon(&self, first: i64, heights: &[BigInt], fixed: Fixed) -> Masses {
        let mesh = BigInt::from(self.mesh);
        // Beyond the largest loss the curve is exactly 0, and has no kinks.
        let rounded = |heights: &[BigInt], kink: BigInt| match heights {
            zeros if zeros.iter().all(|h| *h == BigInt::ZERO) => BigUint::ZERO,
            _ => self.rounded_up(&kink, fixed),
        };
        let n = heights.len();
        let mut mass = Vec::with_capacity(n);
        let bottom = &mesh * (&heights[1] - &heights[0]) + fixed.one() - &heights[0];
        mass.push(self.rounded_up(&bottom, fixed));
        for h in heights.windows(3) {
            mass.push(rounded(h, &mesh * &h[2] + (&mesh + 1) * &h[0] - (&mesh * 2 + 1) * &h[1]));
        }
        let top = &heights[n - 2..];
        mass.push(rounded(top, (&mesh + 1) * (&top[0] - &top[1])));
        let infinite = rounded(&top[1..], top[1].clone());
        Masses { first, mass, infinite }
    }

    /// Each outcome of randomized response, split between its neighbors on the grid.
    fn response(&self, epsilon: f64, categories: u64) -> Masses {
        let widest = (epsilon / self.step()).floor() as i64 + 2;
        let fixed = self.fixed(-widest, widest, 0.0);
        let (ratio, unlikely) = response(epsilon, categories, fixed);
        let ratios = self.ratios(-widest, widest, fixed);
        let inverse = fixed.div(&fixed.one(), &ratio);
        let mut mass = vec![BigUint::ZERO; ratios.len()];
        let rounded = |x: &BigInt| self.rounded_up(x, fixed);
        let middle = widest as usize;
        if categories > 2 {
            mass[middle] = rounded(&(&unlikely * (categories - 2)));
        }
        for (x, p) in [(&ratio, fixed.mul(&ratio, &unlikely)), (&inverse, unlikely.clone())] {
            let below = ratios.partition_point(|point| point <= x) - 1;
            let share = fixed.one() - fixed.div(&ratios[below], x);
            let above = fixed.mul(&p, &(share * (self.mesh + 1)));
            mass[below] += rounded(&(&p - &above));
            mass[below + 1] += rounded(&above);
        }
        Masses { first: -widest, mass, infinite: BigUint::ZERO }
    }

    /// The product of two pairs, with up to `cut` of mass removed at either end.
    pub fn composed(&self, a: &Masses, b: &Masses, cut: &BigUint) -> Masses {
        let mut mass = convolved(&a.mass, &b.mass);
        mass.par_iter_mut().with_min_len(512).for_each(|m| *m = self.shifted_up(m));
        let (total_a, total_b) = (a.mass.iter().sum::<BigUint>(), b.mass.iter().sum::<BigUint>());
        let both = &a.infinite * (total_b + &b.infinite) + total_a * &b.infinite;
        let mut infinite = self.shifted_up(&both);
        let mut removed = BigUint::ZERO;
        while mass.len() > 1 && &removed + &mass[mass.len() - 1] <= *cut {
            removed += mass.pop().unwrap_or_default();
        }
        infinite += removed;
        let (mut start, mut removed) = (0, BigUint::ZERO);
        while start + 1 < mass.len() && &removed + &mass[start] <= *cut {
            removed += &mass[start];
            start += 1;
        }
        mass.drain(..start);
        mass[0] += removed;
        Masses { first: a.first + b.first + start as i64, mass, infinite }
    }

    /// m/2^scale, rounded up.
    fn shifted_up(&self, m: &BigUint) -> BigUint {
        let down = m >> self.scale;
        if &down << self.scale == *m { down } else { down + 1_u32 }
    }

    /// The composition of `count` releases, by repeated squaring.
    pub fn repeated(&self, once: &Masses, count: u64, cut: impl Fn(u64) -> BigUint) -> Masses {
        let (mut power, mut done) = (once.clone(), 1);
        for bit in (0..count.ilog2()).rev() {
            done *= 2;
            power = self.composed(&power, &power, &cut(done));
            if count >> bit & 1 == 1 {
                done += 1;
                power = self.composed(&power, once, &cut(done));
            }
        }
        power
    }

    /// δ at ε = numerator/denominator: Σ mass·(1 − e^ε/r^k)₊, rounded up.
    pub fn delta(&self, masses: &Masses, epsilon: (&BigInt, &BigInt)) -> BigUint {
        let last = masses.first + masses.mass.len() as i64 - 1;
        let fixed = self.fixed(masses.first, last, 0.0);
        let ratio = fixed.exp(&fixed.ratio(epsilon.0, epsilon.1));
        let mut share = fixed.div(&ratio, &self.ratios(masses.first, masses.first, fixed)[0]);
        let mut total = BigInt::ZERO;
        for mass in &masses.mass {
            if share < fixed.one() {
                total += BigInt::from(mass.clone()) * (fixed.one() - &share);
            }
            share = share * self.mesh / (self.mesh + 1);
        }
        if total == BigInt::ZERO {
            return masses.infinite.clone();
        }
        // `total` is an integer over 2^(scale + bits).
        let wide = Fixed { bits: fixed.bits + self.scale };
        self.rounded_up(&total, wide) + &masses.infinite
    }

    /// δ(ε) of masses, approximately.
    pub fn approximate_delta(
        &self,
        masses: &[f64],
        first: i64,
        infinite: f64,
        epsilon: f64,
    ) -> f64 {
        let sum = masses.iter().zip(first..).map(|(mass, k)| {
            let above = (k as f64 * self.step() - epsilon).max(0.0);
            mass * -(-above).exp_m1()
        });
        infinite + sum.sum::<f64>()
    }
}

/// The convolution of two lists, computed as one product of long integers with a block for each
/// entry.
fn convolved(a: &[BigUint], b: &[BigUint]) -> Vec<BigUint> {
    let most = |list: &[BigUint]| list.iter().map(BigUint::bits).max().unwrap_or(0);
    let terms = a.len().min(b.len()).ilog2() as u64 + 1;
    let width = ((most(a) + most(b) + terms) / 8 + 1) as usize;
    let packed = |list: &[BigUint]| {
        let mut bytes = vec![0; list.len() * width];
        for (entry, block) in list.iter().zip(bytes.chunks_mut(width)) {
            let digits = entry.to_bytes_le();
            block[..digits.len()].copy_from_slice(&digits);
        }
        BigUint::from_bytes_le(&bytes)
    };
    let mut bytes = (packed(a) * packed(b)).to_bytes_le();
    let entries = a.len() + b.len() - 1;
    bytes.resize(entries * width, 0);
    bytes.par_chunks(width).with_min_len(512).map(BigUint::from_bytes_le).collect()
}
