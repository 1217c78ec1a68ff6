//! Usable, empty and damaged rows: each unit counts once, spread over the three.

/// Number of cells.
pub const CELLS: usize = 3;

/// A row with all values.
pub const USABLE: u16 = 0;
/// A row without text.
pub const EMPTY: u16 = 1;
/// A row that cannot be read, or that lacks a column.
pub const DAMAGED: u16 = 2;
