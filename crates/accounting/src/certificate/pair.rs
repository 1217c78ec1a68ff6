//! Hockey-stick curves of dominating pairs, to hundreds of bits.
//!
//! The pairs are those of `pld/PROOFS.md`, sections 1 to 3 and 6; the checker's README gives the
//! rules that turn events into pairs.

use super::fixed::Fixed;
use crate::normal::{upper_quantile, upper_tail};
use crate::{Adjacency, Composition, Error, Event, Result};
use num_bigint::BigInt;

/// Number of fractional bits of a shift, which is rounded up.
const SHIFT_BITS: u64 = 128;

/// A pair of distributions that dominates a release.
#[derive(Clone, Debug)]
pub enum Pair {
    Mixture { kind: Mixture, q: f64, shift: Shift },
    Response { epsilon: f64, categories: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixture {
    /// (1 − q)N(0) + qN(s) against N(0): the unit is present.
    Shifted,
    /// The same pair with P and Q exchanged: the unit is absent.
    Unshifted,
    /// (1 − q)N(0) + qN(s) against (1 − q)N(0) + qN(−s): a unit is replaced.
    Opposed,
}

/// A distance between means in standard deviations, as an integer over 2^128.
#[derive(Clone, Debug)]
pub struct Shift {
    exact: BigInt,
    pub approximate: f64,
}

/// An exact non-negative rational number.
struct Ratio {
    n: BigInt,
    d: BigInt,
}

impl Ratio {
    /// The exact value of a positive double.
    fn of(x: f64) -> Ratio {
        let bits = x.to_bits();
        let (exponent, fraction) = ((bits >> 52) as i64, bits & ((1 << 52) - 1));
        let (m, e) =
            if exponent == 0 { (fraction, -1074) } else { (fraction | (1 << 52), exponent - 1075) };
        let power = BigInt::from(1) << e.unsigned_abs();
        match e >= 0 {
            true => Ratio { n: BigInt::from(m) * power, d: BigInt::from(1) },
            false => Ratio { n: BigInt::from(m), d: power },
        }
    }

    /// count · (a/b)².
    fn squared_quotient(count: u64, a: f64, b: f64) -> Ratio {
        let (a, b) = (Ratio::of(a), Ratio::of(b));
        let (n, d) = (a.n * b.d, a.d * b.n);
        Ratio { n: &n * &n * count, d: &d * &d }
    }

    fn plus(self, other: Ratio) -> Ratio {
        Ratio { n: self.n * &other.d + other.n * &self.d, d: self.d * other.d }
    }

    /// The square root, rounded up.
    fn root(&self) -> Shift {
        let exact: BigInt = ((&self.n << (2 * SHIFT_BITS)) / &self.d).sqrt() + 1;
        let kept = exact.bits().saturating_sub(64);
        let top = u64::try_from(&exact >> kept).unwrap_or(u64::MAX) as f64;
        Shift { approximate: top * 2_f64.powi(kept as i32 - SHIFT_BITS as i32), exact }
    }
}

/// The pairs of a composition in the order of the certificate, each with its number of releases.
/// All Gaussian releases without sampling become one pair.
pub fn pairs_of(composition: &Composition) -> Result<Vec<(Pair, u64)>> {
    let mut pairs = Vec::new();
    let mut gaussian: Option<Ratio> = None;
    let replaced = composition.adjacency == Adjacency::ReplaceOne;
    for part in composition.parts() {
        let count = part.count;
        let mut add = |sensitivity: f64, noise: f64| {
            let more = Ratio::squared_quotient(count, sensitivity, noise);
            gaussian = Some(match gaussian.take() {
                Some(sum) => sum.plus(more),
                None => more,
            });
        };
        match part.event {
            Event::Gaussian { noise_multiplier, sensitivity } => add(sensitivity, noise_multiplier),
            Event::PoissonGaussian { noise_multiplier, sampling_rate: 1.0 } => {
                add(if replaced { 2.0 } else { 1.0 }, noise_multiplier);
            }
            Event::PoissonGaussian { noise_multiplier, sampling_rate } => {
                let kind = if replaced { Mixture::Opposed } else { Mixture::Shifted };
                let shift = Ratio::squared_quotient(1, 1.0, noise_multiplier).root();
                pairs.push((Pair::Mixture { kind, q: sampling_rate, shift }, count));
            }
            Event::RandomizedResponse { epsilon, categories } => {
                pairs.push((Pair::Response { epsilon, categories }, count));
            }
            Event::MixtureOfGaussians { .. } => {
                return Err(Error::NotCertifiable {
                    why: "the checker does not know users whose examples are sampled one by one",
                });
            }
            Event::Threshold { .. } => {
                return Err(Error::NotCertifiable {
                    why: "a threshold, as of a private vocabulary, has a δ of its own that the \
                          checker does not know",
                });
            }
            Event::Selection { .. } | Event::Exponential { .. } => {
                return Err(Error::NotCertifiable {
                    why: "private selections and exponential mechanisms are accounted for by Rényi \
                          DP, without a dominating pair",
                });
            }
        }
    }
    if let Some(squared) = gaussian {
        pairs.push((Pair::Mixture { kind: Mixture::Shifted, q: 1.0, shift: squared.root() }, 1));
    }
    Ok(pairs)
}

impl Pair {
    /// Whether the pair is its own mirror image.
    pub fn is_symmetric(&self) -> bool {
        !matches!(self, Pair::Mixture { kind: Mixture::Shifted, q, .. } if *q < 1.0)
    }

    /// The pair with P and Q exchanged.
    pub fn exchanged(&self) -> Pair {
        match self {
            Pair::Mixture { kind: Mixture::Shifted, q, shift } if *q < 1.0 => {
                Pair::Mixture { kind: Mixture::Unshifted, q: *q, shift: shift.clone() }
            }
            other => other.clone(),
        }
    }

    /// Approximate range of losses; P has at most the mass `cut` on either side of it.
    pub fn losses(&self, cut: f64) -> (f64, f64) {
        let (kind, q, s) = match self {
            Pair::Response { epsilon, .. } => return (-epsilon, *epsilon),
            Pair::Mixture { kind, q, shift } => (*kind, *q, shift.approximate),
        };
        let reach = upper_quantile(cut.clamp(1e-300, 0.4));
        let (mut low, mut high) = (reach, s + reach);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            let above = (1.0 - q) * upper_tail(middle) + q * upper_tail(middle - s);
            if above > cut { low = middle } else { high = middle }
        }
        let mixed = |a: f64| match a > 30.0 {
            true => a + (q + (1.0 - q) * (-a).exp()).ln(),
            false if q == 1.0 => a,
            false => (q * a.exp_m1()).ln_1p(),
        };
        let loss = |z: f64| mixed(s * z - 0.5 * s * s);
        match kind {
            Mixture::Shifted if q == 1.0 => (loss(s - reach), loss(s + reach)),
            Mixture::Shifted => (loss(-reach), loss(high)),
            Mixture::Unshifted => (-loss(reach), -loss(-reach)),
            Mixture::Opposed => (loss(-reach) - loss(reach), loss(high) - loss(-high)),
        }
    }
}

/// A mixture, evaluated at one precision.
pub struct Curve {
    kind: Mixture,
    fixed: Fixed,
    q: BigInt,
    shift: BigInt,
    kappa: BigInt,
}

impl Curve {
    pub fn new(kind: Mixture, q: f64, shift: &Shift, fixed: Fixed) -> Curve {
        let q = Ratio::of(q);
        let q = fixed.ratio(&q.n, &q.d);
        let shift = &shift.exact << (fixed.bits - SHIFT_BITS);
        let exponent: BigInt = fixed.mul(&shift, &shift) >> 1;
        let kappa = fixed.mul(&q, &fixed.exp(&-exponent));
        Curve { kind, fixed, q, shift, kappa }
    }

