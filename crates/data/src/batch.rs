//! Packed batches of sequences, and their division into micro-batches that fit in memory.

use super::example::{Example, Target};
use std::collections::BTreeMap;
use std::ops::Range;

/// A packed batch: sequences are concatenated without padding. Layers operate on all tokens at
/// once, and attention stays within each sequence. A batch may be empty, because Poisson sampling
/// can draw an empty sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Token ids of all sequences, `[tokens]`.
    pub tokens: Vec<u32>,
    /// Segment (token type) id of each token, `[tokens]`: the text of a pair to which it belongs.
    pub segments: Vec<u32>,
    /// Offset of each sequence's first token, followed by the number of tokens, `[sequences + 1]`.
    pub starts: Vec<usize>,
    /// Target of each sequence.
    pub targets: Vec<Target>,
    /// Privacy unit of each sequence.
    pub units: Vec<u32>,
}

impl Batch {
    /// Concatenates examples in the given order.
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
            // Covers both an example without segments and one with too few.
            batch.segments.resize(batch.tokens.len(), 0);
            batch.starts.push(batch.tokens.len());
            batch.targets.push(example.target.clone());
            batch.units.push(example.unit);
        }
        batch
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.targets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The tokens of sequence `i`, as a range of `tokens`.
    pub fn range(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i + 1]
    }

    /// Number of tokens in sequence `i`.
    pub fn length(&self, i: usize) -> usize {
        self.range(i).len()
    }

    /// Number of tokens in the longest sequence.
    pub fn longest(&self) -> usize {
        (0..self.sequences()).map(|i| self.length(i)).max().unwrap_or(0)
    }
}

/// Splits a sampled batch into micro-batches of at most `max_sequences` sequences and `max_tokens`
/// tokens; returns the indices of their examples.
///
/// Each chosen example is in exactly one micro-batch. Examples of one privacy unit stay together,
/// so that the unit's gradient can be clipped as a whole; a unit that exceeds the limits on its own
/// forms a separate micro-batch. Sequences are sorted by decreasing length, so that the sequences
/// of a micro-batch have similar lengths and the first micro-batch shows whether memory suffices.
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

/// Splits a batch into micro-batches of `sequences` sequences in its original order, regardless of
/// the texts. In local DP the length of a text is private: sorting by length would let it determine
/// the order in which released embeddings are summed, and so the last digits of the weights.
pub fn micro_batches_in_order(chosen: &[usize], sequences: usize) -> Vec<Vec<usize>> {
    chosen.chunks(sequences.max(1)).map(<[usize]>::to_vec).collect()
}

/// Like [`micro_batches`] for all examples, but ignores units; for use where no gradient is
/// clipped.
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
        // A unit stays in one micro-batch if gradients are clipped, and may be split otherwise.
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
        // A unit that exceeds the limit on its own is still included.
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
