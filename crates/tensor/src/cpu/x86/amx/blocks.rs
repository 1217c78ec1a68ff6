//! Products whose blocks are consumed immediately and not stored.

use super::pack::{K_STEP, Lanes, Layout};
use super::tiles::{Before, Configured, SIDE, STEP_TILES, four_tiles, room};
use super::{K_BLOCK, LEFT, RIGHT, dense};
use crate::cpu::level::Amx;
use crate::cpu::view::View;

/// A block of a product, padded with zeros past the edge.
#[repr(C, align(64))]
pub struct Block(pub [f32; SIDE * SIDE]);

/// Rows and columns of a block.
pub const BLOCK_SIDE: usize = SIDE;

/// The tile token, if tiles are available and [`for_each_block`] is efficient for this product.
pub fn blocks_suit(left: &View, right: &View) -> Option<Amx> {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    let suits = m >= 16 && n >= 16 && (16..=K_BLOCK).contains(&k) && dense(left) && dense(right);
    if suits { Amx::get() } else { None }
}

/// Calls `take(row, column, block)` with each block of left · right and the position of its first
/// element.
pub fn for_each_block(
    amx: Amx,
    left: View,
    right: View,
    mut take: impl FnMut(usize, usize, &Block),
) {
    assert_eq!(left.columns, right.rows, "inner sizes of a product");
    assert!((1..=K_BLOCK).contains(&left.columns), "one block along k");
    let (rows, columns) = (left.rows.div_ceil(SIDE), right.columns.div_ceil(SIDE));
    let depth = left.columns;
    let panel_tiles = depth.div_ceil(K_STEP) * STEP_TILES;
    let lanes = |view, across_columns| Lanes {
        view,
        across_columns,
        k_start: 0,
        depth,
        scale: 1.0,
        weights: None,
    };
    LEFT.with_borrow_mut(|lefts| {
        RIGHT.with_borrow_mut(|rights| {
            let (lefts, rights) =
                (room(lefts, rows * panel_tiles), room(rights, columns * panel_tiles));
            let (avx512, sizes) = (amx.avx512(), (panel_tiles, STEP_TILES));
            lanes(left, false).pack_panels(avx512, 0, lefts, sizes, Layout::LanesAreRows);
            lanes(right, true).pack_panels(avx512, 0, rights, sizes, Layout::PairsAreRows);
            let tiles = Configured::new(amx);
            let mut block = Block([0.0; SIDE * SIDE]);
            for (i, left) in lefts.chunks_exact(panel_tiles).enumerate() {
                for (j, right) in rights.chunks_exact(panel_tiles).enumerate() {
                    four_tiles(&tiles, left, right, &mut block.0, SIDE, Before::Nothing);
                    take(i * SIDE, j * SIDE, &block);
                }
            }
        });
    });
}
