//! Composition by the fast Fourier transform (FFT), under an exponential tilt and with every error
//! bounded.
//!
//! The masses of each part are weighted by e^{θ·loss} and normalized. A convolution of tilted
//! masses is the tilted convolution, so nothing is lost, and the losses that matter now have masses
//! that the transform computes accurately: absolute rounding errors of 10⁻¹⁶ do no harm to a δ of
//! 10⁻¹⁸ (PROOFS.md, section 5).

use super::cells::Grid;
use super::masses::Masses;
use super::plan::Plan;
use super::tail::Tail;
use crate::event::limits;
use crate::normal::UNIT;
use crate::sum::{Sum, compensated_sum};
use crate::{Error, Result};
use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex64};

/// Error bound of a transform of n points, for input of unit size. A value of the transform is a
/// sum of the inputs, each multiplied along a path of about log₂(n) butterflies with one or two
/// roundings each. Its error is at most a few units · log₂(n) · Σ|input|, and the same in the
/// Euclidean norm, relative to the norm of the input. The factor allows for the radices 3, 5 and 7;
/// a test shows that real transforms stay far below it.
pub fn transform_error(n: usize) -> f64 {
    16.0 * (n as f64).log2().max(1.0) * UNIT
}

/// Which of the two bounds is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Side {
    Lower,
    Upper,
}

/// One part's tilted masses, normalized.
pub struct Tilted {
    pub grid: Grid,
    pub index: Vec<i64>,
    pub weight: Vec<f64>,
    pub count: u64,
    pub log_norm: f64,
    /// Relative rounding error of the normalizer: exponents are rounded in proportion to their
    /// size.
    error: f64,
    /// The same error, for the weights away from index 0 only.
    error_elsewhere: f64,
}

impl Tilted {
    pub fn new(masses: &Masses, count: u64, plan: &Plan) -> Tilted {
        let exponents: Vec<f64> =
            masses.index.iter().map(|&i| plan.tilt * masses.grid.loss(i)).collect();
        let top = exponents
            .iter()
            .zip(&masses.mass)
            .filter(|(_, m)| **m > 0.0)
            .map(|(e, m)| e + m.ln())
            .fold(f64::NEG_INFINITY, f64::max);
        let top = if top.is_finite() { top } else { 0.0 };
        let mut weight: Vec<f64> = exponents
            .iter()
            .zip(&masses.mass)
            .map(|(e, &m)| {
                let e = e - top;
                if m == 0.0 {
                    0.0
                } else if e < 600.0 {
                    m * e.exp()
                } else {
                    (e + m.ln()).exp()
                }
            })
            .collect();
        let norm = compensated_sum(&weight);
        let norm = if norm > 0.0 { norm } else { 1.0 };
        weight.iter_mut().for_each(|w| *w /= norm);
        let (mut error, mut error_elsewhere, mut elsewhere) = (0.0, 0.0, 0.0);
        for ((&i, w), e) in masses.index.iter().zip(&weight).zip(&exponents) {
            let rounding = UNIT * w * (16.0 + 4.0 * (e.abs() + top.abs()));
            error += rounding;
            error_elsewhere += if i == 0 { 0.0 } else { 2.0 * rounding };
            elsewhere += if i == 0 { 0.0 } else { *w };
        }
        // The normalizer's error scales the masses elsewhere, but not the one at index 0, which is
        // defined as the remainder.
        error_elsewhere += 2.0 * error * elsewhere;
        let (grid, index, log_norm) = (masses.grid, masses.index.clone(), top + norm.ln());
        Tilted { grid, index, weight, count, log_norm, error, error_elsewhere }
    }

    /// Whether all numbers are finite. A NaN could later be mistaken for zero, and zero is too
    /// small.
    pub fn is_finite(&self) -> bool {
        self.log_norm.is_finite()
            && self.error.is_finite()
            && self.weight.iter().all(|w| w.is_finite())
    }

