//! Partitioning of the coordinates of the trainable parameters among ranks (ZeRO).
//!
//! The sequence of all coordinates is cut into *buckets* of about 25 MiB, and each bucket into one
//! part per rank. A rank holds the optimizer state of its own parts only; it adds up these parts of
//! the clipped sum, adds their noise and updates their weights. At most one bucket is in flight at
//! a time. Every coordinate is in exactly one part, so its noise is added once.
//!
//! Noise is a function of (secret, step, coordinate) that is computed in blocks, so a parameter is
//! cut only between blocks; which rank adds the noise of a coordinate does not change its bits.

use crate::model::{ParameterId, Parameters};
use crate::noise::NOISE_BLOCK;
use crate::tensor::{Matrix, Result, Shape};
use std::ops::Range;

/// Number of coordinates in a bucket.
const BUCKET: usize = (25 << 20) / size_of::<f32>();

/// A contiguous range of the coordinates of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub parameter: ParameterId,
    /// Indices into the parameter's coordinates; the first is a multiple of [`NOISE_BLOCK`].
    pub range: Range<usize>,
}

impl Slice {
    /// The shape of the slice as a matrix of its own; kernels divide the work by rows.
    pub(crate) fn shape(&self) -> Shape {
        match self.range.len().is_multiple_of(NOISE_BLOCK) {
            true => [self.range.len() / NOISE_BLOCK, NOISE_BLOCK],
            false => [1, self.range.len()],
        }
    }

    /// The slice of a whole parameter's values, sharing its memory.
    pub(crate) fn of(&self, whole: &Matrix) -> Result<Matrix> {
        let row = whole.reshape_to_columns(whole.rows() * whole.columns())?;
        row.column_range(self.range.clone())?.reshape_to_columns(self.shape()[1])
    }
}

/// The assignment of the trainable parameters' coordinates to ranks.
#[derive(Clone, Debug)]
pub struct Shards {
    /// Parts of all ranks, bucket by bucket: part i belongs to rank i mod N.
    parts: Vec<Vec<Slice>>,
    rank: usize,
    ranks: usize,
}

impl Shards {
    /// The shards of a single process: every trainable parameter as a whole.
    pub fn whole(parameters: &Parameters) -> Self {
        let whole = |(parameter, length)| Slice { parameter, range: 0..length };
        let parts = vec![trainable(parameters).into_iter().map(whole).collect()];
        Self { parts, rank: 0, ranks: 1 }
    }

    /// The shards of `ranks` ranks, of which this process is number `rank`.
    pub fn of(parameters: &Parameters, rank: usize, ranks: usize) -> Self {
        Self::in_buckets(parameters, rank, ranks, BUCKET)
    }

    /// Like [`Self::of`], with a given maximum number of coordinates per bucket.
    pub(crate) fn in_buckets(
        parameters: &Parameters,
        rank: usize,
        ranks: usize,
        bucket: usize,
    ) -> Self {
        if ranks == 1 {
            return Self::whole(parameters);
        }
        let lengths = trainable(parameters);
        let all: usize = lengths.iter().map(|(_, length)| length).sum();
        let count = all.div_ceil(bucket).max(1) * ranks;
        Self { parts: parts(&lengths, count), rank, ranks }
    }

    /// The coordinates of this rank, in order.
    pub fn own(&self) -> Vec<Slice> {
        self.of_rank(self.rank).cloned().collect()
    }

    /// The coordinates of a rank, in order.
    pub fn of_rank(&self, rank: usize) -> impl Iterator<Item = &Slice> {
        self.parts.iter().skip(rank).step_by(self.ranks).flatten()
    }

    /// For each bucket, the part of every rank.
    pub fn buckets(&self) -> impl Iterator<Item = &[Vec<Slice>]> {
        self.parts.chunks(self.ranks)
    }
}

/// Number of coordinates in a part.
pub fn part_length(part: &[Slice]) -> usize {
    part.iter().map(|slice| slice.range.len()).sum()
}

/// The trainable parameters and their numbers of coordinates.
fn trainable(parameters: &Parameters) -> Vec<(ParameterId, usize)> {
    let trainable = parameters.iter().filter(|(_, parameter)| parameter.trainable);
    trainable.map(|(id, parameter)| (id, parameter.len())).collect()
}

/// Splits all coordinates into `count` parts of about equal length.
fn parts(lengths: &[(ParameterId, usize)], count: usize) -> Vec<Vec<Slice>> {
    let all: usize = lengths.iter().map(|(_, length)| length).sum();
    let at = |i: usize| (all as u128 * i as u128 / count as u128) as usize;
    let cuts: Vec<(usize, usize)> = (0..=count).map(|i| cut(lengths, at(i))).collect();
    cuts.windows(2).map(|ends| between(lengths, ends[0], ends[1])).collect()
}

