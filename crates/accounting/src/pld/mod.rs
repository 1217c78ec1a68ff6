//! Numerical composition of privacy-loss distributions (PLD), certified on both sides.
//!
//! 1. Every event has a dominating pair of distributions on the real line (`pair`).
//! 2. Each pair is cut into cells of the privacy-loss axis (`cells`) and replaced by two discrete
//!    pairs on one grid: one that dominates it and one that it dominates (`masses`). The error of
//!    both is of second order in the mesh.
//! 3. Both are composed by fast Fourier transform (FFT) under an exponential tilt (`convolve`), and
//!    δ(ε) is read off (`tail`), with truncation, wrap-around and rounding errors on the safe side.
//! 4. The mesh is chosen from a sketch (`sketch`, `plan`) and refined until the interval is as
//!    narrow as requested.
//!
//! The proofs are in PROOFS.md beside this file.

mod cells;
mod convolve;
mod enclosure;
mod jump;
mod masses;
mod merge;
mod mixture;
pub(crate) mod pair;
mod plan;
mod response;
mod sketch;
mod tail;

use crate::event::limits;
use crate::{Bounds, Composition, Error, Result};
use cells::{Cells, Weighing};
use convolve::{Side, compose};
use enclosure::Enclosure;
use jump::Split;
use masses::Masses;
use merge::merged;
use pair::{Pair, Repeated, pairs_of};
use plan::{Plan, most_points};
use rayon::prelude::*;
use response::Responses;
use sketch::Sketch;
use tail::Tail;

/// Maximum width of the certified interval of ε, as a share of max(1, ε).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision(pub f64);

impl Default for Precision {
    fn default() -> Self {
        Precision(1e-3)
    }
}

impl Precision {
    fn gap_at(&self, epsilon: f64) -> f64 {
        self.0 * epsilon.max(1.0)
    }
}

/// Which of the two neighboring data sets is the true one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    /// Loss ln dP/dQ under P: the unit is present.
    Present,
    /// Loss ln dQ/dP under Q: the unit is absent.
    Absent,
}

/// ε(δ), the worse of both directions.
pub fn epsilon(composition: &Composition, delta: f64, precision: Precision) -> Result<Bounds> {
    let prepared = Numerical::new(composition, delta)?;
    let interval = prepared.epsilon(delta, precision)?;
    let short = composition.parts().len() <= FEW_PARTS && composition.releases() <= FEW_RELEASES;
    if interval.gap() <= precision.gap_at(interval.lower) || !short || prepared.pairs.is_empty() {
        return Ok(interval);
    }
    // If one large loss is likelier than many small ones, δ(ε) is nearly flat. Then even a small
    // truncated share of δ moves ε, and no tilt is suitable. `jump` handles that case.
    let by_jumps = Numerical::new(composition, 1e-4 * delta)?.epsilon_by_jumps(
        delta,
        precision,
        interval.upper,
    );
    by_jumps.map_or(Ok(interval), |e| e.intersect(interval))
}

/// With at most this many parts and releases there is time for a second computation.
const FEW_PARTS: usize = 20;
const FEW_RELEASES: u64 = 100_000;

/// δ(ε), the worse of both directions.
pub fn delta(composition: &Composition, epsilon: f64, precision: Precision) -> Result<Bounds> {
    let mut scale = guess_delta(composition, epsilon)?;
    let mut best: Option<Bounds> = None;
    for _ in 0..4 {
        let interval = Numerical::new(composition, scale)?.delta(epsilon, precision)?;
        let kept = best.map_or(Ok(interval), |b| b.intersect(interval))?;
        best = Some(kept);
        // If δ is much smaller than guessed, the truncated tails weigh too much.
        if kept.upper > 0.05 * scale || scale <= SMALLEST {
            break;
        }
        scale = (0.1 * kept.upper).max(SMALLEST);
    }
    best.ok_or(Error::LossTooLarge { limit: limits::EPSILON })
}

