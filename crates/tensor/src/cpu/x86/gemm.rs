//! Matrix products (GEMM) in register blocks, with AVX-512 or AVX2 and FMA.
//!
//! k is split into runs of up to [`DEPTH`]. All threads together pack the right matrix once. Each
//! task then packs its rows of the left matrix, run by run, and multiplies them with the right
//! panels. A task is a rectangle of the output: a range of rows and, if there are few rows for many
//! threads, a range of columns.
//!
//! Panels are read from the L2 cache and prefetched, so that the speed does not depend on the size
//! of the L1 cache.

use super::blocks::{Before, Block, Kernel, Lanes};
use crate::cpu::level::{Avx2, Avx512};
use crate::cpu::parallel;
use crate::cpu::simd::widest;
use crate::cpu::view::{Update, View};
use crate::{Host, Operand, Shape};
use std::cell::RefCell;
use std::ops::Range;

/// Depth along k that is packed at a time.
pub const DEPTH: usize = 384;
/// Columns of the right matrix that are packed at a time.
const COLUMNS: usize = 3072;
/// Values of the right matrix that are packed at a time, unless a single run along k has more.
const PACKED: usize = 1 << 22;
/// Number of multiplications above which two threads are faster than one.
const WORTH_SPLITTING: usize = 1_000_000;
/// Minimum number of row panels per task.
const FEWEST_PANELS: usize = 3;

thread_local! {
    /// Buffers reused across calls: the left panels of each thread, and the right panels of the
    /// calling thread.
    static LEFT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static RIGHT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// The values that each thread expands before packing them.
    static EXPANDED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A matrix product, `out (+)= scale · left · diag(weights) · right`.
pub struct Product<'a> {
    pub out: &'a mut [f32],
    /// Distance between rows of the output.
    pub stride: usize,
    pub how: Update<'a>,
    pub scale: f32,
    pub left: View<'a>,
    /// A factor for each index along k.
    pub weights: Option<&'a [f32]>,
    pub right: Right<'a>,
    /// Whether to use all cores.
    pub parallel: bool,
}

/// The right side of a product.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    Plain(View<'a>),
    /// In fewer bits than f32: each thread expands the part that it packs.
    Compact(Operand<'a, Host>),
}

impl Right<'_> {
    /// Rows and columns.
    fn shape(&self) -> Shape {
        match self {
            Self::Plain(view) => [view.rows, view.columns],
            Self::Compact(Operand { matrix, transposed: false }) => {
                [matrix.rows(), matrix.columns()]
            }
            Self::Compact(Operand { matrix, transposed: true }) => {
                [matrix.columns(), matrix.rows()]
            }
        }
    }

    /// Packs a range of columns of a run of rows.
    fn pack<K: Kernel>(
        &self,
        kernel: K,
        columns: Range<usize>,
        along: Range<usize>,
        space: &mut [f32],
    ) {
        let (count, depth) = (columns.len(), along.len());
        match *self {
            Self::Plain(view) => {
                let all = Lanes {
                    values: view.values,
                    count: view.columns,
                    depth: view.rows,
                    lane_stride: view.column_stride,
                    k_stride: view.row_stride,
                    weights: None,
                };
                pack_columns(kernel, &all.part(columns, along), space);
            }
            Self::Compact(Operand { matrix, transposed }) => EXPANDED.with_borrow_mut(|values| {
                let [rows, columns] = if transposed { [columns, along] } else { [along, columns] };
                let part = matrix.row_range(rows).column_range(columns);
                let values = room(values, count * depth);
                widest(
                    #[inline(always)]
                    || {
                        for (i, row) in values.chunks_exact_mut(part.columns()).enumerate() {
                            part.write_row(i, row);
                        }
                    },
                );
                let [lane_stride, k_stride] = if transposed { [depth, 1] } else { [1, count] };
                let lanes = Lanes { values, count, depth, lane_stride, k_stride, weights: None };
                pack_columns(kernel, &lanes, space);
            }),
        }
    }
}