    /// φ − 1 at all frequencies, and a bound on its error.
    ///
    /// φ = 1 − (mass elsewhere) + (transform of the mass elsewhere): exact even if φ is almost 1.
    /// The weight at index 0 is *defined* as 1 minus the others, which the normalizer guarantees.
    pub fn transformed(
        &self,
        forward: &dyn RealToComplex<f64>,
        buffer: &mut [f64],
        out: &mut [Complex64],
    ) -> f64 {
        let size = buffer.len();
        buffer.fill(0.0);
        let mut elsewhere = Sum::default();
        for (&i, &w) in self.index.iter().zip(&self.weight) {
            if i != 0 {
                buffer[i.rem_euclid(size as i64) as usize] += w;
                elsewhere.add(w);
            }
        }
        // The second term is the rounding error of the weights.
        let error = transform_error(size) * sum_or_norm(buffer.iter().copied(), size)
            + self.error_elsewhere;
        forward.process(buffer, out).expect("the planner made these buffers");
        let elsewhere = elsewhere.total();
        out.iter_mut().for_each(|z| z.re -= elsewhere);
        error + 4.0 * UNIT * elsewhere
    }

    /// The weight at index 0: 1 minus the others.
    fn at_zero(&self) -> f64 {
        let others = self.index.iter().zip(&self.weight).filter(|(i, _)| **i != 0);
        (1.0 - others.map(|(_, &w)| w).collect::<Sum>().total()).max(0.0)
    }

    /// ln Σ weight·e^{rate·loss}, rounded up, or infinite if any exponent is infinite.
    pub fn log_moment(&self, rate: f64) -> f64 {
        let exponents = || self.index.iter().map(|&i| rate * self.grid.loss(i));
        // `max` below would drop a NaN, and the moment would be too small.
        if exponents().any(|e| !e.is_finite()) {
            return f64::INFINITY;
        }
        let top = exponents()
            .zip(&self.weight)
            .filter(|(_, w)| **w > 0.0)
            .map(|(e, _)| e)
            .fold(f64::NEG_INFINITY, f64::max);
        // Weights at the largest exponent may be tiny: a second pass finds the exponent that
        // matters.
        let top = exponents()
            .zip(&self.weight)
            .filter(|(_, w)| **w > 0.0)
            .map(|(e, w)| if e > top - 700.0 { e + w.ln() } else { f64::NEG_INFINITY })
            .fold(f64::NEG_INFINITY, f64::max);
        if !top.is_finite() {
            return 0.0;
        }
        // Each exponent is rounded in proportion to its terms, which may be much larger than their
        // sum.
        let (mut sum, mut error) = (0.0, 0.0);
        for (e, w) in exponents().zip(&self.weight).filter(|(_, w)| **w > 0.0) {
            let term = (e - top + w.ln()).exp();
            sum += term;
            error += UNIT * term * (16.0 + 4.0 * (e.abs() + top.abs() + w.ln().abs()));
        }
        let rounding = UNIT * (self.weight.len() as f64 + 16.0 + 4.0 * top.abs());
        top + sum.ln() + 2.0 * error / sum + rounding
    }
}

/// Composes the parts and returns the tail of the total loss.
pub fn compose(parts: &[(Masses, u64)], plan: &Plan, side: Side, most: f64) -> Result<Tail> {
    let tilted: Vec<Tilted> = parts.iter().map(|(m, n)| Tilted::new(m, *n, plan)).collect();
    if !tilted.iter().all(Tilted::is_finite) {
        return Err(Error::LossTooLarge { limit: limits::EPSILON });
    }
    let window = Window::certified(&tilted, plan)?;
    let size = window.transform_size(most, parts.len())?;
    let (spectrum, spectrum_error) = product_of_powers(&tilted, size);
    // The mass of all parts at their index 0 is known directly and does not pass through the
    // transform.
    let at_zero: f64 = tilted.iter().map(|t| t.count as f64 * t.at_zero().ln()).sum::<f64>().exp();
    let (weights, point_error) = unrolled(spectrum, spectrum_error, at_zero, &window, size);
    let (log_norm, log_norm_error) = normalizer(&tilted);
    let infinite = infinite_mass(parts);
    Ok(Tail::new(weights, plan, side, log_norm, log_norm_error, point_error, &window, infinite))
}

