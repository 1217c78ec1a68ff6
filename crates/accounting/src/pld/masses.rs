//! Discrete pairs on the loss grid: one that dominates the true pair and one that it dominates.

use super::cells::{Cell, Cells, Enclosed, Grid};
use super::convolve::Side;
use crate::normal::UNIT;

/// Masses under P at grid losses; the mass under Q at loss ℓ is e^{−ℓ} times that.
///
/// Adding mass at any loss can only raise every hockey-stick divergence, after any composition:
/// each outcome contributes max(0, P − e^ε Q). So rounding every mass up is safe for an upper
/// bound, and rounding every mass down for a lower bound.
#[derive(Debug, Clone)]
pub struct Masses {
    pub grid: Grid,
    pub index: Vec<i64>,
    pub mass: Vec<f64>,
    /// Mass under P where Q has none (infinite loss).
    pub infinite: f64,
}

impl Masses {
    /// A pair that dominates the true one: every cell's mass is split between its edges so that P
    /// and Q keep their totals in the cell, which spreads it (PROOFS.md, section 4.1).
    pub fn pessimistic(cells: &Cells) -> Masses {
        let edges = cells.edges.len();
        let mut mass = vec![0.0; edges];
        for (i, cell) in cells.cells.iter().enumerate() {
            mass[i] += cell.share_of_lower_edge().upper() * (1.0 + 16.0 * UNIT);
            mass[i + 1] += cell.share_of_upper_edge().upper() * (1.0 + 16.0 * UNIT);
        }
        // Below the first edge, P's mass moves up to it. Above the last edge, P's mass counts as
        // infinite loss, and once more at the edge so that Q keeps its mass too.
        mass[0] += cells.p_outside_below;
        mass[edges - 1] += cells.p_outside_above;
        Masses {
            grid: cells.grid,
            index: cells.edges.clone(),
            mass: mass.into_iter().map(|m| m * (1.0 + 4.0 * UNIT)).collect(),
            infinite: cells.p_outside_above,
        }
    }

    /// A pair that the true one dominates. Tangents bound the true hockey-stick curve from below;
    /// the pair has the largest curve under these tangents that bends only at grid losses
    /// (PROOFS.md, section 4.2).
    ///
    /// Mass that cannot be balanced is lost. A pair that loses more than `harmless` and more than
    /// it holds is replaced by the trivial pair.
    pub fn optimistic(cells: &Cells, harmless: f64) -> Masses {
        // The mass above the topmost edge moves down to it. It must outweigh the rounding errors
        // there; otherwise a lower edge becomes the topmost one.
        let mut dropped = 0;
        while dropped < cells.cells.len() {
            match under_tangents(cells, cells.cells.len() - dropped) {
                Some(masses) if masses.mean_loss() > -harmless => return masses,
                Some(_) => break,
                None => dropped = (2 * dropped).max(1),
            }
        }
        Masses::trivial(cells.grid.mesh)
    }

    /// Removes the losses above `cap`: for an upper bound they become infinite, for a lower bound
    /// they move down to the last remaining loss.
    pub fn capped(mut self, cap: f64, side: Side) -> Masses {
        let kept = self.index.partition_point(|&i| self.grid.loss(i) <= cap);
        if kept == 0 || kept == self.index.len() {
            return self;
        }
        let rounding = 2.0 * self.index.len() as f64 * UNIT;
        let moved: f64 = self.mass[kept..].iter().sum();
        self.index.truncate(kept);
        self.mass.truncate(kept);
        match side {
            Side::Upper => self.infinite += moved * (1.0 + rounding),
            Side::Lower => self.mass[kept - 1] += moved * (1.0 - rounding),
        }
        self
    }

    /// All outcomes merged into one. For a pair much narrower than the mesh this loses almost
    /// nothing, and no grid could do better.
    fn trivial(mesh: f64) -> Masses {
        let grid = Grid { mesh, offset: 0.0 };
        Masses { grid, index: vec![0], mass: vec![1.0], infinite: 0.0 }
    }

    /// Positive for every true pair; negative for a discrete pair that has lost more than it holds.
    fn mean_loss(&self) -> f64 {
        self.index.iter().zip(&self.mass).map(|(&i, m)| m * self.grid.loss(i)).sum()
    }
}