impl Product<'_> {
    /// Computes the product with the widest registers of this level and returns whether it did. It
    /// does not if there is no kernel for this level, if a matrix is contiguous in neither
    /// direction, or if a dimension is 0.
    pub fn run(self) -> bool {
        let dense = |view: &View| view.row_stride == 1 || view.column_stride == 1;
        let dense_right = match &self.right {
            Right::Plain(view) => dense(view),
            Right::Compact(_) => true,
        };
        let empty = self.left.rows * self.left.columns * self.right.shape()[1] == 0;
        if empty || !dense(&self.left) || !dense_right {
            return false;
        }
        if let Some(avx512) = Avx512::get() {
            multiply(avx512, self);
        } else if let Some(avx2) = Avx2::get() {
            multiply(avx2, self);
        } else {
            return false;
        }
        true
    }
}

/// At least `count` values of a buffer, aligned to a cache line.
pub fn room(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    if buffer.len() < count + 16 {
        buffer.resize(count + 16, 0.0);
    }
    let start = buffer.as_ptr().align_offset(64).min(16);
    &mut buffer[start..start + count]
}

/// The destination of some lanes, at most one register of them.
#[derive(Clone)]
struct Place {
    lanes: Range<usize>,
    /// Offset in the packed space.
    start: usize,
    pitch: usize,
}

/// Packs lanes into panels. If lanes are adjacent in memory, a few indices along k are packed for
/// all lanes at a time, so that memory is read along its rows.
fn pack_places<K: Kernel>(
    kernel: K,
    lanes: &Lanes,
    places: impl Iterator<Item = Place> + Clone,
    space: &mut [f32],
) {
    let step = if lanes.lane_stride == 1 { 16 } else { lanes.depth.max(1) };
    for k in (0..lanes.depth).step_by(step) {
        let along = k..lanes.depth.min(k + step);
        for Place { lanes: some, start, pitch } in places.clone() {
            let part = lanes.part(some, along.clone());
            kernel.pack(&part, &mut space[start + k * pitch..], pitch);
        }
    }
}

/// Packs columns of the right matrix into panels of [`Kernel::WIDTH`] columns × `depth` values; a
/// last panel of at most half the width is only half as wide.
pub fn pack_columns<K: Kernel>(kernel: K, lanes: &Lanes, space: &mut [f32]) {
    let (count, depth) = (lanes.count, lanes.depth);
    let places = (0..count.div_ceil(K::LANES)).map(|register| {
        let first = register * K::LANES;
        let panel = first / K::WIDTH * K::WIDTH;
        let width = (count - panel).next_multiple_of(K::LANES).min(K::WIDTH);
        Place {
            lanes: first..count.min(first + K::LANES),
            start: panel * depth + (first - panel),
            pitch: width,
        }
    });
    pack_places(kernel, lanes, places, space);
}

/// The starts of panels of nearly equal height.
#[derive(Clone, Copy)]
pub struct Heights {
    rows: usize,
    panels: usize,
}

impl Heights {
    pub fn of<K: Kernel>(rows: usize) -> Self {
        Self { rows, panels: rows.div_ceil(K::HEIGHT) }
    }

    pub fn panels(self) -> usize {
        self.panels
    }

    /// The first row of a panel, or the number of rows for the panel past the last.
    pub fn start(self, panel: usize) -> usize {
        panel * self.rows / self.panels
    }
}

/// Pointer to the output, of which each task writes its own rectangle.
#[derive(Clone, Copy)]
struct Out(*mut f32);

impl Out {
    /// A method instead of field access: closures then capture the whole struct, which is `Sync`.
    fn get(self) -> *mut f32 {
        self.0
    }
}

