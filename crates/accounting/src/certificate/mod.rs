//! Certificates: an (ε, δ) that can be verified without this code.
//!
//! A certificate lists the events, the masses of a dominating pair for each of them as integers
//! over a power of two, and δ at ε. `checker/README.md` describes the mathematics and the format.
//! The program beside it recomputes every number with rational bounds instead of floating-point
//! arithmetic, and refuses the certificate if one differs.
//!
//! Errors here are harmless, because the checker refuses a wrong number. The mesh and the range
//! therefore come from the accountant's sketches, and the masses from plain high-precision
//! arithmetic.

mod fixed;
mod masses;
mod pair;

use crate::accountant::{check_delta, check_epsilon};
use crate::event::{Event, limits};
use crate::{Accountant, Adjacency, Composition, Error, Result, delta, epsilon, pld};
use masses::{Grid, Masses};
use num_bigint::{BigInt, BigUint};
use pair::{Pair, pairs_of};
use serde::Serialize;

/// The format's name, with its version.
pub const FORMAT: &str = "undertone-certificate-1";

/// A certificate, as it is written to a file.
#[derive(Debug, Clone, Serialize)]
pub struct Certificate {
    /// [`FORMAT`].
    pub format: &'static str,
    /// Neighboring relation between data sets.
    pub adjacency: Adjacency,
    /// Everything that was released.
    pub events: Vec<CertifiedEvent>,
    /// The certified ε, as a decimal number.
    pub epsilon: String,
    /// The certified δ, in units of 2^−scale.
    pub delta: String,
    /// The grid's likelihood ratios are powers of 1 + 1/mesh.
    pub mesh: u64,
    /// Masses are integers in units of 2^−scale.
    pub scale: u64,
    /// The mass that each composition may move to an infinite loss, in the same unit.
    pub tail: u64,
    /// One entry if both directions are equal, otherwise one entry each for presence and absence.
    pub directions: Vec<DirectionMasses>,
}

/// An event and the number of times it happened.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CertifiedEvent {
    #[serde(flatten)]
    event: Event,
    count: u64,
}

/// The dominating pairs for the case that the unit is present, or absent.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionMasses {
    unit: &'static str,
    delta: String,
    pairs: Vec<PairMasses>,
}

/// The masses of one dominating pair.
#[derive(Debug, Clone, Serialize)]
struct PairMasses {
    infinite: String,
    masses: Vec<(i64, String)>,
}

/// Which half of the certified (ε, δ) is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The smallest ε at this δ.
    Delta(f64),
    /// The smallest δ at this ε.
    Epsilon(f64),
}

/// A certificate with its ε and δ as doubles, rounded up.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: Certificate,
    /// Its ε.
    pub epsilon: f64,
    /// Its δ.
    pub delta: f64,
    /// The accountant's upper bound on the half that was not given.
    pub accountant: f64,
}

/// How far the certified value may lie above the accountant's upper bound before a finer mesh is
/// tried, as a share of ε or of δ.
const EPSILON_EXCESS: f64 = 0.005;
const DELTA_EXCESS: f64 = 0.03;
/// Share of δ that may be truncated with the tails.
const CUT_SHARE: f64 = 1e-5;
/// Maximum number of masses of all pairs of one direction. Checking takes about 2 ms per mass.
const MOST_MASSES: f64 = 30_000.0;
const REFINEMENTS: usize = 4;

/// Certifies `composition`: the smallest ε at a δ, or the smallest δ at an ε, to within about half
/// a percent.
pub fn certify(composition: &Composition, target: Target) -> Result<Certified> {
    composition.validate()?;
    let pairs = pairs_of(composition)?;
    if pairs.is_empty() {
        return Err(Error::NotCertifiable { why: "nothing was released" });
    }
    let (near_epsilon, near_delta, accountant, allowed) = match target {
        Target::Delta(given) => {
            check_delta(given)?;
            let upper = epsilon(composition, given, Accountant::Auto)?.epsilon.upper;
            (upper, given, upper, EPSILON_EXCESS)
        }
        Target::Epsilon(given) => {
            check_epsilon(given)?;
            let upper = delta(composition, given, Accountant::Auto)?.delta.upper;
            (given, upper.max(LEAST_DELTA), upper, DELTA_EXCESS)
        }
    };
    if near_epsilon > limits::EPSILON {
        return Err(Error::LossTooLarge { limit: limits::EPSILON });
    }
    let tolerance = 0.8 * EPSILON_EXCESS * near_epsilon.max(LEAST_EPSILON);
    let mut step = pld::mesh(composition, near_delta, tolerance)?.min(tolerance);
    let finest = finest_step(&pairs, near_delta);
    let mut best: Option<Certified> = None;
    for _ in 0..REFINEMENTS {
        let made = Draft::new(&pairs, near_delta, step.max(finest)).certified(
            composition,
            target,
            near_epsilon,
            accountant,
        )?;
        let excess = made.excess(target);
        let better = best.as_ref().is_none_or(|best| excess < best.excess(target));
        best = if better { Some(made) } else { best };
        if excess <= 1.2 * allowed || step <= finest {
            break;
        }
        step *= (allowed / excess).sqrt().clamp(0.25, 0.8);
    }
    best.ok_or(Error::NotCertifiable { why: "no mesh is fine enough" })
}

