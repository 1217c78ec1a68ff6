//! The rows of a batch that belong to each privacy unit.

use crate::data::Batch;
use std::ops::Range;

/// The rows (tokens) of each privacy unit in a packed batch; a unit's sequences are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRows {
    starts: Vec<usize>,
}

impl UnitRows {
    /// Groups consecutive sequences of the same unit.
    pub fn of(batch: &Batch) -> Self {
        let mut starts = vec![0];
        for (i, unit) in batch.units.iter().enumerate() {
            if batch.units.get(i + 1) != Some(unit) {
                starts.push(batch.starts[i + 1]);
            }
        }
        Self { starts }
    }

    /// Number of privacy units in the batch.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows of each unit in a [`Factor`](crate::model::Factor). The factor's rows are all
    /// tokens of the batch, or those listed, in increasing order.
    pub fn ranges(&self, tokens: Option<&[u32]>) -> Vec<Range<usize>> {
        let first_row = |start: usize| match tokens {
            Some(tokens) => tokens.partition_point(|&token| (token as usize) < start),
            None => start,
        };
        self.starts.windows(2).map(|window| first_row(window[0])..first_row(window[1])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Example;

    #[test]
    fn sequences_of_one_unit_are_taken_together() {
        let example =
            |length: usize, unit| Example { tokens: vec![1; length], unit, ..Example::default() };
        let batch = Batch::pack(&[example(2, 7), example(3, 7), example(1, 4), example(2, 9)]);
        let units = UnitRows::of(&batch);
        assert_eq!(units.count(), 3);
        assert_eq!(units.ranges(None), [0..5, 5..6, 6..8]);
        assert_eq!(units.ranges(Some(&[1, 4, 6])), [0..2, 2..2, 2..3]);
        assert_eq!(UnitRows::of(&Batch::pack(&[])).count(), 0);
    }
}