// SAFETY: only disjoint rectangles are written, see `multiply`.
#[allow(unsafe_code)]
unsafe impl Send for Out {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Out {}

/// How the output is split into tasks: row panels and column panels per task.
fn tasks<K: Kernel>(row_panels: usize, column_panels: usize, threads: usize) -> [usize; 2] {
    let near = row_panels.div_ceil(K::NEAR[0] / K::HEIGHT);
    if threads == 1 {
        return [near, 1];
    }
    // Two tasks per thread, so that a late thread does not delay the others; the same number for
    // each.
    let wanted = near.max(2 * threads).next_multiple_of(threads);
    if row_panels >= FEWEST_PANELS * wanted {
        return [wanted, 1];
    }
    // With too few rows for that, columns are split too, as little as possible, since each task
    // packs its own rows.
    let rows = row_panels.div_ceil(FEWEST_PANELS).min(2 * threads);
    let columns = (2 * threads).div_ceil(rows).min(column_panels.div_ceil(FEWEST_PANELS));
    let rows = (2 * threads).div_ceil(columns).min(row_panels).max(near);
    [rows, columns]
}

/// The product with the register blocks of one instruction set.
fn multiply<K: Kernel>(kernel: K, product: Product) {
    let Product { out, stride, how, scale, left, weights, right, parallel } = product;
    let (m, k) = (left.rows, left.columns);
    let [inner, n] = right.shape();
    assert_eq!(k, inner, "inner sizes of a product");
    assert!(weights.is_none_or(|weights| weights.len() == k), "one weight for each number along k");
    assert!(m > 0 && k > 0 && n > 0 && (n <= stride || m == 1), "rows of the output overlap");
    assert!((m - 1) * stride + n <= out.len(), "the output is too short for {m} × {n}");
    left.check();
    if let Right::Plain(view) = &right {
        view.check();
    }
    let parallel = parallel && m * n * k > WORTH_SPLITTING;
    let threads = if parallel { rayon::current_num_threads() } else { 1 };
    let heights = Heights::of::<K>(m);
    let out = Out(out.as_mut_ptr());
    let mut packed = RIGHT.with(RefCell::take);
    let runs = k.div_ceil(DEPTH);
    let along = |run: usize| run * k / runs..(run + 1) * k / runs;
    for first_column in (0..n).step_by(COLUMNS) {
        let columns = COLUMNS.min(n - first_column);
        let panels = columns.div_ceil(K::WIDTH);
        let [row_tasks, column_tasks] = tasks::<K>(heights.panels(), panels, threads);
        // Pack as many runs at a time as allowed: all threads synchronize between them.
        let together = (PACKED / (panels * K::WIDTH * DEPTH)).max(1);
        for first_run in (0..runs).step_by(together) {
            let some_runs = first_run..runs.min(first_run + together);
            let start = along(first_run).start;
            let width = panels * K::WIDTH;
            let space = room(&mut packed, (along(some_runs.end - 1).end - start) * width);
            let pack = |_, (run, first, space): (usize, usize, &mut [f32])| {
                let along = along(run);
                let end = columns.min(first + space.len() / along.len());
                right.pack(kernel, first_column + first..first_column + end, along, space);
            };
            // Pack adjacent panels together.
            let group = panels.div_ceil(4 * threads) * K::WIDTH;
            let mut pieces = Vec::new();
            let mut rest = &mut *space;
            for run in some_runs.clone() {
                let depth = along(run).len();
                let (of_run, later) = rest.split_at_mut(depth * width);
                let groups = of_run.chunks_mut(depth * group).enumerate();
                pieces.extend(groups.map(|(i, space)| (run, i * group, space)));
                rest = later;
            }
            if parallel {
                parallel::pieces(pieces.into_iter(), pack);
            } else {
                pieces.into_iter().for_each(|piece| pack(0, piece));
            }
            let space = &*space;
            let task = |number: usize| {
                let (row, column) = (number / column_tasks, number % column_tasks);
                let part = |count: usize, task: usize, tasks: usize| {
                    task * count / tasks..(task + 1) * count / tasks
                };
                let rows = part(heights.panels(), row, row_tasks);
                for run in some_runs.clone() {
                    let along = along(run);
                    let rectangle = Rectangle {
                        left: Lanes {
                            values: &left.values[along.start * left.column_stride..],
                            count: m,
                            depth: along.len(),
                            lane_stride: left.row_stride,
                            k_stride: left.column_stride,
                            weights: weights.map(|weights| &weights[along.clone()]),
                        },
                        heights,
                        right: &space[(along.start - start) * width..(along.end - start) * width],
                        columns,
                        // SAFETY: the column lies within the first row of the output.
                        #[allow(unsafe_code)]
                        out: Out(unsafe { out.get().add(first_column) }),
                        stride,
                        how: if run > 0 { Update::Add } else { how.after_columns(first_column) },
                        scale,
                    };
                    // SAFETY: the checks above ensure that the output has room for all rows and
                    // columns; it is borrowed exclusively, and no two tasks share both a row panel
                    // and a column panel.
                    #[allow(unsafe_code)]
                    unsafe {
                        let columns = part(panels, column, column_tasks);
                        rectangle.compute(kernel, rows.clone(), columns);
                    }
                }
            };
            if parallel {
                parallel::tasks(row_tasks * column_tasks, task);
            } else {
                (0..row_tasks * column_tasks).for_each(task);
            }
        }
    }
    RIGHT.with(|slot| slot.replace(packed));
}

/// A run along k of a product whose right side is packed.
struct Rectangle<'a> {
    /// All rows of the left side.
    left: Lanes<'a>,
    heights: Heights,
    right: &'a [f32],
    columns: usize,
    out: Out,
    stride: usize,
    how: Update<'a>,
    scale: f32,
}