/// A mesh that changes ε at `delta` by about `tolerance`.
pub(crate) fn mesh(composition: &Composition, delta: f64, tolerance: f64) -> Result<f64> {
    let prepared = Numerical::new(composition, delta)?;
    let plan = Plan::capped(&prepared.present, |sketches| {
        Plan::for_delta(sketches, delta, |_| tolerance)
    })?;
    Ok(plan.mesh)
}

/// δ at one ε, in each direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Directions {
    /// P against Q: the unit is present.
    pub present: Bounds,
    /// Q against P: the unit is absent.
    pub absent: Bounds,
}

impl Directions {
    /// δ of a pair that is its own mirror image.
    pub fn alike(delta: Bounds) -> Self {
        Self { present: delta, absent: delta }
    }

    fn worse(self) -> Bounds {
        self.present.max(self.absent)
    }
}

/// Whether an interval of δ is too wide, unless δ is below `negligible`.
fn is_vague(delta: &Bounds, negligible: f64) -> bool {
    delta.lower < 0.8 * delta.upper && delta.upper > negligible
}

/// δ at each of many ε, the worse of both directions; a few computations serve all of them.
pub fn curve(
    composition: &Composition,
    epsilons: &[f64],
    precision: Precision,
) -> Result<Vec<Bounds>> {
    let vague = |bounds: &Directions| is_vague(&bounds.worse(), *limits::DELTA.start());
    let both = curves(composition, epsilons, precision, vague)?;
    Ok(both.into_iter().map(Directions::worse).collect())
}

/// δ at each of many ε, in each direction, for probabilities: bounds on a δ below 1e-6 may be wide.
pub(crate) fn curve_of_each_direction(
    composition: &Composition,
    epsilons: &[f64],
    precision: Precision,
) -> Result<Vec<Directions>> {
    let vague =
        |bounds: &Directions| [bounds.present, bounds.absent].iter().any(|d| is_vague(d, 1e-6));
    curves(composition, epsilons, precision, vague)
}

fn curves(
    composition: &Composition,
    epsilons: &[f64],
    precision: Precision,
    vague: impl Fn(&Directions) -> bool,
) -> Result<Vec<Directions>> {
    const ANCHORS: usize = 16;
    let unknown = Directions::alike(Bounds { lower: 0.0, estimate: 0.5, upper: 1.0 });
    let mut curve = vec![unknown; epsilons.len()];
    let sharpen = |curve: &mut Vec<Directions>, anchor: usize| -> Result<()> {
        let upper = curve[anchor].worse().upper;
        let scale = guess_delta(composition, epsilons[anchor])?.min(upper);
        let prepared = Numerical::new(composition, scale.max(SMALLEST))?;
        for (known, here) in curve.iter_mut().zip(prepared.around(epsilons, anchor, precision)?) {
            known.present = known.present.intersect(here.present)?;
            known.absent = known.absent.intersect(here.absent)?;
        }
        Ok(())
    };
    for anchor in (0..epsilons.len()).step_by(epsilons.len().div_ceil(ANCHORS).max(1)) {
        sharpen(&mut curve, anchor)?;
    }
    // Intervals that are still wide get their own computation.
    for anchor in 0..epsilons.len() {
        if vague(&curve[anchor]) {
            sharpen(&mut curve, anchor)?;
        }
    }
    Ok(curve)
}

/// δ values below this are not distinguished from 0.
const SMALLEST: f64 = 1e-20;

/// Order of magnitude of δ(ε), by Chernoff's bound on sketches with less and less truncation.
fn guess_delta(composition: &Composition, epsilon: f64) -> Result<f64> {
    let mut scale = 1e-3;
    for _ in 0..4 {
        let sketched = Numerical::new(composition, scale)?;
        let present = Plan::chernoff_delta(&sketched.present, epsilon);
        let absent = sketched.absent.as_ref().map_or(0.0, |s| Plan::chernoff_delta(s, epsilon));
        let next = (0.1 * present.max(absent)).clamp(SMALLEST, 0.1);
        if next >= 0.1 * scale {
            return Ok(next);
        }
        scale = next;
    }
    Ok(scale)
}

