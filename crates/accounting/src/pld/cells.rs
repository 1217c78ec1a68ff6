//! A pair cut into cells of the privacy-loss axis, with the excess of each cell over its lower and
//! under its upper edge.
//!
//! For the cell between the grid losses a < b, with masses P and Q,
//!
//! ```text
//! above = P − e^a Q ≥ 0        below = e^b Q − P ≥ 0
//! ```
//!
//! and the same for its lower and upper halves are all that the discretizations need (PROOFS.md,
//! section 4). Each value carries a bound on its rounding error.

use super::pair::Pair;
use super::sketch::Sketch;
use crate::normal::{UNIT, tail_relative_error, upper_tail};
use crate::sum::not_negative;

/// Evenly spaced losses. Parts of one composition share the mesh; each has its own offset.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    pub mesh: f64,
    pub offset: f64,
}

impl Grid {
    pub fn loss(&self, index: i64) -> f64 {
        self.offset + index as f64 * self.mesh
    }

    fn index_below(&self, loss: f64) -> i64 {
        ((loss - self.offset) / self.mesh).floor() as i64
    }
}

/// A number and a bound on its error.
#[derive(Debug, Clone, Copy, Default)]
pub struct Enclosed {
    pub value: f64,
    pub error: f64,
}

impl Enclosed {
    pub fn upper(&self) -> f64 {
        not_negative(self.value + self.error)
    }
}

impl std::ops::AddAssign for Enclosed {
    fn add_assign(&mut self, other: Enclosed) {
        self.value += other.value;
        self.error += other.error;
    }
}

impl std::ops::Add for Enclosed {
    type Output = Enclosed;
    fn add(mut self, other: Enclosed) -> Enclosed {
        self += other;
        self
    }
}

/// One cell of the loss axis.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub width: f64,
    pub above: Enclosed,
    pub below: Enclosed,
    /// `above` of the lower half alone.
    pub above_lower_half: Enclosed,
    /// `below` of the upper half alone.
    pub below_upper_half: Enclosed,
}

impl Cell {
    /// The cell's mass under P, rounded down.
    pub fn mass_rounded_down(&self) -> f64 {
        let whole = self.share_of_lower_edge() + self.share_of_upper_edge();
        (whole.value - whole.error).max(0.0) * (1.0 - 32.0 * UNIT)
    }

    /// The cell's mass under Q times e^loss of its lower edge.
    pub fn q_at_lower_edge(&self) -> f64 {
        (self.above.value + self.below.value) / self.width.exp_m1()
    }

    /// The part of the cell's mass under P that goes to its upper edge if both measures are kept.
    pub fn share_of_upper_edge(&self) -> Enclosed {
        let scale = 1.0 / -(-self.width).exp_m1();
        Enclosed { value: self.above.value * scale, error: self.above.error * scale }
    }

    /// The part of the cell's mass under P that goes to its lower edge if both measures are kept.
    pub fn share_of_lower_edge(&self) -> Enclosed {
        let scale = 1.0 / self.width.exp_m1();
        Enclosed { value: self.below.value * scale, error: self.below.error * scale }
    }
}

/// Selects the losses that need narrow cells.
#[derive(Debug, Clone, Copy)]
pub struct Weighing {
    /// Losses with mass under this tilt.
    pub tilt: f64,
    /// If a single event may have a loss of this size: losses up to it, and losses beyond it whose
    /// mass matters compared with the mass above it.
    pub one_loss: Option<f64>,
}

/// A pair on the grid {offset + mesh · i}.
#[derive(Debug)]
pub struct Cells {
    pub grid: Grid,
    /// Grid indices of the edges, increasing.
    pub edges: Vec<i64>,
    /// One fewer than the edges.
    pub cells: Vec<Cell>,
    /// Masses outside the edges, rounded up by less than a relative 10⁻⁸.
    pub p_outside_below: f64,
    pub q_outside_below: f64,
    pub p_outside_above: f64,
    pub q_outside_above: f64,
}

