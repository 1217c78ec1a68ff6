//! Discrete pairs on the loss grid: one that dominates the true pair and one that it dominates.

use super::cells::{Cell, Cells, Enclosed, Grid};
use crate::normal::UNIT;

/// Masses under P at grid losses; the mass under Q at loss ℓ is e^{−ℓ} times that.
///
/// Adding mass at any loss can only raise every hockey-stick divergence, after any composition: each outcome contributes
/// max(0, P − e^ε Q). So a rounding error is on the safe side of an upper bound if every mass is rounded up, and of a lower
/// bound if every mass is rounded down.
#[derive(Debug, Clone)]
pub struct Masses {
    pub grid: Grid,
    pub index: Vec<i64>,
    pub mass: Vec<f64>,
    /// Mass under P where Q has none.
    pub infinite: f64,
}

impl Masses {
    /// A pair that dominates the true one: every cell's mass is split between its edges so that P and Q keep their
    /// totals in the cell, which spreads it (PROOFS.md, section 4.1).
    pub fn pessimistic(cells: &Cells) -> Masses {
        let edges = cells.edges.len();
        let mut mass = vec![0.0; edges];
        for (i, cell) in cells.cells.iter().enumerate() {
            mass[i] += cell.share_of_lower_edge().upper() * (1.0 + 16.0 * UNIT);
            mass[i + 1] += cell.share_of_upper_edge().upper() * (1.0 + 16.0 * UNIT);
        }
        // Below the first edge: P's mass moves up to it. Above the last: it counts where Q has none, and once more at the
        // edge so that Q keeps its mass too.
        mass[0] += cells.p_outside_below;
        mass[edges - 1] += cells.p_outside_above;
        Masses {
            grid: cells.grid,
            index: cells.edges.clone(),
            mass: mass.into_iter().map(|m| m * (1.0 + 4.0 * UNIT)).collect(),
            infinite: cells.p_outside_above,
        }
    }

    /// A pair that the true one dominates: tangents bound the true hockey-stick curve from below, and the largest curve
    /// under them that bends only at grid losses is taken (PROOFS.md, section 4.2).
    ///
    /// What cannot be balanced is lost; a pair that loses more than `harmless` and more than it holds is not used.
    pub fn optimistic(cells: &Cells, harmless: f64) -> Masses {
        // Whatever lies above the topmost edge moves down to it. That mass must outweigh the rounding errors there: where
        // it does not, a lower edge is made the topmost one.
        let mut dropped = 0;
        while dropped < cells.cells.len() {
            match under_tangents(cells, cells.cells.len() - dropped) {
                Some(masses) if masses.mean_loss() > -harmless => return masses,
                Some(_) => break,
                None => dropped = (2 * dropped).max(1),
            }
        }
        Masses::nothing_learnt(cells.grid.mesh)
    }

    /// All outcomes merged into one. For a pair that is much narrower than the mesh that loses next to nothing, and no grid
    /// could do better.
    fn nothing_learnt(mesh: f64) -> Masses {
        let grid = Grid { mesh, offset: 0.0 };
        Masses { grid, index: vec![0], mass: vec![1.0], infinite: 0.0 }
    }

    /// Positive for every real pair; a discrete pair that has lost more than it holds may be below.
    fn mean_loss(&self) -> f64 {
        self.index.iter().zip(&self.mass).map(|(&i, m)| m * self.grid.loss(i)).sum()
    }
}

/// The largest grid curve under the tangents of the lowest `count` cells, or None if it is not a curve of masses.
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

/// The masses of the curve through the tangents' values at the edges, rounded down, with the mass `above` at the topmost
/// edge. Some may be negative: there the curve is not convex yet.
fn tangent_masses(list: &[Cell], above: f64) -> Vec<f64> {
    let dip = dips(list);
    let mut masses = vec![0.0; list.len() + 1];
    for (i, cell) in list.iter().enumerate() {
        // How the cell's mass is shared between its edges once the curve is lowered by the dips.
        let lowered = |stands: Enclosed, here: f64, other: f64, scale: f64| {
            let value = stands.value + here - other;
            let error = stands.error + 8.0 * UNIT * (stands.value + here + other);
            (value - error) * scale
        };
        masses[i] += lowered(cell.below, dip[i], dip[i + 1], 1.0 / cell.width.exp_m1());
        masses[i + 1] += lowered(cell.above, dip[i + 1], dip[i], 1.0 / -(-cell.width).exp_m1());
    }
    masses[list.len()] += above;
    masses.iter().map(|m| m - 16.0 * UNIT * m.abs()).collect()
}

/// How far below the true curve each edge must lie so that the chord over each cell stays under a tangent of it.
///
/// The tangent in the middle of a cell misses the curve at the lower edge by `above` of the lower half and at the upper edge
/// by `below` of the upper half. A tangent taken at one edge misses only at the other one. Any choice is valid; what the mass
/// beyond an edge cannot balance is lost, so the choice that loses least is taken.
fn dips(list: &[Cell]) -> Vec<f64> {
    let cells = list.len();
    // What stands above (below) an edge is at least the sum of what its cells stand above (below) their own edges.
    let mut above = vec![0.0; cells + 1];
    let mut below = vec![0.0; cells + 1];
    for i in 0..cells {
        below[i + 1] = below[i] + list[i].below.value;
        above[cells - 1 - i] = above[cells - i] + list[cells - 1 - i].above.value;
    }
    let mut dip = vec![0.0_f64; cells + 1];
    for (i, cell) in list.iter().enumerate() {
        let in_the_middle = (cell.above_lower_half.upper(), cell.below_upper_half.upper());
        let at_lower_edge = (0.0, cell.below.upper());
        let at_upper_edge = (cell.above.upper(), 0.0);
        // At the top nothing may be lost, at the bottom it costs (see `under_tangents`).
        let cost = |(lower, upper): (f64, f64)| {
            if upper > above[i + 1] { f64::INFINITY } else { (lower - below[i]).max(0.0) }
        };
        let choices = [in_the_middle, at_lower_edge, at_upper_edge];
        let cheapest = choices.into_iter().min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        // The outermost edges must not dip: there the totals of P and Q are read off.
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

/// While the last edge but one has a negative mass, the curve is not convex there: the edge is dropped and the curve runs
/// straight between its neighbours, which is the same as splitting the negative mass between them.
fn absorb_negative(active: &mut Vec<(usize, f64)>, cells: &Cells) {
    while active.len() >= 3 {
        let at = active.len() - 2;
        let (edge, mass) = active[at];
        if mass >= 0.0 {
            return;
        }
        // Distances in whole meshes, so that the offset costs no accuracy.
        let distance = |from: usize, to: usize| {
            (cells.edges[to] - cells.edges[from]) as f64 * cells.grid.mesh
        };
        let (low, high) = (active[at - 1].0, active[at + 1].0);
        let (from_low, to_high) = (distance(low, edge), distance(edge, high));
        let across = distance(low, high);
        let more = mass * (1.0 + 64.0 * UNIT);
        active[at + 1].1 += more * (-from_low).exp_m1() / (-across).exp_m1();
        active[at - 1].1 += more * to_high.exp_m1() / across.exp_m1();
        active.remove(at);
    }
}