/// The mass of all outcomes in which some part has an infinite loss, rounded up: Π(f + i)^k − Πf^k
/// for parts with mass i there and f elsewhere.
pub fn infinite_mass(parts: &[(Masses, u64)]) -> f64 {
    let (mut log_finite, mut log_more) = (0.0, 0.0);
    for (masses, count) in parts {
        let finite = compensated_sum(&masses.mass);
        log_finite += *count as f64 * (finite.ln() + 8.0 * UNIT);
        log_more += *count as f64 * (masses.infinite / finite).ln_1p();
    }
    log_finite.exp() * log_more.exp_m1() * (1.0 + 1e-9)
}

/// The weights of the window from their transform, and a bound on the error of each.
pub fn unrolled(
    mut spectrum: Vec<Complex64>,
    spectrum_error: f64,
    at_zero: f64,
    window: &Window,
    size: usize,
) -> (Vec<f64>, f64) {
    let rounding: f64 = spectrum.iter().map(|z| z.norm()).sum::<f64>() * 8.0 * UNIT;
    spectrum.iter_mut().for_each(|z| z.re -= at_zero);
    // The transform of a real vector is real at both ends: remove rounding errors there.
    let last = spectrum.len() - 1;
    spectrum[0].im = 0.0;
    spectrum[last].im = 0.0;
    let size_of_input = sum_or_norm(spectrum.iter().map(|z| z.norm()), size);
    let inverse = RealFftPlanner::<f64>::new().plan_fft_inverse(size);
    let mut circular = inverse.make_output_vec();
    inverse.process(&mut spectrum, &mut circular).expect("the planner made these buffers");
    let scale = 1.0 / size as f64;
    let point_error =
        scale * (spectrum_error + 2.0 * rounding + 2.0 * transform_error(size) * size_of_input);
    circular.iter_mut().for_each(|w| *w *= scale);
    circular[0] += at_zero;
    // Position j of the window holds the residue (first + j) mod size.
    let first = window.first.rem_euclid(size as i64) as usize;
    circular.rotate_left(first);
    (circular, point_error)
}

/// ln of the product of all parts' normalizers, and a bound on its error.
pub fn normalizer(tilted: &[Tilted]) -> (f64, f64) {
    let log_norm: f64 = tilted.iter().map(|t| t.count as f64 * t.log_norm).sum();
    let error = |t: &Tilted| t.count as f64 * (t.error + 4.0 * UNIT * t.log_norm.abs());
    (log_norm, tilted.iter().map(error).sum::<f64>() + 8.0 * UNIT * log_norm.abs())
}

/// If the window is wider than planned by this factor, slower rates are tried, up to
/// `MOST_HALVINGS`.
const ROOM: f64 = 1.25;
const MOST_HALVINGS: i32 = 10;

/// The computed range of total losses, and bounds on the tilted mass outside it.
pub struct Window {
    /// The loss at index 0: the sum of the parts' offsets.
    pub offset: f64,
    /// The sum of the offsets' absolute values, which bounds the rounding error of `offset`.
    pub offset_size: f64,
    pub first: i64,
    pub last: i64,
    pub outside_above: f64,
    pub outside_below: f64,
}

