//! Numerical composition of privacy-loss distributions, certified on both sides.
//!
//! 1. Every event has a dominating pair of distributions on the line ([`pair`]).
//! 2. Each pair is cut into cells of the loss axis ([`cells`]) and replaced by two discrete pairs on one grid: one that
//!    dominates it and one that it dominates ([`masses`]). Both are off by second order in the mesh.
//! 3. Both are composed by fast Fourier transform under an exponential tilt ([`convolve`]), and δ(ε) is read off
//!    ([`tail`]), with truncation, wrap-around and rounding errors on the safe side.
//! 4. The mesh is chosen from a sketch ([`sketch`], [`plan`]) and refined until the gap is as small as asked for.
//!
//! The proofs are in PROOFS.md beside this file.

mod cells;
mod convolve;
mod masses;
mod pair;
mod plan;
mod sketch;
mod tail;

use crate::event::limits;
use crate::normal::upper_quantile;
use crate::{Bounds, Composition, Error, Result};
use cells::Cells;
use convolve::{Side, compose};
use masses::Masses;
use pair::{Repeated, pairs_of};
use plan::{Plan, most_points};
use rayon::prelude::*;
use sketch::Sketch;
use tail::Tail;

/// How much wider than 0 the certified interval may be: `share · max(1, ε)`.
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

/// Which of the two neighbours is the true data set.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    /// Loss ln dP/dQ under P: the unit is there.
    Present,
    /// Loss ln dQ/dP under Q: it is not.
    Absent,
}

/// A composition made ready for questions.
pub struct Numerical {
    pairs: Vec<Repeated>,
    /// How many standard deviations of noise are kept.
    reach: f64,
    present: Vec<Sketch>,
    absent: Option<Vec<Sketch>>,
}

/// An upper and a lower bound on one direction's curve, both good near one place.
struct Enclosure {
    lower: Tail,
    upper: Tail,
    mesh: f64,
}

/// How often the mesh is refined before the gap is taken as it is.
const REFINEMENTS: usize = 4;
/// The share of δ that may be cut off with the noise's tails.
const CUT_SHARE: f64 = 1e-10;

impl Numerical {
    /// Prepares `composition` for questions about δ not below `smallest_delta`.
    pub fn new(composition: &Composition, smallest_delta: f64) -> Result<Numerical> {
        composition.validate()?;
        let pairs = pairs_of(composition.parts(), composition.adjacency);
        let events: f64 = pairs.iter().map(|p| p.count as f64).sum();
        let reach = upper_quantile((smallest_delta * CUT_SHARE / events.max(1.0)).min(0.1));
        let present: Vec<Sketch> =
            pairs.par_iter().with_min_len(16).map(|p| Sketch::of(p, reach)).collect();
        let symmetric = pairs.iter().all(|p| p.pair.is_symmetric());
        let absent = (!symmetric).then(|| present.iter().map(Sketch::reversed).collect());
        Ok(Numerical { pairs, reach, present, absent })
    }

    /// ε(δ), the worse of both directions.
    pub fn epsilon(&self, delta: f64, precision: Precision) -> Result<Bounds> {
        if self.pairs.is_empty() {
            return Ok(Bounds::exact(0.0));
        }
        let present = self.refine(Direction::Present, delta, precision)?;
        let Some(absent) = &self.absent else { return Ok(present) };
        // The other direction is seldom the worse one: a coarse bound settles most cases.
        let coarse = Precision(16.0 * precision.0);
        let plan = Plan::for_delta(absent, delta, |e| 0.5 * coarse.gap_at(e))?;
        if let Ok(rough) = self.epsilon_on(Direction::Absent, &plan.fitted(self.most_points()), delta)
            && rough.0.upper <= present.upper
        {
            return Ok(present);
        }
        Ok(present.max(self.refine(Direction::Absent, delta, precision)?))
    }

    /// δ(ε), the worse of both directions.
    pub fn delta(&self, epsilon: f64, precision: Precision) -> Result<Bounds> {
        if self.pairs.is_empty() {
            return Ok(Bounds::exact(0.0));
        }
        let one = |direction| -> Result<Bounds> {
            let plan = Plan::near_epsilon(self.sketches(direction), epsilon, |e| {
                0.25 * precision.gap_at(e)
            })?;
            let enclosure = self.enclose(direction, &plan.fitted(self.most_points()))?;
            let (lower, upper) = (enclosure.lower.delta(epsilon), enclosure.upper.delta(epsilon));
            Ok(between(lower, upper.max(lower)))
        };
        let present = one(Direction::Present)?;
        if self.absent.is_none() { Ok(present) } else { Ok(present.max(one(Direction::Absent)?)) }
    }