/// δ and ε are not resolved below these values.
const LEAST_DELTA: f64 = 1e-20;
const LEAST_EPSILON: f64 = 1e-3;

/// The finest mesh at which the pairs stay within the allowed number of masses.
fn finest_step(pairs: &[(Pair, u64)], delta: f64) -> f64 {
    let cut = cut_of(pairs, delta);
    let range = |pair: &Pair| match pair {
        Pair::Response { .. } => 0.0,
        mixture => mixture.losses(cut).1 - mixture.losses(cut).0,
    };
    pairs.iter().map(|(pair, _)| range(pair)).sum::<f64>() / MOST_MASSES
}

fn releases(pairs: &[(Pair, u64)]) -> u64 {
    pairs.iter().map(|(_, count)| count).sum()
}

/// The probability that may be truncated at either end of one release.
fn cut_of(pairs: &[(Pair, u64)], delta: f64) -> f64 {
    CUT_SHARE * delta / releases(pairs) as f64
}

impl Certified {
    fn excess(&self, target: Target) -> f64 {
        let (value, least) = match target {
            Target::Delta(_) => (self.epsilon, LEAST_EPSILON),
            Target::Epsilon(_) => (self.delta, LEAST_DELTA),
        };
        (value - self.accountant) / self.accountant.max(least)
    }
}

/// A certificate before its ε and δ are known.
struct Draft {
    grid: Grid,
    tail: u64,
    /// Name, masses of each pair, and the composed masses.
    directions: Vec<(&'static str, Vec<Masses>, Masses)>,
}

impl Draft {
    fn new(pairs: &[(Pair, u64)], delta: f64, step: f64) -> Draft {
        let count = releases(pairs);
        let mesh = (1.0 / step).round().clamp(2.0, 1e8) as u64;
        // Every composition rounds up by one unit at each point; all these units together stay
        // below a small share of δ.
        let unit = CUT_SHARE * delta / (count as f64 * (1_u64 << 20) as f64);
        let scale = (-unit.log2() / 8.0).ceil() as u64 * 8;
        let grid = Grid { mesh, scale: scale.clamp(64, 248) };
        let tail = (CUT_SHARE * delta * 2_f64.powi(grid.scale as i32)) as u64;
        let cut = cut_of(pairs, delta);
        let compose = |unit: &'static str, pairs: Vec<Pair>, counts: &[u64]| {
            let masses: Vec<Masses> = pairs.iter().map(|pair| grid.masses(pair, cut)).collect();
            let share = |done: u64| BigUint::from(tail) * done / count;
            let composed = masses
                .iter()
                .zip(counts)
                .map(|(once, count)| grid.repeated(once, *count, share))
                .reduce(|a, b| grid.composed(&a, &b, &BigUint::from(tail)));
            composed.map(|composed| (unit, masses, composed))
        };
        let counts: Vec<u64> = pairs.iter().map(|(_, count)| *count).collect();
        let present = pairs.iter().map(|(pair, _)| pair.clone()).collect();
        let mut directions: Vec<_> = compose("present", present, &counts).into_iter().collect();
        if !pairs.iter().all(|(pair, _)| pair.is_symmetric()) {
            let absent = pairs.iter().map(|(pair, _)| pair.exchanged()).collect();
            directions.extend(compose("absent", absent, &counts));
        }
        Draft { grid, tail, directions }
    }

    fn certified(
        self,
        composition: &Composition,
        target: Target,
        near: f64,
        accountant: f64,
    ) -> Result<Certified> {
        let epsilon = match target {
            Target::Epsilon(given) => Decimal::of(given),
            Target::Delta(given) => self.least_epsilon(given, near)?,
        };
        let deltas = self.deltas(&epsilon);
        let delta = deltas.iter().max().cloned().unwrap_or_default();
        let directions = self.directions.iter().zip(&deltas);
        let certificate = Certificate {
            format: FORMAT,
            adjacency: composition.adjacency,
            events: composition
                .parts()
                .iter()
                .map(|part| CertifiedEvent { event: part.event, count: part.count })
                .collect(),
            epsilon: epsilon.text(),
            delta: delta.to_string(),
            mesh: self.grid.mesh,
            scale: self.grid.scale,
            tail: self.tail,
            directions: directions
                .map(|((unit, pairs, _), delta)| DirectionMasses {
                    unit,
                    delta: delta.to_string(),
                    pairs: pairs.iter().map(PairMasses::of).collect(),
                })
                .collect(),
        };
        let delta = approximate(&delta) * 2_f64.powi(-(self.grid.scale as i32)) * (1.0 + 1e-15);
        Ok(Certified { certificate, epsilon: epsilon.value(), delta, accountant })
    }

