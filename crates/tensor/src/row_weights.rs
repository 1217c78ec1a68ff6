//! Row weights.

use super::Matrix;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A weight for each row of the factors of a gradient, such as the clipping factor of the row's
/// example.
#[derive(Debug)]
pub struct RowWeights {
    values: Vec<f32>,
    has_zeros: bool,
    /// The matrix weighted last and its weighted rows, which layers with a common input, such as
    /// the query, key and value projections, share.
    last: Mutex<Option<(Matrix, Matrix)>>,
}

impl From<Vec<f32>> for RowWeights {
    fn from(values: Vec<f32>) -> Self {
        let has_zeros = values.contains(&0.0);
        Self { values, has_zeros, last: Mutex::default() }
    }
}

impl RowWeights {
    /// Gives each row the weight of its unit, and rows of no unit the weight 0.
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

    /// If any weight is 0, a factor for each row: 0 where the weight is 0, and 1 otherwise. Since
    /// zero times infinity is not zero, both sides of a product have to zero the row.
    pub(crate) fn kept(&self) -> Option<Vec<f32>> {
        let kept = || self.values.iter().map(|&weight| f32::from(weight != 0.0)).collect();
        self.has_zeros.then(kept)
    }

    /// The weighted rows of a matrix, computed once for consecutive uses of that matrix.
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
        // Keep at most two matrices: drop the previous ones first.
        *last = None;
        let weighted = weigh(&matrix)?;
        *last = Some((matrix, weighted.clone()));
        Ok(weighted)
    }
}