/// The last position at or before a coordinate where a parameter may be cut: the parameter, and the
/// number of its coordinates before the cut.
fn cut(lengths: &[(ParameterId, usize)], coordinate: usize) -> (usize, usize) {
    let mut left = coordinate;
    for (i, (_, length)) in lengths.iter().enumerate() {
        if left < *length {
            return (i, left / NOISE_BLOCK * NOISE_BLOCK);
        }
        left -= length;
    }
    (lengths.len(), 0)
}

/// The coordinates between two cuts.
fn between(
    lengths: &[(ParameterId, usize)],
    from: (usize, usize),
    to: (usize, usize),
) -> Vec<Slice> {
    let within = |i: usize| {
        let start = if i == from.0 { from.1 } else { 0 };
        let end = if i == to.0 { to.1 } else { lengths[i].1 };
        (start < end).then(|| Slice { parameter: lengths[i].0, range: start..end })
    };
    (from.0..lengths.len().min(to.0 + 1)).filter_map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, Parameter};
    use proptest::prelude::*;

    fn parameters(shapes: &[(usize, usize, bool)]) -> Parameters {
        let mut parameters = Parameters::default();
        for (i, &(rows, columns, trainable)) in shapes.iter().enumerate() {
            parameters.push(Parameter {
                name: format!("tensor {i}"),
                shape: vec![rows, columns],
                value: Matrix::zeros(rows, columns),
                trainable,
                origin: Origin::Base,
            });
        }
        parameters
    }

    proptest! {
        /// Each coordinate is in exactly one rank's shard, where its noise is added. Shards are cut
        /// where a noise block may begin, and have equal sizes up to one such block per bucket.
        #[test]
        fn shards_are_a_partition_in_equal_parts(
            shapes in prop::collection::vec((1_usize..70, 1_usize..50, any::<bool>()), 0..12),
            ranks in 1_usize..9,
            bucket in 300_usize..9_000,
        ) {
            let parameters = parameters(&shapes);
            let shards = Shards::in_buckets(&parameters, 0, ranks, bucket);
            let mut times: Vec<Vec<usize>> =
                parameters.iter().map(|(_, p)| vec![0; p.len()]).collect();
            for rank in 0..ranks {
                for Slice { parameter, range } in shards.of_rank(rank) {
                    prop_assert!(range.start % NOISE_BLOCK == 0 && !range.is_empty());
                    times[parameter.index()][range.clone()].iter_mut().for_each(|n| *n += 1);
                }
            }
            for ((_, parameter), times) in parameters.iter().zip(&times) {
                prop_assert!(times.iter().all(|&n| n == usize::from(parameter.trainable)));
            }
            let buckets = shards.buckets().count();
            let length = |r: usize| shards.of_rank(r).map(|slice| slice.range.len()).sum();
            let lengths: Vec<usize> = (0..ranks).map(length).collect();
            let apart = lengths.iter().max().unwrap() - lengths.iter().min().unwrap();
            prop_assert!(apart <= 2 * NOISE_BLOCK * buckets, "{:?}", lengths);
            for parts in shards.buckets() {
                prop_assert_eq!(parts.len(), ranks);
                let most = bucket + NOISE_BLOCK;
                prop_assert!(ranks == 1 || parts.iter().all(|p| part_length(p) <= most));
            }
        }
    }

    /// With a BERT of the usual size, a rank has its share of the coordinates to within half a
    /// percent.
    #[test]
    fn a_rank_of_bert_has_its_share() {
        let mut lengths = vec![30_522 * 768, 512 * 768, 768];
        for _ in 0..12 {
            lengths.extend([768 * 768; 4]);
            lengths.extend([3_072 * 768, 768 * 3_072, 3_072]);
            lengths.extend([768; 9]);
        }
        lengths.push(2 * 768);
        let all: usize = lengths.iter().sum();
        let lengths: Vec<_> = (0..).map(ParameterId).zip(lengths).collect();
        for ranks in [2, 3, 8, 64] {
            let parts = parts(&lengths, all.div_ceil(BUCKET) * ranks);
            for rank in 0..ranks {
                let own: usize =
                    parts.iter().skip(rank).step_by(ranks).map(|p| part_length(p)).sum();
                let expected = all as f64 / ranks as f64;
                assert!((own as f64 / expected - 1.0).abs() < 5e-3, "{own} of {all}, {ranks}");
            }
        }
    }
}