/// A composition prepared for δ of a given order of magnitude.
struct Numerical {
    responses: Responses,
    pairs: Vec<Repeated>,
    /// Probability of each event that is truncated at either end.
    cut: f64,
    /// One sketch for each pair, then one for the randomized responses.
    present: Vec<Sketch>,
    absent: Option<Vec<Sketch>>,
}

/// Maximum number of edges of all parts together, which bounds the time.
const MOST_EDGES: i64 = 1_000_000;
/// One point of a transform costs as much as this many products of masses.
const MERGED_PER_POINT: usize = 8;
/// Compositions of more parts than this skip expensive refinements.
const MANY_PARTS: usize = 25;
/// Maximum number of mesh refinements.
const REFINEMENTS: usize = 7;
/// Loss that the lower discretization may have, as a share of max(1, ε), before the trivial pair
/// replaces it.
const HARMLESS: f64 = 1e-4;
/// Share of δ that may be truncated with the tails of the noise.
const CUT_SHARE: f64 = 2e-4;

impl Numerical {
    /// Prepares `composition` for δ not much below `smallest_delta`.
    fn new(composition: &Composition, smallest_delta: f64) -> Result<Numerical> {
        composition.validate()?;
        let all = pairs_of(composition.parts(), composition.adjacency);
        let (responses, pairs) = Responses::split_off(all);
        let events: f64 = pairs.iter().map(|p| p.count as f64).sum();
        let cut = smallest_delta * CUT_SHARE / events.max(1.0);
        let mut present: Vec<Sketch> =
            pairs.par_iter().with_min_len(16).map(|p| Sketch::of(p, cut)).collect();
        if !responses.is_empty() {
            present.push(Sketch::of_atoms(responses.atoms()));
        }
        let symmetric = pairs.iter().all(|p| p.pair.is_symmetric());
        let absent = (!symmetric).then(|| present.iter().map(Sketch::reversed).collect());
        Ok(Numerical { responses, pairs, cut, present, absent })
    }

    fn epsilon(&self, delta: f64, precision: Precision) -> Result<Bounds> {
        if self.pairs.is_empty() {
            return Enclosure::of_responses(&self.responses).epsilon(delta);
        }
        let present = self.refine(Direction::Present, delta, precision)?;
        self.or_absent(present, delta, precision)
    }

    /// ε(δ) by the number of large losses (`jump`), given that the result is about `near`.
    fn epsilon_by_jumps(&self, delta: f64, precision: Precision, near: f64) -> Result<Bounds> {
        let present = self.refine_by_jumps(delta, precision, near)?;
        self.or_absent(present, delta, precision)
    }

    /// The worse of `present` and the other direction.
    fn or_absent(&self, present: Bounds, delta: f64, precision: Precision) -> Result<Bounds> {
        let Some(absent) = &self.absent else { return Ok(present) };
        // The other direction is rarely the worse one. Without the unit no output has a loss above
        // the sum of −ln(1 − q): at that ε its δ is 0.
        let most = self.largest_absent_loss();
        if most <= present.upper {
            return Ok(present);
        }
        // A coarse bound decides most other cases. With many parts there is no time for a finer
        // one.
        let many = self.has_many_parts();
        let coarse = Precision(precision.0 * if many { 4.0 } else { 16.0 });
        let plan = Plan::capped(absent, |sketches| {
            Plan::for_delta(sketches, delta, |e| 0.5 * coarse.gap_at(e))
        })?;
        let plan = plan.fitted(self.most_points());
        let rough = self.enclose(Direction::Absent, &plan).and_then(|e| e.epsilon(delta));
        let absent = match rough {
            Ok(rough) if many || rough.upper <= present.upper => rough,
            _ => self.refine(Direction::Absent, delta, precision)?,
        };
        Ok(present.max(Bounds { upper: absent.upper.min(most).max(absent.lower), ..absent }))
    }

