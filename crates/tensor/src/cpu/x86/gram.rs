//! Gram matrices in register blocks: the inner products between the rows of a matrix.

use super::blocks::{Before, Block, Kernel, Lanes};
use super::gemm::{DEPTH, Heights, pack_columns, room};
use crate::cpu::level::{Avx2, Avx512};
use crate::cpu::view::View;
use std::cell::RefCell;

thread_local! {
    /// Buffer reused across calls.
    static PANELS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// An instruction set with register blocks.
#[derive(Clone, Copy, Debug)]
pub enum Registers {
    Avx512(Avx512),
    Avx2(Avx2),
}

impl Registers {
    /// The widest registers of this level.
    pub fn get() -> Option<Self> {
        let avx2 = || Avx2::get().map(Self::Avx2);
        Avx512::get().map(Self::Avx512).or_else(avx2)
    }
}

/// The error of an element of a Gram matrix is at most this times Σ|xy|, for rows of `columns`
/// values spread over `matrices` matrices.
///
/// Each run of up to [`DEPTH`] values is a chain of fused multiply-adds, and the runs are added one
/// after the other, at least one for each matrix: a term is rounded at most once for each later
/// value of its run, once for each run, and once for its weight.
pub fn gram_error(columns: usize, matrices: usize) -> f64 {
    let rounded = columns.min(DEPTH) + columns.div_ceil(DEPTH) + matrices + 1;
    1.01 * rounded as f64 * f64::from(f32::EPSILON / 2.0)
}

/// Adds Σ_k w_k x_tk x_sk to the element (t, s) of a square matrix whose side is the number of
/// rows, for all t ≤ s; values below the diagonal are meaningless.
pub fn add_gram(registers: Registers, gram: &mut [f32], rows: View, weights: Option<&[f32]>) {
    match registers {
        Registers::Avx512(avx512) => add(avx512, gram, rows, weights),
        Registers::Avx2(avx2) => add(avx2, gram, rows, weights),
    }
}

#[allow(unsafe_code)]
fn add<K: Kernel>(kernel: K, gram: &mut [f32], rows: View, weights: Option<&[f32]>) {
    let (count, k) = (rows.rows, rows.columns);
    assert_eq!(gram.len(), count * count, "a square matrix");
    assert!(rows.column_stride == 1, "rows of numbers that lie end to end");
    if count == 0 || k == 0 {
        return;
    }
    rows.check();
    let panels = count.div_ceil(K::WIDTH);
    let runs = k.div_ceil(DEPTH);
    PANELS.with_borrow_mut(|space| {
        for run in 0..runs {
            let along = run * k / runs..(run + 1) * k / runs;
            let depth = along.len();
            let size = panels * depth * K::WIDTH;
            let sides = if weights.is_some() { 2 } else { 1 };
            let (right, left) = room(space, sides * size).split_at_mut(size);
            let pack = |space: &mut [f32], weights: Option<&[f32]>| {
                let lanes = Lanes {
                    values: &rows.values[along.start..],
                    count,
                    depth,
                    lane_stride: rows.row_stride,
                    k_stride: 1,
                    weights,
                };
                pack_columns(kernel, &lanes, space);
            };
            pack(right, None);
            if let Some(weights) = weights {
                pack(left, Some(&weights[along.clone()]));
            }
            let right = &*right;
            let left = if weights.is_some() { &*left } else { right };
            for (panel, left) in left.chunks(depth * K::WIDTH).enumerate() {
                let first = panel * K::WIDTH;
                let here = K::WIDTH.min(count - first);
                // A range of lanes of a panel forms the rows of a block.
                let heights = Heights::of::<K>(here);
                for part in 0..heights.panels() {
                    let (row, next) = (heights.start(part), heights.start(part + 1));
                    for panel in panel..panels {
                        let column = panel * K::WIDTH;
                        let columns = K::WIDTH.min(count - column);
                        let block = Block {
                            depth,
                            left: left[row..].as_ptr(),
                            pitch: here.next_multiple_of(K::LANES),
                            right: right[depth * column..].as_ptr(),
                            out: gram[(first + row) * count + column..].as_mut_ptr(),
                            stride: count,
                            columns,
                            before: Before::Output,
                            scale: 1.0,
                        };
                        // SAFETY: the panels were packed above, and the block lies within the
                        // matrix of `count` rows and columns.
                        unsafe { kernel.block(next - row, columns.div_ceil(K::LANES), &block) };
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::level::CpuLevel;

    #[test]
    fn gram_matrices_are_within_their_error() {
        CpuLevel::each(|level| {
            let Some(registers) = Registers::get() else { return };
            for (count, k) in [(1, 1), (5, 40), (33, 384), (64, 385), (70, 1000)] {
                let number = |i: usize| ((i * 37 % 1009) as f32 - 400.0) / 317.0;
                let values: Vec<f32> = (0..count * k).map(number).collect();
                let weights: Vec<f32> = (0..k).map(|i| 0.1 + (i % 7) as f32).collect();
                for weights in [None, Some(&weights[..])] {
                    let mut gram = vec![0.0; count * count];
                    add_gram(registers, &mut gram, View::new(&values, count, k, k), weights);
                    for t in 0..count {
                        for s in t..count {
                            let (mut want, mut size) = (0.0, 0.0);
                            for i in 0..k {
                                let weight = weights.map_or(1.0, |weights| f64::from(weights[i]));
                                let (x, y) = (values[t * k + i], values[s * k + i]);
                                let term = weight * f64::from(x) * f64::from(y);
                                want += term;
                                size += term.abs();
                            }
                            let wrong = (f64::from(gram[t * count + s]) - want).abs();
                            assert!(
                                wrong <= gram_error(k, 1) * size,
                                "{} of {count} × {k} at {t}, {s}: {wrong:e} of {size:e}",
                                level.name()
                            );
                        }
                    }
                }
            }
        });
    }
}
