//! Lengths of texts: each unit counts once, spread over the cells of its rows' lengths.

/// Number of cells.
pub const CELLS: usize = 44;

/// The first length of a cell: 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, … The last cell includes all
/// longer texts.
pub fn start(cell: usize) -> u64 {
    match cell {
        0..=2 => cell as u64,
        _ if cell % 2 == 1 => 3 << ((cell - 3) / 2),
        _ => 4 << ((cell - 4) / 2),
    }
}

/// The cell of a length.
pub fn cell(length: u64) -> usize {
    (0..CELLS).rev().find(|cell| start(*cell) <= length).unwrap_or(0)
}

/// The length that represents a cell: its last one.
pub fn last(cell: usize) -> u64 {
    start(cell + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_its_cell() {
        let starts: Vec<u64> = (0..10).map(start).collect();
        assert_eq!(starts, [0, 1, 2, 3, 4, 6, 8, 12, 16, 24]);
        for length in 0..10_000 {
            let cell = cell(length);
            assert!(start(cell) <= length && length <= last(cell), "{length}");
        }
        assert_eq!(cell(u64::MAX), CELLS - 1);
        assert!(start(CELLS - 1) > 1_000_000);
    }
}