impl Rectangle<'_> {
    /// Computes the blocks of some row panels and column panels.
    ///
    /// # Safety
    /// The output must have room for the blocks, and nothing else may access them meanwhile.
    #[allow(unsafe_code)]
    unsafe fn compute<K: Kernel>(&self, kernel: K, rows: Range<usize>, columns: Range<usize>) {
        let Self { left, heights, right, out, stride, how, scale, .. } = *self;
        let depth = left.depth;
        LEFT.with_borrow_mut(|space| {
            let first = heights.start(rows.start);
            let count = heights.start(rows.end) - first;
            // Each panel is followed by room for one register, which is written at the last k.
            let start = |panel: usize| {
                (heights.start(panel) - first) * depth + (panel - rows.start) * K::LANES
            };
            let space = room(space, count * depth + rows.len() * K::LANES);
            let places = rows.clone().map(|panel| {
                let lanes = heights.start(panel)..heights.start(panel + 1);
                Place { start: start(panel), pitch: lanes.len(), lanes }
            });
            pack_places(kernel, &left, places, space);
            let near = K::NEAR[1] / K::WIDTH;
            for near_columns in columns.clone().step_by(near) {
                let near_columns = near_columns..columns.end.min(near_columns + near);
                for panel in rows.clone() {
                    let (row, next) = (heights.start(panel), heights.start(panel + 1));
                    let left = &space[start(panel)..][..(next - row) * depth];
                    for panel in near_columns.clone() {
                        let column = panel * K::WIDTH;
                        let count = K::WIDTH.min(self.columns - column);
                        let registers = count.div_ceil(K::LANES);
                        let before = match how {
                            Update::Overwrite => Before::Nothing,
                            Update::Add => Before::Output,
                            Update::Bias(row) => Before::Row(row[column..][..count].as_ptr()),
                        };
                        let right = &right[depth * column..][..depth * registers * K::LANES];
                        let block = Block {
                            depth,
                            left: left.as_ptr(),
                            pitch: next - row,
                            right: right.as_ptr(),
                            // SAFETY: guaranteed by the caller.
                            out: unsafe { out.get().add(row * stride + column) },
                            stride,
                            columns: count,
                            before,
                            scale,
                        };
                        // SAFETY: the panels are as long as the slices; the caller guarantees that
                        // the output is valid.
                        unsafe { kernel.block(next - row, registers, &block) };
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of a row panel and a column panel belongs to one task, for any number of threads.
    #[test]
    fn tasks_cover_all_panels_and_are_not_empty() {
        for threads in [1, 2, 3, 16, 64] {
            for rows in [1, 2, 5, 28, 110, 147, 1000] {
                for columns in [1, 12, 96] {
                    let [row_tasks, column_tasks] = tasks::<Avx512>(rows, columns, threads);
                    assert!((1..=rows).contains(&row_tasks), "{rows} in {row_tasks}");
                    assert!((1..=columns).contains(&column_tasks), "{columns} in {column_tasks}");
                }
            }
        }
    }
}
