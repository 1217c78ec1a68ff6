//! Inner products of the rows of a matrix with each other.

use super::pack::{K_STEP, Lanes, Layout, turn};
use super::tiles::{Configured, SIDE, STEP_TILES, four_tiles, room};
use super::{K_BLOCK, LEFT, RIGHT};
use crate::tensor::cpu::matmul::View;

/// Rows and columns that the Gram matrix of so many rows takes.
pub fn gram_side(rows: usize) -> usize {
    rows.next_multiple_of(SIDE)
}

/// Adds Σ_k w_k² x_tk x_sk to the element (t, s) of a square matrix, for all t ≤ s; what is below the diagonal has no meaning.
pub fn add_gram(gram: &mut [f32], rows: View, weights: Option<&[f32]>) {
    let side = gram_side(rows.rows);
    assert_eq!(gram.len(), side * side, "a square of whole tiles");
    assert!(rows.column_stride == 1 && weights.is_none_or(|weights| weights.len() == rows.columns));
    let panels = side / SIDE;
    LEFT.with_borrow_mut(|left| {
        RIGHT.with_borrow_mut(|right| {
            for k_start in (0..rows.columns).step_by(K_BLOCK) {
                let depth = K_BLOCK.min(rows.columns - k_start);
                let panel_tiles = depth.div_ceil(K_STEP) * STEP_TILES;
                let count = panels * panel_tiles;
                let (left, right) = (room(left, count), room(right, count));
                let lanes = Lanes { view: rows, across_columns: false, k_start, depth, scale: 1.0, weights };
                lanes.pack_panels(0, left, panel_tiles, Layout::LanesAreRows);
                left.iter().zip(&mut *right).for_each(|(left, right)| turn(left, right));
                let _tiles = Configured::new();
                for (i, left) in left.chunks_exact(panel_tiles).enumerate() {
                    for (j, right) in right.chunks_exact(panel_tiles).enumerate().skip(i) {
                        four_tiles(left, right, &mut gram[i * SIDE * side + j * SIDE..], side, true);
                    }
                }
            }
        });
    });
}