    /// The largest loss of any output if the unit is absent, rounded up.
    fn largest_absent_loss(&self) -> f64 {
        let responses = self.responses.atoms().iter().map(|a| a.0).fold(0.0, f64::max);
        let sampled: f64 = self
            .pairs
            .iter()
            .map(|part| match part.pair {
                Pair::Shifted { sampling_rate, .. } => {
                    part.count as f64 * -(-sampling_rate).ln_1p()
                }
                Pair::Mixed(ref mixture) => part.count as f64 * mixture.largest_absent_loss(),
                Pair::Response { epsilon, .. } => part.count as f64 * epsilon,
                Pair::Opposed { .. } => f64::INFINITY,
            })
            .sum();
        (responses + sampled) * (1.0 + 1e-12)
    }

    fn delta(&self, epsilon: f64, precision: Precision) -> Result<Bounds> {
        if self.pairs.is_empty() {
            return Enclosure::of_responses(&self.responses).delta(epsilon);
        }
        let present = self.delta_in(Direction::Present, epsilon, precision)?;
        if self.absent.is_none() {
            return Ok(present);
        }
        Ok(present.max(self.delta_in(Direction::Absent, epsilon, precision)?))
    }

    fn delta_in(&self, direction: Direction, epsilon: f64, precision: Precision) -> Result<Bounds> {
        let mut best: Option<Bounds> = None;
        let mut mesh = f64::INFINITY;
        // The first round may only reveal how small δ is; a later one knows how much mass may lie
        // outside its window.
        for _ in 0..REFINEMENTS {
            let guess = best.map(|b| b.upper.max(f64::MIN_POSITIVE));
            let sketches = self.sketches(direction);
            let plan = Plan::capped(sketches, |sketches| {
                Plan::near_epsilon(sketches, epsilon, guess, |e| 0.25 * precision.gap_at(e))
            })?;
            let finer = plan.mesh.min(mesh);
            let plan = plan.with_mesh(finer).fitted(self.most_points());
            let interval = match self.enclose(direction, &plan) {
                Ok(enclosure) => enclosure.delta(epsilon)?,
                Err(error) => return best.ok_or(error),
            };
            let kept = best.map_or(Ok(interval), |b| b.intersect(interval))?;
            best = Some(kept);
            // Relative to δ, but no finer than the smallest supported δ.
            let gap = (kept.upper / kept.lower.max(1e-3 * limits::DELTA.start())).ln();
            let wanted = 20.0 * precision.0;
            if gap <= wanted || plan.mesh > 1.05 * finer {
                break;
            }
            mesh = plan.mesh * (0.8 * (wanted / gap).sqrt()).clamp(0.2, 0.8);
        }
        best.ok_or(Error::LossTooLarge { limit: limits::EPSILON })
    }

    /// Bounds on δ at all of the given ε, in each direction, tight near one of them.
    fn around(
        &self,
        epsilons: &[f64],
        anchor: usize,
        precision: Precision,
    ) -> Result<Vec<Directions>> {
        if self.pairs.is_empty() {
            let enclosure = Enclosure::of_responses(&self.responses);
            return epsilons.iter().map(|&e| Ok(Directions::alike(enclosure.delta(e)?))).collect();
        }
        let bounds_in = |direction: Direction| -> Result<Vec<Bounds>> {
            let (sketches, near) = (self.sketches(direction), epsilons[anchor]);
            let plan = Plan::capped(sketches, |sketches| {
                Plan::near_epsilon(sketches, near, None, |e| precision.gap_at(e))
            })?;
            let enclosure = self.enclose(direction, &plan.fitted(self.most_points()))?;
            epsilons.iter().map(|&e| enclosure.delta(e)).collect()
        };
        let present = bounds_in(Direction::Present)?;
        if self.absent.is_none() {
            return Ok(present.into_iter().map(Directions::alike).collect());
        }
        let absent = bounds_in(Direction::Absent)?;
        let both = present.into_iter().zip(absent);
        Ok(both.map(|(present, absent)| Directions { present, absent }).collect())
    }

