//! Tiles of work for the kernels, ordered by product and unit.

use super::SIDE;
use std::ops::Range;

/// Tiles of work, grouped by unit.
#[derive(Debug)]
pub(super) struct Tasks {
    /// Eight words per task, as in the kernels.
    pub(super) words: Vec<u32>,
    /// The first task of each unit, followed by the number of tasks.
    pub(super) firsts: Vec<u32>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { words: Vec::new(), firsts: vec![0] }
    }
}

impl Tasks {
    pub(super) fn count(&self) -> usize {
        self.words.len() / 8
    }

    pub(super) fn push(&mut self, range: &Range<usize>, other: &Range<usize>, tile: [usize; 4]) {
        let ends = [range.start, range.end, other.start, other.end];
        self.words.extend(ends.into_iter().chain(tile).map(|word| word as u32));
    }

    pub(super) fn end_unit(&mut self) {
        self.firsts.push(self.count() as u32);
    }

    /// Adds the tiles of the Gram matrices of a unit: diagonal tiles count once, the others twice.
    pub(super) fn add_norm(&mut self, range: &Range<usize>, product: usize) {
        for first in (0..range.len()).step_by(SIDE) {
            for second in (first..range.len()).step_by(SIDE) {
                let times = if first == second { 1 } else { 2 };
                self.push(range, range, [first, second, times, product]);
            }
        }
    }

    /// Adds all tiles of the products of a unit's rows with those of the other side.
    pub(super) fn add_product(&mut self, range: &Range<usize>, other: &Range<usize>) {
        for first in (0..range.len()).step_by(SIDE) {
            for second in (0..other.len()).step_by(SIDE) {
                self.push(range, other, [first, second, 1, 0]);
            }
        }
    }

    /// Adds the tiles of the formed gradients of layers with inputs of `d` columns.
    pub(super) fn add_formed(
        &mut self,
        range: &Range<usize>,
        d: usize,
        layers: impl Iterator<Item = usize>,
        product: usize,
    ) {
        for (layer, p) in layers.enumerate() {
            for first in (0..p).step_by(SIDE) {
                for second in (0..d).step_by(SIDE) {
                    self.push(range, range, [first, second, layer, product]);
                }
            }
        }
    }

    /// Ends a product: the units of the next one start with their own tasks.
    pub(super) fn end_product(&mut self) {
        self.firsts.push(self.count() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_pair_of_rows_as_often_as_it_counts() {
        for length in [1, 63, 64, 65, 200] {
            let mut tasks = Tasks::default();
            tasks.add_norm(&(7..7 + length), 0);
            tasks.end_unit();
            let mut times = vec![0; length * length];
            for task in tasks.words.chunks_exact(8) {
                assert_eq!(&task[..4], &[7, 7 + length as u32, 7, 7 + length as u32]);
                let (first, second) = (task[4] as usize, task[5] as usize);
                for i in first..length.min(first + SIDE) {
                    for j in second..length.min(second + SIDE) {
                        times[i * length + j] += task[6];
                    }
                }
            }
            for i in 0..length {
                for j in 0..=i {
                    let both = times[i * length + j] + times[j * length + i];
                    assert_eq!(both, 2, "rows {i} and {j} of {length}");
                }
            }
            assert_eq!(tasks.firsts, [0, tasks.count() as u32]);
        }
    }
}
