//! Copies of each example with some of its tokens replaced: further examples of its privacy unit.
//!
//! What is proved: the copies of a unit are a function of its own examples, coins of its own (a
//! function of the run's secret) and, where gaps are filled in, a public model. Training takes the
//! mean of the gradients of all examples of a unit and clips that, so adding or removing a unit
//! moves the sum by at most the clipping norm, however many copies there are: they cost no privacy.

use super::dataset::Dataset;
use super::example::Example;
use super::mask::Masking;

/// Replaces hidden tokens: gets examples with the positions that are hidden in each.
pub(crate) trait Infill {
    type Error;
    fn fill(&self, copies: &mut [(Example, Vec<u32>)], first: u64) -> Result<(), Self::Error>;
}

/// Leaves the mask token where a token was.
pub(crate) struct LeaveMasks;

impl Infill for LeaveMasks {
    type Error = std::convert::Infallible;

    fn fill(&self, _: &mut [(Example, Vec<u32>)], _: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Copies that are made together.
const TOGETHER: usize = 512;

impl Dataset {
    /// Adds copies until there are so many of each example, itself among them. Which tokens are
    /// hidden is a function of the key, the example and the number of the copy.
    pub(crate) fn augment<I: Infill>(
        &mut self,
        masking: &Masking,
        times: usize,
        key: [u8; 32],
        infill: &I,
    ) -> Result<(), I::Error> {
        let originals = std::mem::take(&mut self.examples);
        let more = times.saturating_sub(1);
        self.examples.reserve(originals.len() * times);
        for (batch, examples) in originals.chunks(TOGETHER).enumerate() {
            let first = (batch * TOGETHER * more) as u64;
            let mut copies: Vec<(Example, Vec<u32>)> = examples
                .iter()
                .flat_map(|example| std::iter::repeat_n(example, more))
                .zip(first..)
                .map(|(example, draw)| masking.hide(example, key, draw))
                .collect();
            infill.fill(&mut copies, first)?;
            let mut copies = copies.into_iter().map(|(example, _)| example);
            for example in examples {
                self.examples.push(example.clone());
                self.examples.extend(copies.by_ref().take(more));
            }
        }
        self.most_per_unit = self.most_per_unit.saturating_mul(times);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::tokenise::Tokeniser;
    use super::*;
    use crate::data::{Tally, Target};

    fn dataset() -> Dataset {
        let example = |unit: u32| Example {
            tokens: [vec![1], (0..20).map(|i| 5 + (i + unit) % 26).collect(), vec![2]].concat(),
            target: Target::Class(unit % 2),
            unit,
            ..Example::default()
        };
        Dataset {
            examples: (0..1200).map(example).collect(),
            labels: None,
            units: 1200,
            most_per_unit: 1,
            masking: None,
            skipped: 0,
            tally: Tally::default(),
        }
    }

    /// A unit's copies are its own: they follow it, have its target, and do not change when another
    /// unit does.
    #[test]
    fn copies_belong_to_their_unit() {
        let folder = tempfile::tempdir().unwrap();
        fixture::write(folder.path(), &fixture::bert());
        let tokeniser = Tokeniser::load(folder.path()).unwrap();
        let masking = Masking::new(&tokeniser, 0.3).unwrap();
        let plain = dataset();
        let augmented = |data: &Dataset, key: u8| {
            let mut data = data.clone();
            data.augment(&masking, 3, [key; 32], &LeaveMasks).unwrap();
            data
        };
        let found = augmented(&plain, 1);
        assert_eq!((found.examples.len(), found.units, found.most_per_unit), (3600, 1200, 3));
        for (original, copies) in plain.examples.iter().zip(found.examples.chunks(3)) {
            assert_eq!(&copies[0], original);
            for copy in &copies[1..] {
                assert_eq!((copy.unit, &copy.target), (original.unit, &original.target));
                let pairs = copy.tokens.iter().zip(&original.tokens);
                let replaced: Vec<_> = pairs.filter(|(copy, token)| copy != token).collect();
                assert!(!replaced.is_empty() && replaced.iter().all(|(copy, _)| **copy == 4));
                assert_eq!((copy.tokens[0], copy.tokens[21]), (1, 2));
            }
            assert_ne!(copies[1], copies[2]);
        }
        assert_eq!(found, augmented(&plain, 1));
        assert_ne!(found, augmented(&plain, 2));
        let mut other = plain.clone();
        other.examples[700].tokens[5] = 9;
        let (one, two) = (&found.examples, &augmented(&other, 1).examples);
        let differ: Vec<usize> = (0..3600).filter(|&i| one[i] != two[i]).collect();
        assert!(differ.iter().all(|i| i / 3 == 700), "{differ:?}");
    }
}
