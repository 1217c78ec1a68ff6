//! Sequences laid end to end, and logical batches cut into pieces that fit into memory.

use super::example::{Example, Target};
use std::collections::BTreeMap;
use std::ops::Range;

/// Sequences laid end to end without padding: layers work on all tokens at once, and attention
/// keeps to the boundaries. A batch without sequences is a batch like any other; Poisson sampling
/// draws them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// All tokens.
    pub tokens: Vec<u32>,
    /// For each token, the text of a pair that it belongs to.
    pub segments: Vec<u32>,
    /// Where each sequence starts, and at last where the final one ends; `starts[0]` is 0.
    pub starts: Vec<usize>,
    /// What is to be predicted of each sequence.
    pub targets: Vec<Target>,
    /// The privacy unit of each sequence.
    pub units: Vec<u32>,
}

impl Batch {
    /// Lays examples end to end, in the order given.
    pub fn pack<'a>(examples: impl IntoIterator<Item = &'a Example>) -> Batch {
        let mut batch = Batch {
            tokens: Vec::new(),
            segments: Vec::new(),
            starts: vec![0],
            targets: Vec::new(),
            units: Vec::new(),
        };
        for example in examples {
            batch.tokens.extend_from_slice(&example.tokens);
            batch.segments.extend_from_slice(&example.segments);
            // Covers both an example without segments and one whose segments are too few.
            batch.segments.resize(batch.tokens.len(), 0);
            batch.starts.push(batch.tokens.len());
            batch.targets.push(example.target.clone());
            batch.units.push(example.unit);
        }
        batch
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The place of sequence `i` among all tokens.
    pub fn range(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i + 1]
    }

    /// How many tokens sequence `i` has.
    pub fn length(&self, i: usize) -> usize {
        self.range(i).len()
    }

    /// How many tokens the longest sequence has.
    pub fn longest(&self) -> usize {
        (0..self.sequences()).map(|i| self.length(i)).max().unwrap_or(0)
    }
}

/// Cuts the `chosen` examples into pieces of at most `max_sequences` sequences and `max_tokens`
/// tokens.
///
/// Each chosen example is in exactly one piece. Examples of one privacy unit stay together, so that
/// a unit's gradient can be clipped as a whole; a unit that exceeds the limits by itself is a piece
/// by itself. Long sequences come first and sequences of similar length together, so that the work
/// in a piece is even and the first piece shows whether the memory suffices.
pub fn micro_batches(
    chosen: &[usize],
    examples: &[Example],
    max_sequences: usize,
    max_tokens: usize,
) -> Vec<Vec<usize>> {
    let mut units: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &example in chosen {
        units.entry(examples[example].unit).or_default().push(example);
    }
    in_pieces(units.into_values().collect(), examples, max_sequences, max_tokens)
}

/// Cuts all examples in the same way where units do not matter, because no gradient is clipped.
pub fn pieces(examples: &[Example], max_sequences: usize, max_tokens: usize) -> Vec<Vec<usize>> {
    let alone = (0..examples.len()).map(|example| vec![example]).collect();
    in_pieces(alone, examples, max_sequences, max_tokens)
}

fn in_pieces(
    mut units: Vec<Vec<usize>>,
    examples: &[Example],
    max_sequences: usize,
    max_tokens: usize,
) -> Vec<Vec<usize>> {
    let length = |example: &usize| examples[*example].tokens.len();
    units.sort_by_key(|unit| std::cmp::Reverse(unit.iter().map(length).max()));

    let (mut pieces, mut piece, mut tokens) = (Vec::new(), Vec::new(), 0);
    for unit in units {
        let more: usize = unit.iter().map(length).sum();
        let full = piece.len() + unit.len() > max_sequences || tokens + more > max_tokens;
        if full && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
            tokens = 0;
        }
        piece.extend(unit);
        tokens += more;
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(length: usize, unit: u32) -> Example {
        Example { tokens: vec![7; length], unit, ..Example::default() }
    }

    #[test]
    fn sequences_lie_end_to_end() {
        let pair = Example {
            tokens: vec![1, 2, 3],
            segments: vec![0, 0, 1],
            target: Target::Class(1),
            unit: 4,
        };
        let batch = Batch::pack([&example(2, 3), &pair]);
        assert_eq!(batch.tokens, [7, 7, 1, 2, 3]);
        assert_eq!(batch.segments, [0, 0, 0, 0, 1]);
        assert_eq!(batch.starts, [0, 2, 5]);
        assert_eq!(batch.targets, [Target::None, Target::Class(1)]);
        assert_eq!(batch.units, [3, 4]);
        assert_eq!((batch.sequences(), batch.length(1), batch.longest()), (2, 3, 3));
        assert_eq!(batch.range(1), 2..5);
    }

    #[test]
    fn an_empty_batch_is_a_batch() {
        let batch = Batch::pack([]);
        assert!(batch.is_empty());
        assert_eq!((batch.sequences(), batch.longest(), batch.starts), (0, 0, vec![0]));
        assert!(micro_batches(&[], &[], 4, 100).is_empty());
        // One unit is one piece where gradients are clipped, and several where they are not.
        let of_one = vec![example(3, 1); 5];
        assert_eq!(micro_batches(&[0, 1, 2, 3, 4], &of_one, 2, 100).len(), 1);
        assert_eq!(pieces(&of_one, 2, 100), [vec![0, 1], vec![2, 3], vec![4]]);
    }

    #[test]
    fn pieces_are_filled_from_the_longest() {
        let examples: Vec<Example> =
            [3, 9, 5, 1].iter().zip(0..).map(|(&n, u)| example(n, u)).collect();
        assert_eq!(micro_batches(&[0, 1, 2, 3], &examples, 2, 100), [vec![1, 2], vec![0, 3]]);
        assert_eq!(micro_batches(&[0, 1, 2, 3], &examples, 9, 9), [vec![1], vec![2, 0, 3]]);
        // One that alone exceeds the limit still comes.
        assert_eq!(micro_batches(&[1], &examples, 9, 4), [vec![1]]);
    }

    proptest! {
        #[test]
        fn pieces_are_a_partition_within_the_limits(
            shapes in prop::collection::vec((0_usize..40, 0_u32..30), 0..80),
            kept in prop::collection::vec(any::<bool>(), 80),
            max_sequences in 0_usize..12,
            max_tokens in 0_usize..120,
        ) {
            let examples: Vec<Example> = shapes.iter().map(|&(n, unit)| example(n, unit)).collect();
            let chosen: Vec<usize> = (0..examples.len()).filter(|&i| kept[i]).collect();
            let pieces = micro_batches(&chosen, &examples, max_sequences, max_tokens);

            let mut all = pieces.concat();
            all.sort_unstable();
            prop_assert_eq!(all, chosen);

            let units_of = |piece: &[usize]| -> std::collections::BTreeSet<u32> {
                piece.iter().map(|&i| examples[i].unit).collect()
            };
            let units: usize = pieces.iter().map(|piece| units_of(piece).len()).sum();
            prop_assert_eq!(units, units_of(&pieces.concat()).len(), "a unit was split");

            for piece in &pieces {
                prop_assert!(!piece.is_empty());
                let tokens: usize = piece.iter().map(|&i| examples[i].tokens.len()).sum();
                let within = piece.len() <= max_sequences && tokens <= max_tokens;
                prop_assert!(within || units_of(piece).len() == 1);
            }
        }
    }
}