    fn most_points(&self) -> f64 {
        most_points(self.pairs.len())
    }

    fn sketches(&self, direction: Direction) -> &[Sketch] {
        match (direction, &self.absent) {
            (Direction::Absent, Some(absent)) => absent,
            _ => &self.present,
        }
    }

    /// ε(δ) in one direction, on finer and finer meshes until the gap is small enough.
    fn refine(&self, direction: Direction, delta: f64, precision: Precision) -> Result<Bounds> {
        let plan =
            Plan::for_delta(self.sketches(direction), delta, |e| 0.5 * precision.gap_at(e))?;
        let mut plan = plan.fitted(self.most_points());
        let mut best: Option<Bounds> = None;
        for _ in 0..REFINEMENTS {
            if std::env::var("DBG").is_ok() { eprintln!("{direction:?} {plan:?}"); }
            let t0=std::time::Instant::now();
            let r = self.epsilon_on(direction, &plan, delta);
            if std::env::var("DBG").is_ok() { eprintln!("  -> {r:?} {:?}", t0.elapsed()); }
            let found = match r {
                Ok((found, _)) => found,
                // A finer mesh that does not fit leaves the answer of the coarser one.
                Err(error) => return best.ok_or(error),
            };
            let kept = best.map_or(found, |b: Bounds| {
                between(b.lower.max(found.lower), b.upper.min(found.upper))
            });
            best = Some(kept);
            let wanted = precision.gap_at(kept.lower);
            if kept.gap() <= wanted {
                break;
            }
            // Now that the answer's place is known: the best tilt there, and the mesh scaled by what was found.
            let retilted = Plan::near_epsilon(self.sketches(direction), kept.estimate, |e| {
                0.5 * precision.gap_at(e)
            })?;
            let moved = (retilted.tilt / plan.tilt).ln().abs() > 0.1;
            let factor = (0.8 * (wanted / kept.gap()).sqrt()).clamp(0.1, 0.8);
            let finer = if moved { retilted.mesh } else { plan.mesh * factor };
            let next = retilted.with_mesh(finer).fitted(self.most_points());
            if !moved && next.mesh >= 0.95 * plan.mesh {
                break;
            }
            plan = next;
        }
        best.ok_or(Error::LossTooLarge { limit: limits::EPSILON })
    }

    fn epsilon_on(&self, direction: Direction, plan: &Plan, delta: f64) -> Result<(Bounds, f64)> {
        let enclosure = self.enclose(direction, plan)?;
        let lower = enclosure.lower.epsilon(delta).unwrap_or(0.0);
        let upper = enclosure
            .upper
            .epsilon(delta)
            .ok_or(Error::LossTooLarge { limit: limits::EPSILON })?;
        Ok((between(lower, upper.max(lower)), enclosure.mesh))
    }

    fn enclose(&self, direction: Direction, plan: &Plan) -> Result<Enclosure> {
        let (tilt_of_p, mesh) = match direction {
            Direction::Present => (plan.tilt, plan.mesh),
            // Q's masses are e^{−loss} times P's, and the loss changes its sign.
            Direction::Absent => (-1.0 - plan.tilt, plan.mesh),
        };
        let cells: Vec<Cells> = self
            .pairs
            .par_iter()
            .zip(&self.present)
            .map(|(part, sketch)| {
                let cells = Cells::cut(&part.pair, sketch, tilt_of_p, mesh, self.reach);
                match direction {
                    Direction::Present => cells,
                    Direction::Absent => cells.reversed(),
                }
            })
            .collect();
        if std::env::var("DBG").is_ok() { for (c,p) in cells.iter().zip(&self.pairs).take(8) { eprintln!("   cells {} of {p:?} off {:e}", c.edges.len(), c.grid.offset); } eprintln!("   total edges {}", cells.iter().map(|c| c.edges.len()).sum::<usize>()); }
        let side = |side: Side| -> Result<Tail> {
            let masses: Vec<(Masses, u64)> = cells
                .iter()
                .zip(&self.pairs)
                .map(|(cells, part)| {
                    let masses = match side {
                        Side::Upper => Masses::pessimistic(cells),
                        Side::Lower => Masses::optimistic(cells),
                    };
                    (masses, part.count)
                })
                .collect();
            compose(&masses, plan, side, self.most_points())
        };
        let (lower, upper) = rayon::join(|| side(Side::Lower), || side(Side::Upper));
        Ok(Enclosure { lower: lower?, upper: upper?, mesh })
    }
}

/// Splitting adds about twice the variance that merging loses, so the truth lies about a third of the way up.
fn between(lower: f64, upper: f64) -> Bounds {
    Bounds { lower, estimate: lower + (upper - lower) / 3.0, upper }
}
