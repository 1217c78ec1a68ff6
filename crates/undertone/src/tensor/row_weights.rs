//! Weights of rows.

use super::Matrix;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A weight for each row of the factors of gradients, such as the clipping factor of its example.
#[derive(Debug)]
pub struct RowWeights {
    values: Vec<f32>,
    has_zeros: bool,
    /// The matrix that was weighted last, and its weighted rows: layers of one input, such as those
    /// of queries, keys and values, share them.
    last: Mutex<Option<(Matrix, Matrix)>>,
}

impl From<Vec<f32>> for RowWeights {
    fn from(values: Vec<f32>) -> Self {
        let has_zeros = values.contains(&0.0);
        Self { values, has_zeros, last: Mutex::default() }
    }
}

impl RowWeights {
    /// The weight of each row's unit, and 0 for rows of no unit.
    pub fn of_units(rows: usize, ranges: &[Range<usize>], units: &[f32]) -> Self {
        let mut values = vec![0.0; rows];
        for (range, &weight) in ranges.iter().zip(units) {
            values[range.clone()].fill(weight);
        }
        values.into()
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Where a weight is 0: for each row 1, or 0 if its weight is. Zero times infinity is not zero,
    /// so that both sides of a product have to lose the row.
    pub(crate) fn kept(&self) -> Option<Vec<f32>> {
        let kept = || self.values.iter().map(|&weight| f32::from(weight != 0.0)).collect();
        self.has_zeros.then(kept)
    }

    /// The weighted rows of a matrix, computed once for the uses of it that follow each other.
    pub(crate) fn weighted<E>(
        &self,
        matrix: Matrix,
        weigh: impl FnOnce(&Matrix) -> Result<Matrix, E>,
    ) -> Result<Matrix, E> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((same, weighted)) = &*last
            && same.is_same(&matrix)
        {
            return Ok(weighted.clone());
        }
        // Two matrices at most are kept, so the last ones go first.
        *last = None;
        let weighted = weigh(&matrix)?;
        *last = Some((matrix, weighted.clone()));
        Ok(weighted)
    }
}