/// The largest grid curve under the tangents of the lowest `count` cells, or `None` if it does not
/// correspond to nonnegative masses.
fn under_tangents(cells: &Cells, count: usize) -> Option<Masses> {
    if count < 2 {
        return None;
    }
    let (kept, above) = cells.cells.split_at(count);
    let above: f64 = above.iter().map(|cell| cell.mass_rounded_down()).sum::<f64>()
        + cells.p_outside_above * (1.0 - 1e-8);
    let mut active: Vec<(usize, f64)> = Vec::with_capacity(count + 1);
    for (edge, mass) in tangent_masses(kept, above).into_iter().enumerate() {
        active.push((edge, mass));
        absorb_negative(&mut active, cells);
    }
    let mut owed = 0.0;
    for (_, mass) in &mut active {
        // Moving a negative mass of P to a higher loss only lowers the curve.
        *mass += owed;
        owed = mass.min(0.0);
        *mass = mass.max(0.0);
    }
    if owed < 0.0 {
        return None;
    }
    Some(Masses {
        grid: cells.grid,
        index: active.iter().map(|&(edge, _)| cells.edges[edge]).collect(),
        mass: active.iter().map(|&(_, m)| m * (1.0 - 32.0 * UNIT)).collect(),
        infinite: 0.0,
    })
}

/// The masses of the curve through the tangents' values at the edges, rounded down, with the mass
/// `above` at the topmost edge. Negative masses mean that the curve is not yet convex.
fn tangent_masses(list: &[Cell], above: f64) -> Vec<f64> {
    let dip = dips(list);
    let mut masses = vec![0.0; list.len() + 1];
    for (i, cell) in list.iter().enumerate() {
        // The cell's mass at each edge once the curve is lowered by the dips.
        let lowered = |excess: Enclosed, here: f64, other: f64, scale: f64| {
            let value = excess.value + here - other;
            let error = excess.error + 8.0 * UNIT * (excess.value + here + other);
            (value - error) * scale
        };
        masses[i] += lowered(cell.below, dip[i], dip[i + 1], 1.0 / cell.width.exp_m1());
        masses[i + 1] += lowered(cell.above, dip[i + 1], dip[i], 1.0 / -(-cell.width).exp_m1());
    }
    masses[list.len()] += above;
    masses.iter().map(|m| m - 16.0 * UNIT * m.abs()).collect()
}

/// How far below the true curve each edge must lie so that the chord over each cell stays under a
/// tangent of it.
///
/// The tangent in the middle of a cell is below the curve at the lower edge by `above` of the lower
/// half and at the upper edge by `below` of the upper half. A tangent at one edge is below the
/// curve only at the other edge. Any choice is valid. Mass beyond an edge that cannot be balanced
/// is lost, so the choice that loses least is taken.
fn dips(list: &[Cell]) -> Vec<f64> {
    let cells = list.len();
    // The excess of all mass above (below) each edge: the two sides of the curve at the edge. Q's
    // masses are multiplied by e^loss of the edge.
    let mut above = vec![0.0; cells + 1];
    let mut below = vec![0.0; cells + 1];
    let (mut q_above, mut q_below) = (0.0, 0.0);
    for i in 0..cells {
        let up = &list[i];
        below[i + 1] = below[i] + up.below.value + up.width.exp_m1() * q_below;
        q_below = up.width.exp() * (q_below + up.q_at_lower_edge());
        let down = &list[cells - 1 - i];
        above[cells - 1 - i] =
            above[cells - i] + down.above.value - (-down.width).exp_m1() * q_above;
        q_above = (-down.width).exp() * q_above + down.q_at_lower_edge();
    }
    let mut dip = vec![0.0_f64; cells + 1];
    for (i, cell) in list.iter().enumerate() {
        let in_the_middle = (cell.above_lower_half.upper(), cell.below_upper_half.upper());
        let at_lower_edge = (0.0, cell.below.upper());
        let at_upper_edge = (cell.above.upper(), 0.0);
        // At the top nothing may be lost. At the bottom, unbalanced mass removes mass one cell
        // higher, which costs that much more than lowering the curve (see `under_tangents`). A
        // tangent at an edge moves mass farther than one in the middle, so that also counts as a
        // cost.
        let unbalanced = |lower: f64| (lower - below[i]).max(0.0) / cell.width.min(1.0);
        let cost = |(lower, upper): (f64, f64), moved: f64| {
            if upper > above[i + 1] { f64::INFINITY } else { unbalanced(lower) + moved }
        };
        let choices = [
            (in_the_middle, cost(in_the_middle, 0.0)),
            (at_lower_edge, cost(at_lower_edge, at_lower_edge.1)),
            (at_upper_edge, cost(at_upper_edge, at_upper_edge.0)),
        ];
        let cheapest = choices.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|c| c.0);
        // The outermost edges must not dip: the totals of P and Q are read off there.
        let (at_lower, at_upper) = match cheapest {
            _ if i + 1 == cells => at_upper_edge,
            _ if i == 0 => at_lower_edge,
            Some(choice) => choice,
            None => in_the_middle,
        };
        dip[i] = dip[i].max(at_lower * (1.0 + 4.0 * UNIT));
        dip[i + 1] = dip[i + 1].max(at_upper * (1.0 + 4.0 * UNIT));
    }
    dip
}