impl Cells {
    /// Cuts `pair` into cells, one mesh wide where its tilted mass lies and wider in its tails,
    /// with at most about `most` edges.
    pub fn cut(
        pair: &Pair,
        sketch: &Sketch,
        weighing: Weighing,
        mesh: f64,
        cut: f64,
        most: i64,
    ) -> Cells {
        // A center that is too low loses a little at the bottom; one that is too high cannot be
        // balanced at the top. Negative tilts are those of the reversed pair, whose top is this
        // pair's bottom.
        let lean = -weighing.tilt.signum();
        let atoms = pair.atoms();
        if !atoms.is_empty() {
            // An atom on the grid loses nothing: place the heaviest one there.
            let tilted = |atom: &(f64, f64)| atom.1.ln() + weighing.tilt * atom.0;
            let heaviest = atoms.iter().max_by(|a, b| tilted(a).total_cmp(&tilted(b)));
            return cut_atoms(&atoms, Grid { mesh, offset: heaviest.map_or(0.0, |atom| atom.0) });
        }
        let offset = pair.center().unwrap_or_else(|| sketch.center(mesh, lean));
        cut_density(pair, sketch, weighing, Grid { mesh, offset }, cut, most)
    }

    /// The same pair with P and Q exchanged: losses change their sign, and masses under P become
    /// masses under Q.
    pub fn reversed(&self) -> Cells {
        let scaled = |e: Enclosed, loss: f64| {
            let factor = loss.exp();
            let error = (e.error + e.value * UNIT * (8.0 + 4.0 * loss.abs())) * factor;
            Enclosed { value: e.value * factor, error }
        };
        let cells = self.cells.iter().zip(self.edges.windows(2)).rev().map(|(cell, edges)| {
            let (low, high) = (self.grid.loss(edges[0]), self.grid.loss(edges[1]));
            Cell {
                width: cell.width,
                above: scaled(cell.below, -high),
                below: scaled(cell.above, -low),
                above_lower_half: scaled(cell.below_upper_half, -high),
                below_upper_half: scaled(cell.above_lower_half, -low),
            }
        });
        Cells {
            grid: Grid { offset: -self.grid.offset, ..self.grid },
            cells: cells.collect(),
            edges: self.edges.iter().rev().map(|e| -e).collect(),
            p_outside_below: self.q_outside_above,
            q_outside_below: self.p_outside_above,
            p_outside_above: self.q_outside_below,
            q_outside_above: self.p_outside_below,
        }
    }
}

fn cut_atoms(atoms: &[(f64, f64)], grid: Grid) -> Cells {
    let mut edges: Vec<i64> = atoms
        .iter()
        .flat_map(|(l, _)| {
            let i = grid.index_below(*l);
            [i - 1, i, i + 1, i + 2]
        })
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let mut cells: Vec<Cell> = edges
        .windows(2)
        .map(|e| Cell { width: (e[1] - e[0]) as f64 * grid.mesh, ..Cell::default() })
        .collect();
    for &(loss, mass) in atoms {
        // The cell that holds the atom; rounding may put an atom on an edge on either side of it.
        let right = edges.partition_point(|&e| grid.loss(e) <= loss).clamp(1, edges.len() - 1);
        let (a, b) = (grid.loss(edges[right - 1]), grid.loss(edges[right]));
        let cell = &mut cells[right - 1];
        let error = mass * UNIT * (16.0 + 8.0 * loss.abs());
        let above = Enclosed { value: mass * -(-(loss - a).max(0.0)).exp_m1(), error };
        let below = Enclosed { value: mass * (b - loss).max(0.0).exp_m1(), error };
        cell.above += above;
        cell.below += below;
        if loss < 0.5 * (a + b) {
            cell.above_lower_half += above;
        } else {
            cell.below_upper_half += below;
        }
    }
    Cells {
        grid,
        edges,
        cells,
        p_outside_below: 0.0,
        q_outside_below: 0.0,
        p_outside_above: 0.0,
        q_outside_above: 0.0,
    }
}

/// Both tails of one component at one point.
#[derive(Clone, Copy)]
struct Tails {
    offset: f64,
    lower: f64,
    upper: f64,
}

impl Tails {
    /// The tails at a distance `offset` above the component's mean.
    fn at(offset: f64) -> Tails {
        let small = upper_tail(offset.abs());
        let (lower, upper) = if offset > 0.0 { (1.0 - small, small) } else { (small, 1.0 - small) };
        Tails { offset, lower, upper }
    }