    fn has_many_parts(&self) -> bool {
        self.pairs.len() > MANY_PARTS
    }

    fn most_points(&self) -> f64 {
        most_points(self.pairs.len())
    }

    /// Maximum number of edges of each part. Parts with a short range of losses need few and leave
    /// more to the others.
    fn most_edges(&self, mesh: f64) -> Vec<i64> {
        let needs = |s: &Sketch| {
            (((s.loss[s.loss.len() - 1] - s.loss[0]) / mesh) as i64).saturating_add(16)
        };
        let mut needed: Vec<i64> = self.present[..self.pairs.len()].iter().map(needs).collect();
        let all = needed.clone();
        needed.sort_unstable();
        let (mut left, mut cap) = (MOST_EDGES, 0);
        for (i, need) in needed.iter().enumerate() {
            cap = left / (needed.len() - i) as i64;
            if *need >= cap {
                break;
            }
            left -= need;
            cap = cap.max(*need);
        }
        all.iter().map(|need| (*need).min(cap).max(16)).collect()
    }

    fn sketches(&self, direction: Direction) -> &[Sketch] {
        match (direction, &self.absent) {
            (Direction::Absent, Some(absent)) => absent,
            _ => &self.present,
        }
    }

    /// ε(δ) in one direction, on finer and finer meshes until the interval is narrow enough.
    fn refine(&self, direction: Direction, delta: f64, precision: Precision) -> Result<Bounds> {
        let sketches = self.sketches(direction);
        let plan = Plan::capped(sketches, |sketches| {
            Plan::for_delta(sketches, delta, |e| 0.5 * precision.gap_at(e))
        })?;
        let mut plan = plan.fitted(self.most_points());
        let mut work = plan.points();
        let budget = self.most_points() * if self.has_many_parts() { 1.05 } else { 1.3 };
        let mut best: Option<Bounds> = None;
        let mut no_progress = 0;
        for _ in 0..REFINEMENTS {
            let interval = match self.enclose(direction, &plan).and_then(|e| e.epsilon(delta)) {
                Ok(interval) => interval,
                // If a finer mesh does not fit, the result of the coarser one is used.
                Err(error) => return best.ok_or(error),
            };
            let kept = best.map_or(Ok(interval), |b| b.intersect(interval))?;
            let no_better = best.is_some_and(|b| interval.gap() > b.gap());
            best = Some(kept);
            let wanted = precision.gap_at(kept.lower);
            // If the rest of the gap is rounding error, a finer mesh makes it wider.
            no_progress += u32::from(no_better);
            if kept.gap() <= wanted || no_progress == 2 {
                break;
            }
            // Now the result is located: choose the best tilt there, and scale the mesh by the
            // current gap. While the interval is wide, its upper end is the better guess, because
            // the lower bound may still be dominated by its error.
            let near = if kept.gap() > 10.0 * wanted { kept.upper } else { kept.estimate };
            let retilted = Plan::capped(sketches, |sketches| {
                Plan::near_epsilon(sketches, near, Some(delta), |e| 0.5 * precision.gap_at(e))
            })?;
            let factor = (0.8 * (wanted / kept.gap()).sqrt()).clamp(0.2, 0.8);
            let finer = (plan.mesh * factor).min(retilted.mesh);
            let next = retilted.with_mesh(finer).fitted(self.most_points());
            work += next.points();
            if next.mesh >= 0.95 * plan.mesh || work > budget {
                break;
            }
            plan = next;
        }
        best.ok_or(Error::LossTooLarge { limit: limits::EPSILON })
    }