impl Window {
    /// Chernoff's bound P(total ≥ b) ≤ E[e^{λ·total}] e^{−λb}, solved for the b that leaves the
    /// planned probability outside.
    fn certified(tilted: &[Tilted], plan: &Plan) -> Result<Window> {
        let moment =
            |rate: f64| -> f64 { tilted.iter().map(|t| t.count as f64 * t.log_moment(rate)).sum() };
        let end = |rate: f64| (moment(rate) - plan.log_outside) / rate;
        let (mut high, mut low) = (end(plan.upper_rate), end(-plan.lower_rate));
        // Any rate is valid. The planned rates suit the true pairs; mass that was moved up to a far
        // edge may need slower ones.
        for halvings in 1..=MOST_HALVINGS {
            if high - low <= ROOM * plan.width {
                break;
            }
            let slower = 0.5_f64.powi(halvings);
            high = high.min(end(slower * plan.upper_rate));
            low = low.max(end(-slower * plan.lower_rate));
        }
        // `max` and `min` below would drop a NaN, and the window would be too short.
        if high.is_nan() || low.is_nan() {
            return Err(Error::LossTooLarge { limit: limits::EPSILON });
        }
        // The result must lie inside, with one cell on either side of it.
        let offset: f64 = tilted.iter().map(|t| t.count as f64 * t.grid.offset).sum();
        let offset_size = tilted.iter().map(|t| t.count as f64 * t.grid.offset.abs()).sum();
        let last = ((high.max(plan.epsilon_guess) - offset) / plan.mesh).ceil() + 2.0;
        let first = ((low.min(plan.epsilon_guess) - offset) / plan.mesh).floor() - 2.0;
        // The supports themselves also bound the window.
        let reach = |pick: fn(&Tilted) -> i64| -> f64 {
            tilted.iter().map(|t| t.count as f64 * pick(t) as f64).sum()
        };
        let top = reach(|t| t.index.last().copied().unwrap_or(0));
        let bottom = reach(|t| t.index.first().copied().unwrap_or(0));
        let (last, outside_above) =
            if top <= last { (top, 0.0) } else { (last, plan.log_outside.exp()) };
        let (first, outside_below) =
            if bottom >= first { (bottom, 0.0) } else { (first, plan.log_outside.exp()) };
        Ok(Window {
            offset,
            offset_size,
            first: first as i64,
            last: last as i64,
            outside_above,
            outside_below,
        })
    }

    /// The transform size that holds the window, unless it exceeds what `most` allows.
    pub fn transform_size(&self, most: f64, parts: usize) -> Result<usize> {
        // As f64, because the ends may have saturated at the limits of i64.
        let points = self.last as f64 - self.first as f64 + 1.0;
        if points > 2.0 * most {
            return Err(Error::GridTooLarge { needed: points, limit: 2.0 * most, parts });
        }
        Ok(transform_size(points as usize))
    }
}

/// The next size with only small prime factors.
fn transform_size(points: usize) -> usize {
    let points = points.max(16);
    let power = points.next_power_of_two();
    [power / 16 * 9, power / 8 * 5, power / 4 * 3, power / 8 * 7, power]
        .into_iter()
        .find(|&n| n >= points && n % 2 == 0)
        .unwrap_or(power)
}

/// The smaller of Σ|x| and √n·‖x‖₂: the error of a transform's value is at most the transform error
/// times either.
pub fn sum_or_norm(sizes: impl Iterator<Item = f64>, n: usize) -> f64 {
    let (sum, squares) = sizes.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum.min((squares * n as f64).sqrt())
}

/// Π φ_j^{k_j} over the parts, and a bound on the sum of its errors over all frequencies.
fn product_of_powers(tilted: &[Tilted], size: usize) -> (Vec<Complex64>, f64) {
    let forward = RealFftPlanner::<f64>::new().plan_fft_forward(size);
    let mut buffer = forward.make_input_vec();
    let mut factor = forward.make_output_vec();
    let mut product = vec![Complex64::new(1.0, 0.0); factor.len()];
    let mut product_error = vec![0.0_f64; factor.len()];
    // Squaring is faster, the logarithm more accurate; with many parts time matters more.
    let by_squaring = if tilted.len() > FEW_PARTS { 4096 } else { 16 };
    for part in tilted {
        let error = part.transformed(forward.as_ref(), &mut buffer, &mut factor);
        multiply_power(
            &mut product,
            &mut product_error,
            &factor,
            &Power::new(part.count, error, by_squaring),
        );
    }
    let total = 2.0 * product_error.iter().sum::<f64>();
    (product, total)
}