    fn deltas(&self, epsilon: &Decimal) -> Vec<BigUint> {
        let of = |(_, _, masses): &(_, _, Masses)| {
            self.grid.delta(masses, (&epsilon.digits, &epsilon.power()))
        };
        self.directions.iter().map(of).collect()
    }

    /// The least ε, to a few digits, at which δ is at most `delta`.
    fn least_epsilon(&self, delta: f64, near: f64) -> Result<Decimal> {
        let unit = 2_f64.powi(-(self.grid.scale as i32));
        let doubles: Vec<(Vec<f64>, i64, f64)> = self
            .directions
            .iter()
            .map(|(_, _, masses)| {
                let list = masses.mass.iter().map(|m| approximate(m) * unit).collect();
                (list, masses.first, approximate(&masses.infinite) * unit)
            })
            .collect();
        let most = |epsilon: f64| {
            let of = |(list, first, infinite): &(Vec<f64>, i64, f64)| {
                self.grid.approximate_delta(list, *first, *infinite, epsilon)
            };
            doubles.iter().map(of).fold(0.0, f64::max)
        };
        let (mut low, mut high) = (0.0, 2.0 * near + 1.0);
        while most(high) > delta {
            high *= 2.0;
            if high > 4.0 * limits::EPSILON {
                return Err(Error::NotCertifiable { why: "no mesh is fine enough" });
            }
        }
        while high - low > 1e-9 * high {
            let middle = 0.5 * (low + high);
            if most(middle) > delta { low = middle } else { high = middle }
        }
        let decimals = (5.0 - high.max(LEAST_EPSILON).log10()).ceil().clamp(0.0, 12.0) as u32;
        let digits = (high * 10_f64.powi(decimals as i32)).ceil().max(1.0) as u64;
        // The exact δ decides; the double differs by at most a few units.
        let limit = largest_below(delta, self.grid.scale);
        for digits in digits..digits + 100 {
            let epsilon = Decimal { digits: digits.into(), decimals };
            if self.deltas(&epsilon).iter().all(|of_direction| *of_direction <= limit) {
                return Ok(epsilon);
            }
        }
        Err(Error::NotCertifiable { why: "no mesh is fine enough" })
    }
}

impl PairMasses {
    fn of(masses: &Masses) -> PairMasses {
        let list = (masses.first..).zip(&masses.mass);
        PairMasses {
            infinite: masses.infinite.to_string(),
            masses: list
                .filter(|(_, mass)| **mass != BigUint::ZERO)
                .map(|(k, mass)| (k, mass.to_string()))
                .collect(),
        }
    }
}

/// A decimal number: digits/10^decimals.
struct Decimal {
    digits: BigInt,
    decimals: u32,
}

impl Decimal {
    fn of(x: f64) -> Decimal {
        let text = format!("{x}");
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let digits = format!("{whole}{part}").parse().unwrap_or_default();
        Decimal { digits, decimals: part.len() as u32 }
    }

    fn power(&self) -> BigInt {
        BigInt::from(10).pow(self.decimals)
    }

    fn text(&self) -> String {
        let digits = format!("{:0>1$}", self.digits.to_string(), self.decimals as usize + 1);
        let (whole, part) = digits.split_at(digits.len() - self.decimals as usize);
        if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
    }

    fn value(&self) -> f64 {
        self.text().parse().unwrap_or(f64::INFINITY)
    }
}

fn approximate(n: &BigUint) -> f64 {
    let dropped = n.bits().saturating_sub(64);
    u64::try_from(n >> dropped).unwrap_or(u64::MAX) as f64 * 2_f64.powi(dropped as i32)
}

/// The largest integer n with n/2^scale ≤ x, for 0 < x < 1.
fn largest_below(x: f64, scale: u64) -> BigUint {
    // A normal double is m·2^−down with a whole m of 53 bits; a power of two changes no digit.
    let down = 52 - x.log2().floor() as i32;
    let m = BigUint::from((x * 2_f64.powi(down)) as u64);
    match scale.checked_sub(down as u64) {
        Some(up) => m << up,
        None => m >> (down as u64 - scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_delta_loses_no_digit() {
        for (x, scale, wanted) in [(0.5, 64, 1_u128 << 63), (0.75, 4, 12), (2_f64.powi(-60), 8, 0)]
        {
            assert_eq!(largest_below(x, scale), wanted.into());
        }
        for x in [1e-5, 1e-18, 0.3, 0.499_999_999_999_999_9] {
            let approximation = approximate(&largest_below(x, 160)) * 2_f64.powi(-160);
            assert!((approximation / x - 1.0).abs() < 1e-15, "{x}: {approximation}");
        }
    }

    #[test]
    fn decimals_are_written_as_they_are() {
        for (x, text) in [(2.0, "2"), (0.05, "0.05"), (12.5, "12.5")] {
            assert_eq!(Decimal::of(x).text(), text);
            assert_eq!(Decimal::of(x).value(), x);
        }
        assert_eq!(Decimal { digits: 7.into(), decimals: 3 }.text(), "0.007");
    }
}
