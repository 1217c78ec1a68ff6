//! Division of a sample among ranks.

use crate::data::Example;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The positions in a sample of `chosen` examples that one of `ranks` ranks computes, in increasing
/// order. `examples[chosen[p]]` is the example at position p.
///
/// Each position is in exactly one rank's share, and the examples of a privacy unit are in the same
/// share, so that a unit's gradient is clipped as a whole. Units are assigned by decreasing number
/// of tokens, each to the rank that has the fewest tokens so far: shares differ by at most one
/// unit.
pub fn share_of_rank(
    chosen: &[usize],
    examples: &[Example],
    rank: usize,
    ranks: usize,
) -> Vec<usize> {
    if ranks == 1 {
        return (0..chosen.len()).collect();
    }
    let mut units: BTreeMap<u32, (usize, Vec<usize>)> = BTreeMap::new();
    for (position, &example) in chosen.iter().enumerate() {
        let (tokens, positions) = units.entry(examples[example].unit).or_default();
        *tokens += examples[example].tokens.len();
        positions.push(position);
    }
    let mut units: Vec<(usize, Vec<usize>)> = units.into_values().collect();
    // The sort is stable: units of equal length stay in index order.
    units.sort_by_key(|(tokens, _)| Reverse(*tokens));
    let mut loads = vec![0; ranks];
    let mut share = Vec::new();
    for (tokens, positions) in units {
        let least = (0..ranks).min_by_key(|&rank| loads[rank]).unwrap_or(0);
        // A unit without tokens still takes a little time.
        loads[least] += tokens.max(1);
        if least == rank {
            share.extend(positions);
        }
    }
    share.sort_unstable();
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(length: usize, unit: u32) -> Example {
        Example { tokens: vec![7; length], unit, ..Example::default() }
    }

    #[test]
    fn shares_have_as_many_tokens_as_possible_alike() {
        let examples: Vec<Example> =
            [9, 5, 4, 8, 1].iter().zip(0..).map(|(&n, u)| example(n, u)).collect();
        let share = |rank| share_of_rank(&[0, 1, 2, 3, 4], &examples, rank, 2);
        assert_eq!((share(0), share(1)), (vec![0, 2, 4], vec![1, 3]));
        assert_eq!(share_of_rank(&[4, 2], &examples, 0, 1), [0, 1]);
        assert!(share_of_rank(&[], &examples, 1, 2).is_empty());
        assert!(share_of_rank(&[3], &examples, 1, 2).is_empty());
    }

    proptest! {
        /// Each unit contributes to the sum exactly once, and is clipped by one rank.
        #[test]
        fn shares_are_a_partition_that_splits_no_unit(
            shapes in prop::collection::vec((0_usize..40, 0_u32..20), 1..80),
            ranks in 1_usize..9,
        ) {
            let examples: Vec<Example> = shapes.iter().map(|&(n, unit)| example(n, unit)).collect();
            let chosen: Vec<usize> = (0..examples.len()).rev().collect();
            let shares: Vec<Vec<usize>> =
                (0..ranks).map(|rank| share_of_rank(&chosen, &examples, rank, ranks)).collect();
            let mut all = shares.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..chosen.len()).collect::<Vec<_>>());
            let units_of = |share: &[usize]| -> std::collections::BTreeSet<u32> {
                share.iter().map(|&position| examples[chosen[position]].unit).collect()
            };
            let units: usize = shares.iter().map(|share| units_of(share).len()).sum();
            prop_assert_eq!(units, units_of(&shares.concat()).len(), "a unit was split");
            let tokens = |share: &[usize]| -> usize {
                share.iter().map(|&position| examples[chosen[position]].tokens.len()).sum()
            };
            let loads: Vec<usize> = shares.iter().map(|share| tokens(share)).collect();
            let mut largest: BTreeMap<u32, usize> = BTreeMap::new();
            for example in &examples {
                *largest.entry(example.unit).or_default() += example.tokens.len();
            }
            let largest = largest.values().copied().max().unwrap_or(0);
            let apart = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            // Units without tokens are assigned as if they had one token.
            prop_assert!(apart <= largest + shapes.len(), "{:?}", loads);
        }
    }
}