/// product ← product · φ^count for φ = 1 + shift, with the error bounds of PROOFS.md, section 5.2.
fn multiply_power(
    product: &mut [Complex64],
    product_error: &mut [f64],
    shift: &[Complex64],
    power: &Power,
) {
    for ((p, p_error), &w) in product.iter_mut().zip(product_error).zip(shift) {
        let before = p.norm_sqr().sqrt();
        let (factor, size, error) = power.of(w);
        *p_error = *p_error * (size + error) + before * (error + 4.0 * UNIT * size);
        *p *= factor;
    }
}

/// Powers φ^count of numbers φ = 1 + w, where w has an error of up to `error`.
pub struct Power {
    count: u64,
    error: f64,
    by_squaring: u64,
    /// If |φ| + error is below this, the power is below e^−120 and is taken as zero.
    negligible: f64,
}

impl Power {
    pub fn new(count: u64, error: f64, by_squaring: u64) -> Self {
        Self { count, error, by_squaring, negligible: (-120.0 / count as f64).exp() }
    }

    /// The power, its absolute value and a bound on its error.
    #[inline(always)]
    pub fn of(&self, w: Complex64) -> (Complex64, f64, f64) {
        let k = self.count as f64;
        let (zero, z) = (Complex64::new(0.0, 0.0), Complex64::new(1.0 + w.re, w.im));
        let size = z.norm_sqr().sqrt();
        if size + self.error < self.negligible {
            return (zero, 0.0, (-120.0_f64).exp());
        }
        let (power, rounding) = if self.count <= self.by_squaring {
            (integer_power(z, self.count), 4.0 * k * UNIT)
        } else {
            power_near_one(w, k)
        };
        let relative = k * 1.01 * self.error / size + rounding;
        if relative < 0.5 {
            let power_size = power.norm_sqr().sqrt();
            // e^x − 1 ≤ x(1 + x) for 0 ≤ x ≤ 1
            return (power, power_size, power_size * relative * (1.0 + relative));
        }
        (zero, 0.0, (k * (size + self.error).ln()).min(0.0).exp() * (1.0 + 1e-6))
    }
}

/// With more parts than this, speed matters more than accuracy.
const FEW_PARTS: usize = 4;

/// (1 + w)^k by e^{k ln(1 + w)}, and its relative rounding error, which is tiny for small w.
fn power_near_one(w: Complex64, k: f64) -> (Complex64, f64) {
    let log_size = 0.5 * (2.0 * w.re + w.norm_sqr()).ln_1p();
    let angle = w.im.atan2(1.0 + w.re);
    let (scaled_log, scaled_angle) = (k * log_size, k * angle);
    // 2w + |w|² has an error of a few roundings of |w|, and the logarithm divides it by |1 + w|².
    let size = w.re.abs() + w.im.abs();
    let squared = Complex64::new(1.0 + w.re, w.im).norm_sqr().min(1.0);
    let rounding = UNIT * (16.0 + k * 16.0 * size * (1.0 + size) / squared);
    (Complex64::from_polar(scaled_log.exp(), scaled_angle), rounding)
}