    fn error(&self, tail: f64) -> f64 {
        if tail == 0.0 {
            return f64::MIN_POSITIVE;
        }
        tail * tail_relative_error(self.offset.abs())
    }

    /// The component's mass up to a later point, computed from the tails that are small there.
    fn mass_until(&self, right: &Tails) -> Enclosed {
        let (at_left, at_right) =
            if self.offset > 0.0 { (self.upper, right.upper) } else { (self.lower, right.lower) };
        let error = self.error(at_left) + right.error(at_right);
        Enclosed { value: (at_left - at_right).abs(), error }
    }
}

/// The weight of one component in P − e^loss·Q at an edge.
#[derive(Clone, Copy)]
struct Weight {
    value: f64,
    error: f64,
}

impl Weight {
    fn new(pair: &Pair, component: usize, loss: f64) -> Weight {
        let value = pair.excess_weight(component, loss);
        Weight { value, error: pair.excess_weight_error(component, loss) }
    }

    /// Weight × mass.
    fn times(&self, mass: Enclosed, sign: f64) -> Enclosed {
        Enclosed {
            value: sign * self.value * mass.value,
            error: self.value.abs() * (mass.error + 4.0 * UNIT * mass.value)
                + self.error * (mass.value + mass.error),
        }
    }
}

/// Σ over the components of weight × mass, for the weights of P − e^loss·Q at both edges of a cell
/// and the masses in both of its halves.
#[derive(Clone, Copy, Default)]
struct Excess {
    above_lower_half: Enclosed,
    above_upper_half: Enclosed,
    below_lower_half: Enclosed,
    below_upper_half: Enclosed,
}

impl Excess {
    fn add(&mut self, at: [Weight; 2], [lower_half, upper_half]: [Enclosed; 2]) {
        let [left, right] = at;
        self.above_lower_half += left.times(lower_half, 1.0);
        self.above_upper_half += left.times(upper_half, 1.0);
        self.below_lower_half += right.times(lower_half, -1.0);
        self.below_upper_half += right.times(upper_half, -1.0);
    }

    /// The cell of this width, with `left_out` of P's mass anywhere.
    fn into_cell(self, width: f64, left_out: f64) -> Cell {
        let enclosed =
            |sum: Enclosed| Enclosed { value: sum.value.max(0.0), error: sum.error + left_out };
        let above_lower_half = enclosed(self.above_lower_half);
        let below_upper_half = enclosed(self.below_upper_half);
        Cell {
            width,
            above: above_lower_half + enclosed(self.above_upper_half),
            below: below_upper_half + enclosed(self.below_lower_half),
            above_lower_half,
            below_upper_half,
        }
    }
}

fn cut_density(
    pair: &Pair,
    sketch: &Sketch,
    weighing: Weighing,
    grid: Grid,
    cut: f64,
    most: i64,
) -> Cells {
    let (z_low, z_high) = pair.support(cut);
    let edges = choose_edges(sketch, weighing, grid, (pair.loss(z_low), pair.loss(z_high)), most);
    let losses: Vec<f64> = edges.iter().map(|&edge| grid.loss(edge)).collect();
    let points: Vec<f64> = losses.iter().map(|&loss| pair.threshold(loss)).collect();
    let middle = |ends: &[f64]| pair.threshold(0.5 * (ends[0] + ends[1]));
    let middles: Vec<f64> = losses.windows(2).map(middle).collect();
    let mut sums = vec![Excess::default(); middles.len()];
    // Masses of P and Q below the first edge, then of both above the last.
    let mut outside = [0.0; 4];
    for component in 0..pair.components() {
        let (mean, p, q) =
            (pair.mean(component), pair.p_weight(component), pair.q_weight(component));
        let mut left = Tails::at(points[0] - mean);
        let mut left_weight = Weight::new(pair, component, losses[0]);
        outside[0] += p * left.lower;
        outside[1] += q * left.lower;
        for (i, sum) in sums.iter_mut().enumerate() {
            let middle = Tails::at(middles[i] - mean);
            let right = Tails::at(points[i + 1] - mean);
            let right_weight = Weight::new(pair, component, losses[i + 1]);
            let masses = [left.mass_until(&middle), middle.mass_until(&right)];
            sum.add([left_weight, right_weight], masses);
            (left, left_weight) = (right, right_weight);
        }
        outside[2] += p * left.upper;
        outside[3] += q * left.upper;
    }
    let left_out = pair.left_out();
    let of_p = |mass: f64| mass * (1.0 + 1e-9) + left_out;
    let widths = edges.windows(2).map(|ends| (ends[1] - ends[0]) as f64 * grid.mesh);
    Cells {
        grid,
        cells: sums.iter().zip(widths).map(|(sum, width)| sum.into_cell(width, left_out)).collect(),
        edges,
        p_outside_below: of_p(outside[0]),
        q_outside_below: outside[1] * (1.0 + 1e-9),
        p_outside_above: of_p(outside[2]),
        q_outside_above: outside[3] * (1.0 + 1e-9),
    }
}

