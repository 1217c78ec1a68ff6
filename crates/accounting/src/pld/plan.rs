//! Chooses the tilt, the mesh and the window of the certified computation from a sketch.

use super::sketch::{Sketch, total_cumulant};
use crate::event::limits;
use crate::{Error, Result};
use rayon::prelude::*;

/// Tilt, mesh and window of the certified computation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Exponential tilt θ: masses are weighted by e^{θ·loss} before they are transformed.
    pub tilt: f64,
    /// Distance between grid losses.
    pub mesh: f64,
    /// Rate λ, added to the tilt, of the Chernoff bound for the window's upper end.
    pub upper_rate: f64,
    /// The same rate for the lower end.
    pub lower_rate: f64,
    /// ln of the tilted probability that may lie outside the window on either side.
    pub log_outside: f64,
    /// Approximate result.
    pub epsilon_guess: f64,
    /// Approximate width of the window.
    pub width: f64,
    /// Approximate lower end of the window.
    pub lowest: f64,
    /// Losses above this count as any larger loss would.
    pub cap: f64,
}

/// Maximum number of grid points: memory and time grow with points × parts.
pub fn most_points(parts: usize) -> f64 {
    (POINTS_TIMES_PARTS / parts as f64).min(MOST_POINTS)
}
const POINTS_TIMES_PARTS: f64 = 6.0e7;
const MOST_POINTS: f64 = 2_400_000.0;

/// A loss this far above ε loses e^−40 of its mass in 1 − e^{ε − loss}.
const FAR_ABOVE: f64 = 40.0;

/// Tilted probability outside the window, as a share of δ.
const OUTSIDE_SHARE: f64 = 1e-9;

impl Plan {
    /// A plan that finds ε at `delta` with an error of about `tolerance(ε)`.
    pub fn for_delta(
        sketches: &[Sketch],
        delta: f64,
        tolerance: impl Fn(f64) -> f64,
    ) -> Result<Plan> {
        let log_delta = delta.ln();
        let chernoff = |tilt: f64| {
            let k = total_cumulant(sketches, tilt).value;
            (k - log_delta - tilt.ln_1p()) / tilt + (tilt / (1.0 + tilt)).ln()
        };
        let tilt = golden_section(|x| chernoff(x.exp()), 1e-7_f64.ln(), 1e9_f64.ln()).exp();
        let guess = chernoff(tilt).max(0.0);
        let mesh = mesh_for(sketches, tilt, tolerance(guess));
        Self::at(sketches, tilt.min(STEEPEST / mesh), guess, log_delta, mesh)
    }

    /// A plan that is most accurate near `epsilon`: the tilt is the saddle point there. An unknown
    /// δ is guessed from the saddle point.
    pub fn near_epsilon(
        sketches: &[Sketch],
        epsilon: f64,
        delta: Option<f64>,
        tolerance: impl Fn(f64) -> f64,
    ) -> Result<Plan> {
        let (tilt, exponent) = saddle(sketches, epsilon, LEAST_LOG);
        let log_delta = delta.map_or(exponent, f64::ln).clamp(LEAST_LOG, 0.0);
        let mesh = mesh_for(sketches, tilt, tolerance(epsilon));
        Self::at(sketches, tilt.min(STEEPEST / mesh), epsilon, log_delta, mesh)
    }

    /// A plan that resolves everything above e^`log_floor` near `epsilon`, however fine the mesh
    /// must be.
    pub fn reaching(
        sketches: &[Sketch],
        epsilon: f64,
        log_floor: f64,
        log_delta: f64,
        tolerance: f64,
    ) -> Result<Plan> {
        let (tilt, _) = saddle(sketches, epsilon, log_floor);
        let mesh = mesh_for(sketches, tilt, tolerance).min(STEEPEST / tilt);
        Self::at(sketches, tilt, epsilon, log_delta, mesh)
    }

    /// Plans with `make` from the sketches. If large losses make the window needlessly wide, plans
    /// from sketches without them: a loss far above ε adds its whole mass to δ(ε), whatever its
    /// size.
    pub fn capped(sketches: &[Sketch], make: impl Fn(&[Sketch]) -> Result<Plan>) -> Result<Plan> {
        let plan = make(sketches)?;
        let cap = plan.epsilon_guess + FAR_ABOVE - plan.lowest.min(0.0);
        let highest = sketches.iter().filter(|s| s.on_grid).filter_map(|s| s.loss.last()).copied();
        if highest.fold(0.0, f64::max) <= cap {
            return Ok(plan);
        }
        let lower: Vec<Sketch> = sketches.iter().map(|s| s.capped(cap)).collect();
        Ok(Plan { cap, ..make(&lower)? })
    }

    /// An upper bound on δ(ε), up to the sketch's own error.
    pub fn chernoff_delta(sketches: &[Sketch], epsilon: f64) -> f64 {
        let exponent = |tilt: f64| {
            let k = total_cumulant(sketches, tilt).value;
            k - tilt * epsilon + tilt * tilt.ln() - (1.0 + tilt) * tilt.ln_1p()
        };
        let best = golden_section(|x| exponent(x.exp()), 1e-7_f64.ln(), 1e9_f64.ln()).exp();
        exponent(best).min(0.0).exp()
    }

