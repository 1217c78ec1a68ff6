//! Compares what the ranks have added to their sums with the sample, before anything is released.
//!
//! The guarantee requires that every sampled unit's clipped gradient is in the sum exactly once: a
//! gradient that is added twice moves the sum by 2C. Each rank counts what it actually added. Over
//! all ranks, the counts must match the sample, and so must the sum of a hash of each example's
//! position in it, which also detects that one example took the place of another.

use crate::collective::{self, Ranks};
use crate::error::Result;

/// The contribution of one rank, or of all ranks together, to a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Number of examples.
    pub examples: u64,
    /// Sum of a hash of each example's position in the sample.
    positions: u64,
    /// Sum of the examples' losses.
    pub losses: f64,
    /// Number of ranks asked to stop after this step.
    pub stop: u64,
    /// Number of ranks that request a checkpoint after this step. Only rank 0 does, by its clock.
    pub save: u64,
}

impl Tally {
    /// Counts an example, given its position in the sample.
    pub fn count(&mut self, position: usize) {
        self.examples += 1;
        self.positions = self.positions.wrapping_add(super::steps::mix(position as u64 + 1));
    }

    /// The combined counts of all ranks, which must match a sample of `examples` examples.
    pub fn of_all(self, ranks: &Ranks, examples: usize) -> Result<Self> {
        let mut all = Self::default();
        for bytes in ranks.all_gather(&self.bytes())? {
            let of_rank = Self::of(&bytes).ok_or_else(collective::Error::out_of_step)?;
            all.examples += of_rank.examples;
            all.positions = all.positions.wrapping_add(of_rank.positions);
            all.losses += of_rank.losses;
            all.stop += of_rank.stop;
            all.save += of_rank.save;
        }
        let mut expected = Self::default();
        (0..examples).for_each(|position| expected.count(position));
        if (all.examples, all.positions) != (expected.examples, expected.positions) {
            return Err(collective::Error::System(
                "the ranks together did not add each sampled example exactly once, so nothing was \
                 released: this is a bug, please report it"
                    .to_owned(),
            )
            .into());
        }
        Ok(all)
    }

    fn bytes(&self) -> [u8; 40] {
        let Self { examples, positions, losses, stop, save } = self;
        let all = [*examples, *positions, losses.to_bits(), *stop, *save];
        let mut bytes = [0; 40];
        for (slot, number) in bytes.chunks_exact_mut(8).zip(all) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let [examples, positions, losses, stop, save] =
            <[[u8; 8]; 5]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        Some(Self { examples, positions, losses: f64::from_bits(losses), stop, save })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(positions: &[usize]) -> Tally {
        let mut tally = Tally { losses: 0.5, ..Tally::default() };
        positions.iter().for_each(|&position| tally.count(position));
        tally
    }

    #[test]
    fn an_example_that_is_added_twice_or_not_at_all_is_noticed() {
        let alone = Ranks::alone();
        let total = tally(&[2, 0, 1]).of_all(&alone, 3).unwrap();
        assert_eq!((total.examples, total.losses), (3, 0.5));
        assert_eq!(Tally::default().of_all(&alone, 0).unwrap(), Tally::default());
        for wrong in [&[0, 1, 1][..], &[0, 1, 2, 2], &[0, 1], &[0, 1, 3]] {
            let message = tally(wrong).of_all(&alone, 3).unwrap_err().to_string();
            assert!(message.contains("nothing was released"), "{message}");
        }
    }
}