    /// ε(δ) with the unit present, by the number of large losses.
    fn refine_by_jumps(&self, delta: f64, precision: Precision, mut near: f64) -> Result<Bounds> {
        let too_large = Error::LossTooLarge { limit: limits::EPSILON };
        let split = Split::at_delta(&self.present, delta).ok_or(too_large.clone())?;
        let (mut mesh, mut work) = (f64::INFINITY, 0.0);
        let mut best: Option<Bounds> = None;
        for _ in 0..REFINEMENTS {
            let plan = split.plan(near, 0.5 * precision.gap_at(near))?;
            let finer = plan.mesh.min(mesh);
            let plan = plan.with_mesh(finer).fitted(self.most_points());
            work += plan.points();
            if work > self.most_points() {
                break;
            }
            let weighing = Weighing { tilt: plan.tilt, one_loss: Some(near) };
            let enclosed = self.enclose_with(Direction::Present, &plan, weighing, |parts, side| {
                split.compose(&parts, &plan, side, self.most_points())
            });
            let interval = match enclosed.and_then(|e| e.epsilon(delta)) {
                Ok(interval) => interval,
                Err(error) => return best.ok_or(error),
            };
            let kept = best.map_or(Ok(interval), |b| b.intersect(interval))?;
            best = Some(kept);
            let wanted = precision.gap_at(kept.lower);
            if kept.gap() <= wanted {
                break;
            }
            near = if kept.gap() > 10.0 * wanted { kept.upper } else { kept.estimate };
            mesh = plan.mesh * (0.8 * (wanted / kept.gap()).sqrt()).clamp(0.2, 0.8);
        }
        best.ok_or(too_large)
    }

    /// Bounds on the curve of one direction, by the plan.
    fn enclose(&self, direction: Direction, plan: &Plan) -> Result<Enclosure<'_>> {
        let tilt_of_p = match direction {
            Direction::Present => plan.tilt,
            // Q's masses are e^{−loss} times P's, and the loss changes its sign.
            Direction::Absent => -1.0 - plan.tilt,
        };
        let weighing = Weighing { tilt: tilt_of_p, one_loss: None };
        self.enclose_with(direction, plan, weighing, |parts, side| {
            let parts = merged(parts, side, MERGED_PER_POINT * plan.points() as usize);
            compose(&parts, plan, side, self.most_points())
        })
    }

    fn enclose_with(
        &self,
        direction: Direction,
        plan: &Plan,
        weighing: Weighing,
        compose: impl Fn(Vec<(Masses, u64)>, Side) -> Result<Tail> + Sync,
    ) -> Result<Enclosure<'_>> {
        let cells: Vec<Cells> = self
            .pairs
            .par_iter()
            .zip(&self.present)
            .zip(self.most_edges(plan.mesh))
            .map(|((part, sketch), most)| {
                let cells = Cells::cut(&part.pair, sketch, weighing, plan.mesh, self.cut, most);
                match direction {
                    Direction::Present => cells,
                    Direction::Absent => cells.reversed(),
                }
            })
            .collect();
        let harmless = HARMLESS * plan.epsilon_guess.max(1.0) / self.pairs.len() as f64;
        let tail = |side: Side| -> Result<Tail> {
            let parts: Vec<(Masses, u64)> = cells
                .iter()
                .zip(&self.pairs)
                .map(|(cells, part)| {
                    let masses = match side {
                        Side::Upper => Masses::pessimistic(cells),
                        Side::Lower => Masses::optimistic(cells, harmless / part.count as f64),
                    };
                    (masses.capped(plan.cap, side), part.count)
                })
                .collect();
            compose(parts, side)
        };
        let (lower, upper) = rayon::join(|| tail(Side::Lower), || tail(Side::Upper));
        Ok(Enclosure::new(&self.responses, lower?, upper?))
    }
}