/// z^n by squaring: the rounding of n − 1 multiplications, each below √5 units.
fn integer_power(mut z: Complex64, mut n: u64) -> Complex64 {
    let mut result = Complex64::new(1.0, 0.0);
    while n > 0 {
        if n & 1 == 1 {
            result *= z;
        }
        n >>= 1;
        if n > 0 {
            z *= z;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_far_more_accurate_than_it_is_trusted_to_be() {
        // A vector with a known exact transform: a single mass at position j has e^{−2πi jf/n}, and
        // the transform is linear.
        for size in [1 << 10, 3 << 12, 9 << 13, 5 << 14, 7 << 14, 1 << 18] {
            let masses = [(1_usize, 0.4), (size / 3 + 1, 0.35), (size - 5, 0.25)];
            let mut input = vec![0.0; size];
            masses.iter().for_each(|&(j, w)| input[j] = w);
            let forward = RealFftPlanner::<f64>::new().plan_fft_forward(size);
            let mut output = forward.make_output_vec();
            forward.process(&mut input, &mut output).unwrap();
            let mut squared = 0.0;
            for (f, value) in output.iter().enumerate() {
                let mut exact = Complex64::new(0.0, 0.0);
                for &(j, w) in &masses {
                    // Reduce the phase in integers so that the reference is exact to rounding.
                    let turn = (j as u128 * f as u128 % size as u128) as f64 / size as f64;
                    exact += Complex64::from_polar(w, -std::f64::consts::TAU * turn);
                }
                squared += (value - exact).norm_sqr();
            }
            let norm = (masses.iter().map(|m| m.1 * m.1).sum::<f64>() * size as f64 / 2.0).sqrt();
            let relative = squared.sqrt() / norm;
            assert!(relative < 0.5 * transform_error(size), "{size}: {relative:e}");
        }
    }

    fn tilted() -> Tilted {
        let grid = Grid { mesh: 0.1, offset: 0.0 };
        let (index, weight) = (vec![-3, 0, 4], vec![0.25, 0.5, 0.25]);
        let (log_norm, error, error_elsewhere) = (0.0, 1e-15, 1e-15);
        Tilted { grid, index, weight, count: 3, log_norm, error, error_elsewhere }
    }

    /// A NaN must not pass for a small moment or a short window.
    #[test]
    fn no_window_comes_of_numbers_that_are_none() {
        let plan = Plan {
            tilt: 1.0,
            mesh: 0.1,
            upper_rate: 2.0,
            lower_rate: 2.0,
            log_outside: -20.0,
            epsilon_guess: 0.5,
            width: 1e6,
            lowest: -1.0,
            cap: f64::INFINITY,
        };
        assert!(Window::certified(&[tilted()], &plan).is_ok());
        for broken in [
            Plan { upper_rate: f64::NAN, ..plan.clone() },
            Plan { lower_rate: f64::NAN, ..plan.clone() },
            Plan { log_outside: f64::NAN, ..plan.clone() },
        ] {
            assert!(Window::certified(&[tilted()], &broken).is_err());
        }
        for rate in [f64::NAN, f64::INFINITY, 1e308 * 10.0] {
            assert_eq!(tilted().log_moment(rate), f64::INFINITY);
        }
    }

    /// The moment is an upper bound even if its exponents are far larger than the moment itself.
    #[test]
    fn moments_are_rounded_up() {
        let mut part = tilted();
        for (offset, rate) in [(0.0_f64, 3.0_f64), (1e6, 0.7), (-1e6, 0.7), (1e7, 1e3)] {
            part.grid.offset = offset;
            let shifted: f64 = [-0.3_f64, 0.0, 0.4]
                .iter()
                .zip(&part.weight)
                .map(|(loss, weight)| weight * (rate * loss).exp())
                .sum();
            let truth = rate * offset + shifted.ln();
            let moment = part.log_moment(rate);
            assert!(moment >= truth && moment - truth < 1e-14 * truth.abs() + 1e-13, "{offset}");
        }
    }

    #[test]
    fn sizes_are_even_and_large_enough() {
        for points in [1, 17, 100, 1000, 4097, 70_000, 131_073] {
            let size = transform_size(points);
            assert!(size >= points && size.is_multiple_of(2) && size <= 2 * points.max(16));
        }
    }
}
