//! The contribution of one unit to a sum, with norm at most 1.

/// The number 1 in sums: a power of two that leaves enough digits for 1/√t, and does not overflow
/// in sums over 2⁴² units.
pub const ONE: i64 = 1 << 20;

/// A unit's contribution to a histogram: its rows' cells, each with weight 1/m for m rows.
///
/// The weights are non-negative and add up to at most 1, so their ℓ1 norm, and hence their ℓ2 norm,
/// is at most 1. They are rounded down.
pub fn shares(cells: &[(u16, u32)], add: impl FnMut(u16, i64)) {
    let rows: i64 = cells.iter().map(|(_, rows)| i64::from(*rows)).sum();
    let share = |(cell, of): &(u16, u32)| (*cell, ONE * i64::from(*of) / rows.max(1));
    let mut add = add;
    cells.iter().map(share).for_each(|(cell, weight)| add(cell, weight));
}

/// The weight of each of a unit's t words: 1/√t rounded down, so that the ℓ2 norm of the weights is
/// at most 1.
pub fn weight_of_word(words: usize) -> i64 {
    (ONE as f64 / (words.max(1) as f64).sqrt()).floor() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_adds_no_more_than_norm_1_however_many_rows_it_has() {
        for cells in [
            vec![(0, 1)],
            vec![(0, 1), (1, 1), (2, 1)],
            vec![(3, u32::MAX), (7, u32::MAX), (9, 1)],
            (0..40).map(|cell| (cell, 1 + u32::from(cell) * 1000)).collect(),
        ] {
            let mut weights = Vec::new();
            shares(&cells, |_, weight| weights.push(weight));
            assert!(weights.iter().all(|weight| *weight >= 0));
            assert!(weights.iter().sum::<i64>() <= ONE, "{cells:?}");
            assert!(weights.iter().sum::<i64>() > ONE - weights.len() as i64, "{cells:?}");
        }
        for words in 1..2000 {
            let weight = weight_of_word(words) as f64 / ONE as f64;
            assert!(words as f64 * weight * weight <= 1.0, "{words}");
            assert!(words as f64 * weight * weight > 0.999, "{words}");
        }
    }
}
