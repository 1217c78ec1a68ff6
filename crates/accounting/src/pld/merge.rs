//! Merges parts with equal counts and few masses by direct convolution, which saves transforms.
//!
//! (A·B)^k = A^k·B^k for convolution products, so two parts with the same count may be merged
//! before they are repeated. With hundreds of mostly narrow parts this saves most of the time.

use super::cells::Grid;
use super::convolve::Side;
use super::masses::Masses;
use crate::normal::UNIT;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Merges parts, smallest first, while a pair of parts has at most `most` products of masses.
pub fn merged(parts: Vec<(Masses, u64)>, side: Side, most: usize) -> Vec<(Masses, u64)> {
    let mut by_count: BTreeMap<u64, Vec<Masses>> = BTreeMap::new();
    for (masses, count) in parts {
        by_count.entry(count).or_default().push(masses);
    }
    let mut kept = Vec::new();
    for (count, mut group) in by_count {
        // (number of masses, index in the group): the smallest first.
        let mut smallest: BinaryHeap<Reverse<(usize, usize)>> =
            group.iter().enumerate().map(|(i, m)| Reverse((m.mass.len(), i))).collect();
        let mut taken = vec![false; group.len()];
        while let (Some(Reverse(a)), Some(Reverse(b))) = (smallest.pop(), smallest.peek().copied())
        {
            if a.0.saturating_mul(b.0) > most {
                break;
            }
            smallest.pop();
            (taken[a.1], taken[b.1]) = (true, true);
            let both = product(&group[a.1], &group[b.1], side);
            smallest.push(Reverse((both.mass.len(), group.len())));
            group.push(both);
            taken.push(false);
        }
        kept.extend(
            group.into_iter().zip(taken).filter(|(_, taken)| !taken).map(|(m, _)| (m, count)),
        );
    }
    kept
}

/// The convolution of two lists of masses, each rounded to the safe side.
///
/// A sum of n products of nonnegative numbers has an error of at most n relative roundings and n
/// times the smallest normal number.
fn product(a: &Masses, b: &Masses, side: Side) -> Masses {
    let ends = |m: &Masses| (m.index[0], m.index[m.index.len() - 1]);
    let ((a_first, a_last), (b_first, b_last)) = (ends(a), ends(b));
    let first = a_first + b_first;
    let mut dense = vec![0.0; (a_last + b_last - first + 1) as usize];
    let mut reached = vec![false; dense.len()];
    let (short, long) = if a.mass.len() <= b.mass.len() { (a, b) } else { (b, a) };
    for (&i, &m) in short.index.iter().zip(&short.mass) {
        for (&j, &n) in long.index.iter().zip(&long.mass) {
            let position = (i + j - first) as usize;
            dense[position] += m * n;
            reached[position] = true;
        }
    }
    let terms = short.mass.len() as f64;
    let safe = |mass: f64| match side {
        Side::Upper => mass * (1.0 + 2.0 * (terms + 4.0) * UNIT) + terms * f64::MIN_POSITIVE,
        Side::Lower => {
            (mass * (1.0 - 2.0 * (terms + 4.0) * UNIT) - terms * f64::MIN_POSITIVE).max(0.0)
        }
    };
    let kept = |position: &usize| reached[*position];
    let total = |m: &Masses| m.mass.iter().sum::<f64>() + m.infinite;
    Masses {
        grid: Grid { mesh: a.grid.mesh, offset: a.grid.offset + b.grid.offset },
        index: (0..dense.len()).filter(kept).map(|position| first + position as i64).collect(),
        mass: (0..dense.len()).filter(kept).map(|position| safe(dense[position])).collect(),
        // Q has no mass where either factor is infinite.
        infinite: (a.infinite * total(b) + b.infinite * total(a)) * (1.0 + 1e-9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masses(offset: f64, list: &[(i64, f64)]) -> Masses {
        let (index, mass) = list.iter().copied().unzip();
        Masses { grid: Grid { mesh: 0.1, offset }, index, mass, infinite: 0.0 }
    }

    #[test]
    fn merging_is_the_convolution_of_parts_with_the_same_count() {
        let a = masses(0.3, &[(-2, 0.25), (0, 0.5), (7, 0.25)]);
        let b = masses(-0.1, &[(0, 0.75), (2, 0.25)]);
        let other = masses(0.0, &[(0, 1.0)]);
        for side in [Side::Lower, Side::Upper] {
            let parts = vec![(a.clone(), 3), (other.clone(), 5), (b.clone(), 3)];
            let combined = merged(parts, side, 1_000);
            assert_eq!(combined.iter().map(|p| p.1).collect::<Vec<_>>(), [3, 5]);
            let both = &combined[0].0;
            let wanted = [(-2, 0.1875), (0, 0.4375), (2, 0.125), (7, 0.1875), (9, 0.0625)];
            assert_eq!(both.index, wanted.map(|w| w.0));
            assert!((both.grid.offset - 0.2).abs() < 1e-15);
            for (mass, (_, wanted)) in both.mass.iter().zip(wanted) {
                assert!((mass - wanted).abs() < 1e-14, "{mass} {wanted}");
                assert!((*mass > wanted) == (side == Side::Upper), "{side:?}: {mass} {wanted}");
            }
        }
        // Nothing is merged if merging would cost more than a transform.
        assert_eq!(merged(vec![(a, 3), (b, 3)], Side::Upper, 5).len(), 2);
    }
}
