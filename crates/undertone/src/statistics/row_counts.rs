//! Rows per unit: each unit counts once, in the cell of its number of rows.

/// Number of cells: 1, 2, 3–4, 5–8 and so on.
pub const CELLS: usize = 22;

/// The cell of a number of rows, at least 1.
pub fn cell(rows: u64) -> usize {
    (rows.max(1).next_power_of_two().trailing_zeros() as usize).min(CELLS - 1)
}

/// The smallest and the largest number of rows of a cell.
pub fn range(cell: usize) -> (u64, u64) {
    match cell {
        0 => (1, 1),
        cell => ((1 << (cell - 1)) + 1, 1 << cell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_rows_has_its_cell() {
        for rows in 1..5000 {
            let (from, to) = range(cell(rows));
            assert!((from..=to).contains(&rows), "{rows}");
        }
        assert_eq!((cell(0), cell(u64::MAX / 4)), (0, CELLS - 1));
    }
}