    /// H(x) = ∫ (dP − x dQ)₊.
    pub fn at(&self, x: &BigInt) -> BigInt {
        match self.kind {
            Mixture::Shifted => self.shifted(x),
            Mixture::Unshifted => self.unshifted(x),
            Mixture::Opposed => self.opposed(x),
        }
    }

    fn shifted(&self, x: &BigInt) -> BigInt {
        let (f, q, s) = (&self.fixed, &self.q, &self.shift);
        let excess = x - (f.one() - q);
        if excess <= BigInt::ZERO {
            return f.one() - x;
        }
        let z = f.div(&f.ln(&f.div(&excess, q)), s) + (s >> 1);
        f.mul(q, &f.upper_tail(&(&z - s))) - f.mul(&excess, &f.upper_tail(&z))
    }

    fn unshifted(&self, x: &BigInt) -> BigInt {
        let (f, q, s) = (&self.fixed, &self.q, &self.shift);
        let rest = f.one() - f.mul(x, &(f.one() - q));
        if rest <= BigInt::ZERO {
            return BigInt::ZERO;
        }
        let qx = f.mul(q, x);
        let z = f.div(&f.ln(&f.div(&rest, &qx)), s) + (s >> 1);
        f.mul(&rest, &f.upper_tail(&-&z)) - f.mul(&qx, &f.upper_tail(&(s - &z)))
    }

    fn opposed(&self, x: &BigInt) -> BigInt {
        let (f, q, s, kappa) = (&self.fixed, &self.q, &self.shift, &self.kappa);
        let moved = f.mul(&(f.one() - q), &(x - f.one()));
        let root = f.sqrt(&(f.mul(&moved, &moved) + f.mul(&f.mul(kappa, kappa), x) * 4));
        // The likelihood ratio is x at u = e^{sz}, a root of a quadratic equation.
        let u = match moved >= BigInt::ZERO {
            true => f.div(&(&moved + root), &(kappa * 2)),
            false => f.div(&(f.mul(kappa, x) * 2), &(root - &moved)),
        };
        let z = f.div(&f.ln(&u), s);
        let tail = |z: BigInt| f.upper_tail(&z);
        f.mul(q, &tail(&z - s))
            - f.mul(&moved, &tail(z.clone()))
            - f.mul(&f.mul(q, x), &tail(z + s))
    }
}

/// The ratio e^ε of randomized response and the probability 1/(e^ε + k − 1) of a wrong value.
pub fn response(epsilon: f64, categories: u64, fixed: Fixed) -> (BigInt, BigInt) {
    let exact = Ratio::of(epsilon);
    let ratio = fixed.exp(&fixed.ratio(&exact.n, &exact.d));
    let total = &ratio + (fixed.one() * (categories - 1));
    (ratio, fixed.div(&fixed.one(), &total))
}
