//! Blocks of a matrix product that are computed in registers, and the packed panels that they are
//! computed from.
//!
//! A block has up to [`HEIGHT`](Kernel::HEIGHT) rows and up to two registers of columns. All of its
//! sums stay in registers while the loop runs over k: at each k, the two registers of the right
//! panel are multiplied with one value of the left panel for each row. Each sum is a single chain
//! of fused multiply-adds in the order of k, so that it does not depend on the size of its block.
//!
//! *Panels* have the layout `[k][lane]`: the values for one k are adjacent. A left panel has as
//! many lanes as its block has rows, a right panel one or two registers of lanes; values past the
//! last column are meaningless.

mod avx2;
mod avx512;

#[cfg(target_os = "linux")]
pub use avx512::turn_registers;
use std::ops::Range;

/// One side of a block in memory: some lanes (rows of the left matrix, columns of the right one) of
/// values along k.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    /// The values, starting with the first value of the first lane.
    pub values: &'a [f32],
    pub count: usize,
    pub depth: usize,
    pub lane_stride: usize,
    pub k_stride: usize,
    /// A factor for each index along k.
    pub weights: Option<&'a [f32]>,
}

impl<'a> Lanes<'a> {
    /// A range of lanes and a range along k.
    pub fn part(&self, lanes: Range<usize>, along: Range<usize>) -> Lanes<'a> {
        Lanes {
            values: &self.values[lanes.start * self.lane_stride + along.start * self.k_stride..],
            count: lanes.len(),
            depth: along.len(),
            weights: self.weights.map(|weights| &weights[along]),
            ..*self
        }
    }

    /// Checks that everything packing reads is in bounds, and that one of the two directions is
    /// contiguous.
    fn check(&self, lanes: usize) {
        assert!((1..=lanes).contains(&self.count), "at most one register of lanes");
        assert!(self.lane_stride == 1 || self.k_stride == 1, "numbers that lie end to end");
        assert!(self.weights.is_none_or(|weights| weights.len() == self.depth));
        let last =
            (self.count - 1) * self.lane_stride + self.depth.saturating_sub(1) * self.k_stride;
        assert!(self.depth == 0 || last < self.values.len(), "lanes reach beyond the matrix");
    }
}

/// `out = before + scale · left · right` for one block.
#[derive(Clone, Copy)]
pub struct Block {
    pub depth: usize,
    /// A panel with one lane per row of the block.
    pub left: *const f32,
    /// Distance between consecutive k in the left panel.
    pub pitch: usize,
    /// A panel with as many registers as the block.
    pub right: *const f32,
    pub out: *mut f32,
    /// Distance between rows of the output.
    pub stride: usize,
    /// Columns to write; the last register holds at least one of them.
    pub columns: usize,
    pub before: Before,
    pub scale: f32,
}

/// The initial value that the sums of a block are added to.
#[derive(Clone, Copy)]
pub enum Before {
    Nothing,
    /// The current contents of the output.
    Output,
    /// The same row for every row, starting at the first column of the block.
    Row(*const f32),
}

/// The register blocks of one instruction set; a value proves that the processor supports it.
pub trait Kernel: Copy + Send + Sync {
    /// Values per register.
    const LANES: usize;
    /// Maximum number of rows of a block.
    const HEIGHT: usize;
    /// Columns of a block.
    const WIDTH: usize = 2 * Self::LANES;
    /// Rows and columns of the output that are computed together: both of their panels stay in the
    /// L2 cache.
    const NEAR: [usize; 2];

    /// Packs lanes into a panel with `pitch` values for each k. A whole register is written at each
    /// k, in the order of k: values past the pitch are overwritten by the next k, and there must be
    /// room for them after the last one.
    fn pack(self, lanes: &Lanes, panel: &mut [f32], pitch: usize);

    /// Computes a block of `height` rows and `registers` registers.
    ///
    /// # Safety
    /// The panels must be as long as the depth, the height and the number of registers require. The
    /// output must be valid for all rows and columns of the block and not accessed by anyone else.
    /// A [`Before::Row`] must have all columns.
    #[allow(unsafe_code)]
    unsafe fn block(self, height: usize, registers: usize, block: &Block);
}

/// Prefetch distance of both panels, in indices along k: they come from the L2 cache.
const AHEAD: usize = 12;
/// Prefetch distance within a lane while packing, in values: lanes come from main memory, each from
/// a different page.
const NUMBERS_AHEAD: usize = 64;
/// Prefetch distance for lanes that are adjacent in memory, in indices along k.
const ROWS_AHEAD: usize = 12;