    /// A plan with the given tilt and mesh.
    pub fn at(
        sketches: &[Sketch],
        tilt: f64,
        epsilon_guess: f64,
        log_delta: f64,
        mesh: f64,
    ) -> Result<Plan> {
        if !epsilon_guess.is_finite() || epsilon_guess > 2.0 * limits::EPSILON {
            return Err(Error::LossTooLarge { limit: limits::EPSILON });
        }
        let here = total_cumulant(sketches, tilt);
        let log_share = (log_delta - here.value + tilt * epsilon_guess).min(0.0);
        let log_outside = OUTSIDE_SHARE.ln() + log_share;
        // Chernoff's bound at rate λ puts the window's end at (K(θ ± λ) − K(θ) − log_outside)/λ;
        // the best λ gives the nearest end.
        let reach = |signed_rate: f64| {
            let shifted = total_cumulant(sketches, tilt + signed_rate);
            (shifted.value - here.value - log_outside) / signed_rate.abs()
        };
        let (slowest, fastest) = ((1e-3 * tilt.max(1e-3)).ln().min(-10.0), (STEEPEST / mesh).ln());
        let best_rate = |sign: f64| {
            // Just beyond the best rate the moments of a heavy tail may explode, and those of the
            // discretized pair slightly earlier than the sketch's. A smaller rate costs almost
            // nothing.
            0.9 * golden_section(|log_rate| reach(sign * log_rate.exp()), slowest, fastest).exp()
        };
        let (upper_rate, lower_rate) = (best_rate(1.0), best_rate(-1.0));
        let lowest = -reach(-lower_rate);
        let width = reach(upper_rate) - lowest;
        let cap = f64::INFINITY;
        Ok(Plan {
            tilt,
            mesh,
            upper_rate,
            lower_rate,
            log_outside,
            epsilon_guess,
            width,
            lowest,
            cap,
        })
    }

    /// Makes the mesh coarser, if needed, so that the window fits into `most` points.
    pub fn fitted(mut self, most: f64) -> Plan {
        let finest = 1.25 * self.width / most;
        if self.mesh < finest {
            self.mesh = finest;
        }
        let steepest = STEEPEST / self.mesh;
        self.tilt = self.tilt.min(steepest);
        self.upper_rate = self.upper_rate.min(steepest);
        self.lower_rate = self.lower_rate.min(steepest);
        self
    }

    /// Approximate number of points of the window.
    pub fn points(&self) -> f64 {
        self.width / self.mesh
    }

    /// The same plan with another mesh.
    pub fn with_mesh(&self, mesh: f64) -> Plan {
        Plan { mesh, ..self.clone() }
    }
}

/// The tilt that minimizes the exponent K(θ) − θε of δ, and the exponent there.
///
/// The exponent is convex. Beyond the largest possible loss it has no minimum; then the result is
/// the smallest tilt that reaches `log_floor`.
fn saddle(sketches: &[Sketch], epsilon: f64, log_floor: f64) -> (f64, f64) {
    let exponent = |tilt: f64| {
        total_cumulant(sketches, tilt).value - tilt * epsilon - (tilt * (1.0 + tilt)).ln()
    };
    let bounded = |log_tilt: f64| exponent(log_tilt.exp()).max(log_floor) + 1e-6 * log_tilt;
    let tilt = golden_section(bounded, 1e-7_f64.ln(), 1e9_f64.ln()).exp();
    (tilt, exponent(tilt))
}

/// The logarithm of a δ that is negligible.
const LEAST_LOG: f64 = -700.0;

/// Tilts steeper than a few per grid cell gain nothing and would overflow.
const STEEPEST: f64 = 4.0;

/// The mesh that keeps the discretization error of ε within the tolerance. Splitting adds about
/// min(h²/6, h·|loss|) of variance per event and merging removes half as much; a change V of the
/// variance moves ε by about (θ + 1)V/2.
fn mesh_for(sketches: &[Sketch], tilt: f64, tolerance: f64) -> f64 {
    // Cumulative tilted mass and mass·|loss| over all parts in order of |loss| would be exact; a
    // histogram over powers of two suffices.
    const BINS: usize = 120;
    let bin = |l: f64| (l.abs().log2() + 100.0).clamp(0.0, (BINS - 1) as f64) as usize;
    let histogram = sketches
        .par_iter()
        .with_min_len(16)
        .filter(|s| s.on_grid)
        .map(|s| {
            let mut mass = [0.0; BINS];
            let center = s.center(tolerance, 0.0);
            for (&l, p) in s.loss.iter().zip(s.tilted(tilt)) {
                mass[bin(l - center)] += s.count * p;
            }
            mass
        })
        .reduce(
            || [0.0; BINS],
            |mut a, b| {
                a.iter_mut().zip(b).for_each(|(x, y)| *x += y);
                a
            },
        );
    let error = |mesh: f64| -> f64 {
        let variance: f64 = histogram
            .iter()
            .enumerate()
            .map(|(i, mass)| {
                let size = 1.5 * (i as f64 - 100.0).exp2();
                mass * (0.25 * mesh * mesh).min(mesh * size)
            })
            .sum();
        0.5 * (tilt + 1.0) * variance
    };
    let (mut low, mut high) = (1e-12_f64, tolerance.max(0.05));
    if error(high) <= tolerance {
        return high;
    }
    while high / low > 1.01 {
        let middle = (low * high).sqrt();
        if error(middle) > tolerance { high = middle } else { low = middle }
    }
    low
}

/// The minimizer of a unimodal function.
fn golden_section(f: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_895;
    let finite = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
    let mut a = high - RATIO * (high - low);
    let mut b = low + RATIO * (high - low);
    let (mut fa, mut fb) = (finite(f(a)), finite(f(b)));
    while high - low > 0.02 {
        // If the function overflows on both sides, the minimum lies at the smaller tilt.
        if fa < fb || (fa.is_infinite() && fb.is_infinite()) {
            high = b;
            (b, fb) = (a, fa);
            a = high - RATIO * (high - low);
            fa = finite(f(a));
        } else {
            low = a;
            (a, fa) = (b, fb);
            b = low + RATIO * (high - low);
            fb = finite(f(b));
        }
    }
    if fa < fb { a } else { b }
}