/// While the last edge but one has a negative mass, the curve is not convex there. The edge is
/// dropped and the curve runs straight between its neighbors, which is the same as splitting the
/// negative mass between them.
fn absorb_negative(active: &mut Vec<(usize, f64)>, cells: &Cells) {
    while active.len() >= 3 {
        let at = active.len() - 2;
        let (edge, mass) = active[at];
        if mass >= 0.0 {
            return;
        }
        // Distances in whole meshes, so the offset costs no accuracy.
        let distance =
            |from: usize, to: usize| (cells.edges[to] - cells.edges[from]) as f64 * cells.grid.mesh;
        let (low, high) = (active[at - 1].0, active[at + 1].0);
        let (from_low, to_high) = (distance(low, edge), distance(edge, high));
        let across = distance(low, high);
        let more = mass * (1.0 + 64.0 * UNIT);
        active[at + 1].1 += more * (-from_low).exp_m1() / (-across).exp_m1();
        active[at - 1].1 += more * to_high.exp_m1() / across.exp_m1();
        active.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::upper_tail;
    use crate::pld::cells::Weighing;
    use crate::pld::mixture::Mixture;
    use crate::pld::pair::{Pair, Repeated};
    use crate::pld::sketch::Sketch;

    /// The pair's hockey-stick divergence, in closed form.
    fn exact(pair: &Pair, epsilon: f64) -> f64 {
        let z = pair.threshold(epsilon);
        (0..pair.components())
            .map(|c| pair.excess_weight(c, epsilon) * upper_tail(z - pair.mean(c)))
            .sum()
    }

    /// The same for the reversed pair: Q − e^ε P over the points with loss below −ε.
    fn exact_reversed(pair: &Pair, epsilon: f64) -> f64 {
        let z = pair.threshold(-epsilon);
        let sum: f64 = (0..pair.components())
            .map(|c| pair.excess_weight(c, -epsilon) * upper_tail(pair.mean(c) - z))
            .sum();
        -sum * epsilon.exp()
    }

    fn of_masses(masses: &Masses, epsilon: f64) -> f64 {
        let above =
            |(&i, m): (&i64, &f64)| m * (-(epsilon - masses.grid.loss(i)).exp_m1()).max(0.0);
        masses.infinite + masses.index.iter().zip(&masses.mass).map(above).sum::<f64>()
    }

    fn pairs() -> Vec<Pair> {
        let mut pairs = Vec::new();
        for sampling_rate in [1e-6, 1e-3, 0.05, 0.6] {
            for shift in [0.01, 0.3, 1.0, 3.0, 12.0] {
                pairs.push(Pair::Shifted { sampling_rate, shift });
                pairs.push(Pair::Opposed { sampling_rate, shift });
            }
        }
        pairs.extend([0.01, 0.5, 3.0].map(|shift| Pair::Shifted { sampling_rate: 1.0, shift }));
        for (examples, sampling_rate, shift) in
            [(2, 1e-3, 3.0), (4, 0.05, 1.0), (16, 1e-6, 0.3), (16, 0.3, 0.2), (100, 0.01, 0.5)]
        {
            let mixture = Mixture::new(examples, sampling_rate, shift);
            pairs.push(Pair::Mixed(std::sync::Arc::new(mixture)));
        }
        pairs
    }

    /// Compares both discrete pairs with the closed form, at many ε and in both directions. This
    /// fails if a mass is split, merged or rounded to the wrong side.
    #[test]
    fn the_true_curve_lies_between_the_two_discrete_ones() {
        for pair in pairs() {
            let sketch = Sketch::of(&Repeated { pair: pair.clone(), count: 1 }, 1e-12);
            for mesh in [0.3, 0.02, 1e-3] {
                for tilt in [0.5, 8.0, -1.5, -9.0] {
                    let cells = Cells::cut(
                        &pair,
                        &sketch,
                        Weighing { tilt, one_loss: None },
                        mesh,
                        1e-12,
                        100_000,
                    );
                    let (cells, reversed) =
                        if tilt < 0.0 { (cells.reversed(), true) } else { (cells, false) };
                    let (upper, lower) =
                        (Masses::pessimistic(&cells), Masses::optimistic(&cells, 1e-3));
                    let total: f64 = lower.mass.iter().sum();
                    assert!(total <= 1.0, "{pair:?}: the lower masses add up to {total}");
                    for i in -60..=60 {
                        let epsilon = 0.11 * f64::from(i) * (1.0 + 0.3 * f64::from(i).abs());
                        let truth = if reversed {
                            exact_reversed(&pair, epsilon)
                        } else {
                            exact(&pair, epsilon)
                        };
                        let (low, high) = (of_masses(&lower, epsilon), of_masses(&upper, epsilon));
                        let slack = 1e-9 * truth.abs() + 4e-15 * (1.0 + epsilon.exp());
                        assert!(
                            low <= truth + slack && truth <= high + slack,
                            "{pair:?} mesh {mesh} tilt {tilt} ε {epsilon}: {low:e} ≤ {truth:e} ≤ \
                             {high:e}"
                        );
                    }
                }
            }
        }
    }

    /// Mass at a large loss with almost none between it and the rest: rounding errors of the rest
    /// must not pull it down.
    #[test]
    fn the_lower_pair_keeps_what_lies_beyond_a_valley() {
        let mean = |m: &Masses| m.mean_loss();
        for shift in [8.0, 12.0, 17.0, 20.0] {
            for sampling_rate in [1e-3, 0.0747, 0.3, 0.999, 1.0] {
                let pair = Pair::Shifted { sampling_rate, shift };
                let sketch = Sketch::of(&Repeated { pair: pair.clone(), count: 1 }, 1e-12);
                for mesh in [0.14, 0.042, 0.01] {
                    let weighing = Weighing { tilt: 0.03, one_loss: None };
                    let cells = Cells::cut(&pair, &sketch, weighing, mesh, 1e-12, 100_000);
                    let (upper, lower) = (
                        mean(&Masses::pessimistic(&cells)),
                        mean(&Masses::optimistic(&cells, 1e-3)),
                    );
                    assert!(
                        lower <= upper && upper - lower < 1e-3 * upper.max(mesh * mesh),
                        "{pair:?} mesh {mesh}: {lower} … {upper}"
                    );
                }
            }
        }
    }

    /// The error is of second order: a mesh ten times finer has a hundredth of the error.
    #[test]
    fn the_error_is_of_second_order() {
        let pair = Pair::Shifted { sampling_rate: 0.3, shift: 1.0 };
        let sketch = Sketch::of(&Repeated { pair: pair.clone(), count: 1 }, 1e-12);
        let gap = |mesh: f64| {
            let cells = Cells::cut(
                &pair,
                &sketch,
                Weighing { tilt: 1.0, one_loss: None },
                mesh,
                1e-12,
                100_000,
            );
            // Between two edges, where the bounds are least tight.
            let at = |m: &Masses| {
                (0..7).map(|i| of_masses(m, 0.2 + mesh * f64::from(i) / 7.0)).sum::<f64>()
            };
            at(&Masses::pessimistic(&cells)) - at(&Masses::optimistic(&cells, 1e-3))
        };
        let (coarse, fine) = (gap(0.02), gap(0.002));
        assert!(coarse > 0.0 && fine > 0.0 && fine < coarse / 60.0, "{coarse:e} {fine:e}");
    }
}