/// The function that computes blocks of `$height` rows, numbered `$i`, and `$registers` registers.
/// The rows are written out: the compiler would not fully unroll a loop over them, and would then
/// keep the sums in memory.
macro_rules! block_function {
    (
        $feature:literal, $lanes:literal, $height:literal, $registers:literal, [$($i:literal)*],
        $zero:ident, $load:ident, $all:ident, $multiply_add:ident, $load_some:ident,
        $store:ident, $store_some:ident
    ) => {{
        #[target_feature(enable = $feature)]
        #[allow(unsafe_code)]
        unsafe fn block(block: &Block) {
            let Block { depth, mut left, pitch, mut right, out, stride, columns, before, scale } =
                *block;
            // SAFETY: the caller guarantees panels of this depth and an output of this size.
            unsafe {
                let mut sums = [[$zero(); $registers]; $height];
                for _ in 0..depth {
                    let mut along = [$zero(); $registers];
                    for j in 0..$registers {
                        along[j] = $load(right.add($lanes * j));
                        prefetch(right.wrapping_add($lanes * (j + $registers * AHEAD)));
                    }
                    prefetch(left.wrapping_add(pitch * AHEAD));
                    $({
                        let x = $all(*left.add($i));
                        for j in 0..$registers {
                            sums[$i][j] = $multiply_add(x, along[j], sums[$i][j]);
                        }
                    })*
                    left = left.add(pitch);
                    right = right.add($lanes * $registers);
                }
                let scale = $all(scale);
                let (keep, before, before_stride) = match before {
                    Before::Nothing => (false, out.cast_const(), 0),
                    Before::Output => (true, out.cast_const(), stride),
                    Before::Row(row) => (true, row, 0),
                };
                let last = columns - $lanes * ($registers - 1);
                $({
                    for j in 0..$registers {
                        let place = out.add($i * stride + $lanes * j);
                        let before = before.wrapping_add($i * before_stride + $lanes * j);
                        let whole = j + 1 < $registers || last == $lanes;
                        let old = match (keep, whole) {
                            (false, _) => $zero(),
                            (true, true) => $load(before),
                            (true, false) => $load_some(before, last),
                        };
                        let sum = $multiply_add(scale, sums[$i][j], old);
                        if whole { $store(place, sum) } else { $store_some(place, last, sum) }
                    }
                })*
            }
        }
        block as unsafe fn(&Block)
    }};
}
use block_function;

/// The functions for all heights, each with one and with two registers.
macro_rules! block_functions {
    ($one:ident, $($height:literal [$($i:literal)*])*) => {
        [$([$one!($height, 1, [$($i)*]), $one!($height, 2, [$($i)*])]),*]
    };
}
use block_functions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::level::{Avx2, Avx512, CpuLevel};

    /// Every height and number of columns, with each kind of initial value.
    #[allow(unsafe_code)]
    fn blocks_are_as_defined<K: Kernel>(kernel: K) {
        let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 64.0;
        let depth = 21;
        for height in 1..=K::HEIGHT {
            for columns in 1..=K::WIDTH {
                let bias: Vec<f32> = (0..columns).map(|j| number(j + 3)).collect();
                for before in [Before::Nothing, Before::Output, Before::Row(bias.as_ptr())] {
                    let registers = columns.div_ceil(K::LANES);
                    let pitch = registers * K::LANES;
                    let left: Vec<f32> = (0..depth * height).map(number).collect();
                    let right: Vec<f32> = (0..depth * pitch).map(|i| number(i + 5)).collect();
                    let stride = columns + 3;
                    let mut out = vec![7.0; height * stride];
                    let block = Block {
                        depth,
                        left: left.as_ptr(),
                        pitch: height,
                        right: right.as_ptr(),
                        out: out.as_mut_ptr(),
                        stride,
                        columns,
                        before,
                        scale: 2.0,
                    };
                    // SAFETY: all buffers are as long as the block requires.
                    unsafe { kernel.block(height, registers, &block) };
                    for (i, row) in out.chunks(stride).enumerate() {
                        for (j, value) in row.iter().enumerate() {
                            let term = |k: usize| left[k * height + i] * right[k * pitch + j];
                            let want = match j < columns {
                                true => {
                                    let kept = match before {
                                        Before::Nothing => 0.0,
                                        Before::Output => 7.0,
                                        Before::Row(_) => bias[j],
                                    };
                                    kept + 2.0 * (0..depth).map(term).sum::<f32>()
                                }
                                false => 7.0,
                            };
                            assert!((value - want).abs() < 1e-4, "{height} × {columns}, {i}, {j}");
                        }
                    }
                }
            }
        }
    }

    /// Both directions, every number of lanes and pitch, and depths that are not multiples of the
    /// register width.
    fn panels_are_as_defined<K: Kernel>(kernel: K) {
        for depth in [1, 7, 8, 16, 19, 40] {
            for count in 1..=K::LANES {
                for (lane_stride, k_stride) in [(1, K::LANES + 3), (depth + 2, 1)] {
                    for weighted in [false, true] {
                        let length = (count - 1) * lane_stride + (depth - 1) * k_stride + 1;
                        let values: Vec<f32> = (0..length).map(|i| i as f32).collect();
                        let weights: Vec<f32> = (0..depth).map(|k| 0.5 + k as f32).collect();
                        let weights = weighted.then_some(&weights[..]);
                        let lanes =
                            Lanes { values: &values, count, depth, lane_stride, k_stride, weights };
                        let pitch = count;
                        let mut panel = vec![-1.0; depth * pitch + K::LANES];
                        kernel.pack(&lanes, &mut panel, pitch);
                        for k in 0..depth {
                            for lane in 0..count {
                                let weight = weights.map_or(1.0, |weights| weights[k]);
                                let want = weight * values[lane * lane_stride + k * k_stride];
                                assert_eq!(panel[k * pitch + lane], want, "{depth} × {count}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_kernel_computes_what_is_defined() {
        CpuLevel::each(|_| {
            if let Some(avx512) = Avx512::get() {
                blocks_are_as_defined(avx512);
                panels_are_as_defined(avx512);
            }
            if let Some(avx2) = Avx2::get() {
                blocks_are_as_defined(avx2);
                panels_are_as_defined(avx2);
            }
        });
    }
}