/// Tilted mass that is negligible.
const NEGLIGIBLE: f64 = 1e-14;

/// Edges one mesh apart where the tilted mass T beyond them is above a tenth, and (10 T)^(−1/3)
/// meshes apart farther out. The error of a cell grows with mass × width², so this loses little and
/// saves most of the work.
fn choose_edges(
    sketch: &Sketch,
    weighing: Weighing,
    grid: Grid,
    (low, high): (f64, f64),
    most: i64,
) -> Vec<i64> {
    let weights = sketch.tilted(weighing.tilt);
    // Sum from both ends, so that the small sums are exact.
    let mut from_below = vec![0.0; weights.len() + 1];
    let mut from_above = vec![0.0; weights.len() + 1];
    for i in 0..weights.len() {
        from_below[i + 1] = from_below[i] + weights[i];
        let j = weights.len() - 1 - i;
        from_above[j] = from_above[j + 1] + weights[j];
    }
    // Mass of a single loss above each point, relative to the mass above `one_loss`; at most 1.
    let single = weighing.one_loss.map_or(vec![0.0; weights.len() + 1], |loss| {
        let mut above = sketch.tilted(0.0);
        above.push(0.0);
        for i in (0..weights.len()).rev() {
            above[i] += above[i + 1];
        }
        let mass_above = above[sketch.loss.partition_point(|&l| l < loss)].max(f64::MIN_POSITIVE);
        above.into_iter().map(|mass| (mass / mass_above).min(1.0)).collect()
    });
    let widest = (0.5 / ((1.0 + weighing.tilt.abs()) * grid.mesh)).clamp(1.0, 1e9);
    let position = |index: i64| {
        let loss = grid.loss(index);
        sketch.loss.partition_point(|&l| l < loss)
    };
    let width_for = |mass: f64| {
        let mass = mass.max(1e-300);
        let balanced = (10.0 * mass).powf(-1.0 / 3.0).clamp(1.0, widest);
        // Far out a cell may be so wide that its mass, moved across it, is still negligible.
        balanced.max((NEGLIGIBLE / mass).ln() * 2.0 * widest)
    };
    // Each point of the sketch represents the interval around it: include its neighbors.
    let width_between = |from: i64, to: i64| -> f64 {
        let (a, b) = (position(from).saturating_sub(1), (position(to) + 1).min(weights.len()));
        let mass = from_below[b].min(from_above[a]);
        width_for(if to > 0 { mass.max(single[a]) } else { mass })
    };
    let (first, last) = (grid.index_below(low) - 1, grid.index_below(high) + 2);
    // If there are too many edges, space them farther apart: wider cells are less tight, never
    // wrong.
    let mut narrowest = 1_i64;
    loop {
        let mut at = first;
        let mut edges = vec![at];
        while at < last && edges.len() as i64 <= most {
            let mut width = 1_i64 << (width_between(at, at) as i64).max(1).ilog2();
            while width > narrowest && width_between(at, at + width) < width as f64 {
                width /= 2;
            }
            width = width.max(narrowest);
            // The center of the grid, where a narrow pair concentrates, is always an edge, with a
            // cell of one mesh on either side.
            for center in [-1, 0, 1] {
                if at < center {
                    width = width.min(center - at);
                }
            }
            at += width;
            edges.push(at);
        }
        if at >= last {
            return edges;
        }
        narrowest *= 2;
    }
}
