//! MAUVE (Pillutla et al., NeurIPS 2021): the area under the divergence curve of two distributions
//! of embeddings, which are quantized together by k-means.
//!
//! With the histograms P and Q over the clusters and R = λP + (1 − λ)Q, the curve is
//! (exp(−c·KL(Q‖R)), exp(−c·KL(P‖R))) for λ in (0, 1), with c = 5. As in the package `mauve-text`:
//! rows are scaled to norm 1, projected onto the principal components that explain 90 % of the
//! variance, and grouped into n/10 clusters (the best of five attempts). Clustering is random, so
//! values agree with the package's to within about 0.01 to 0.02; for given histograms they agree
//! exactly.

use nalgebra::{DMatrix, SymmetricEigen};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The scaling factor c.
const SCALE: f64 = 5.0;
/// Number of mixtures on the curve.
const MIXTURES: usize = 25;
/// Share of the variance that the principal components explain.
const EXPLAINED: f64 = 0.9;
/// Number of clustering attempts, and maximum number of iterations of each.
const ATTEMPTS: u64 = 5;
const ITERATIONS: usize = 500;

/// MAUVE of two sets of embeddings of the same width, from 0 to 1.
pub fn mauve(left: &[Vec<f64>], right: &[Vec<f64>]) -> f64 {
    if left.is_empty() || right.is_empty() {
        return 0.0;
    }
    let rows = projected(left.iter().chain(right));
    let clusters = clusters(left.len(), right.len());
    let attempts = (0..ATTEMPTS).map(|seed| clustered(&rows, clusters, seed));
    let best = attempts.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(labels, _)| labels);
    let labels = best.unwrap_or_default();
    let histogram = |labels: &[usize]| {
        let mut counts = vec![0.0; clusters];
        labels.iter().for_each(|&label| counts[label] += 1.0 / labels.len() as f64);
        counts
    };
    mauve_of_histograms(&histogram(&labels[..left.len()]), &histogram(&labels[left.len()..]))
}

/// The number of clusters for two sets of these sizes. Fewer clusters give higher, less informative
/// values, so compare only sets of similar size.
pub fn clusters(left: usize, right: usize) -> usize {
    let wanted = (left.min(right) as f64 / 10.0).round().max(2.0) as usize;
    wanted.min(left + right)
}

/// MAUVE of two histograms over the same clusters, each of which sums to 1.
pub fn mauve_of_histograms(p: &[f64], q: &[f64]) -> f64 {
    let mut curve = vec![(1.0, 0.0)];
    for step in 0..MIXTURES {
        let (first, last) = (1e-6, 1.0 - 1e-6);
        let weight = first + (last - first) * step as f64 / (MIXTURES - 1) as f64;
        let mixed: Vec<f64> =
            p.iter().zip(q).map(|(p, q)| weight * p + (1.0 - weight) * q).collect();
        let point = |part: &[f64]| (-SCALE * divergence(part, &mixed)).exp();
        curve.push((point(q), point(p)));
    }
    curve.push((0.0, 1.0));
    let flipped = curve.iter().map(|&(x, y)| (y, x)).collect();
    0.5 * (area(curve) + area(flipped))
}

/// KL(p‖q), where q is positive wherever p is.
fn divergence(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).filter(|(p, _)| **p > 0.0).map(|(p, q)| p * (p / q).ln()).sum()
}

/// The area under a decreasing curve through the points.
fn area(mut points: Vec<(f64, f64)>) -> f64 {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    points.windows(2).map(|w| (w[1].0 - w[0].0) * (w[0].1 + w[1].1) / 2.0).sum()
}

/// Rows of norm 1, in the coordinates of their principal components.
fn projected<'a>(rows: impl Iterator<Item = &'a Vec<f64>>) -> Vec<Vec<f64>> {
    let mut unit: Vec<Vec<f64>> = Vec::new();
    for row in rows {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
        unit.push(row.iter().map(|x| x / norm).collect());
    }
    let (count, width) = (unit.len(), unit.first().map_or(0, Vec::len));
    let mut matrix = DMatrix::from_fn(count, width, |i, j| unit[i][j]);
    let mean = matrix.row_mean();
    matrix.row_iter_mut().for_each(|mut row| row -= &mean);
    let decomposed = SymmetricEigen::new(matrix.transpose() * &matrix);
    let mut order: Vec<usize> = (0..width).collect();
    let value = |i: usize| decomposed.eigenvalues[i].max(0.0);
    order.sort_by(|&a, &b| value(b).total_cmp(&value(a)));
    let total: f64 = order.iter().map(|&i| value(i)).sum();
    let (mut kept, mut explained) = (0, 0.0);
    while kept < width && (kept == 0 || explained < EXPLAINED * total) {
        explained += value(order[kept]);
        kept += 1;
    }
    let columns: Vec<_> =
        order[..kept].iter().map(|&i| decomposed.eigenvectors.column(i).clone_owned()).collect();
    let axes = DMatrix::from_columns(&columns);
    let projections = matrix * axes;
    (0..count).map(|i| projections.row(i).iter().copied().collect()).collect()
}

fn squared(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// A number in [0, 1).
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// k-means++: the cluster of each row, and the sum of squared distances.
fn clustered(rows: &[Vec<f64>], clusters: usize, seed: u64) -> (Vec<usize>, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let first = (uniform(&mut rng) * rows.len() as f64) as usize;
    let mut centers = vec![rows[first.min(rows.len() - 1)].clone()];
    let mut nearest: Vec<f64> = rows.iter().map(|row| squared(row, &centers[0])).collect();
    while centers.len() < clusters {
        let mut left = uniform(&mut rng) * nearest.iter().sum::<f64>();
        let next = nearest.iter().position(|&distance| {
            left -= distance;
            left < 0.0
        });
        let center = rows[next.unwrap_or(rows.len() - 1)].clone();
        for (nearest, row) in nearest.iter_mut().zip(rows) {
            *nearest = nearest.min(squared(row, &center));
        }
        centers.push(center);
    }
    let mut labels = vec![usize::MAX; rows.len()];
    for _ in 0..ITERATIONS {
        let closest = |row: &Vec<f64>| {
            let all = centers.iter().map(|center| squared(row, center)).enumerate();
            all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(label, _)| label)
        };
        let assigned: Vec<usize> = rows.iter().map(closest).collect();
        if assigned == labels {
            break;
        }
        labels = assigned;
        for (label, center) in centers.iter_mut().enumerate() {
            let own = rows.iter().zip(&labels).filter(|(_, own)| **own == label);
            let (mut sum, mut count) = (vec![0.0; center.len()], 0.0);
            for (row, _) in own {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                count += 1.0;
            }
            // A cluster without rows stays where it is.
            if count > 0.0 {
                *center = sum.into_iter().map(|sum| sum / count).collect();
            }
        }
    }
    let inertia = rows.iter().zip(&labels).map(|(row, &label)| squared(row, &centers[label])).sum();
    (labels, inertia)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the package `mauve-text` (fixtures/scores/make_mauve.py): exactly for
    /// histograms, and up to its own random clusters for embeddings.
    #[test]
    fn values_are_those_of_the_package() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scores/mauve.json");
        let cases: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for case in cases["histograms"].as_array().unwrap() {
            let of = |key: &str| -> Vec<f64> { serde_json::from_value(case[key].clone()).unwrap() };
            let expected = case["mauve"].as_f64().unwrap();
            let actual = mauve_of_histograms(&of("p"), &of("q"));
            assert!((actual - expected).abs() < 1e-9, "{actual}, not {expected}");
        }
        for case in cases["features"].as_array().unwrap() {
            let of =
                |key: &str| -> Vec<Vec<f64>> { serde_json::from_value(case[key].clone()).unwrap() };
            let expected = case["mauve"].as_f64().unwrap();
            let actual = mauve(&of("one"), &of("other"));
            assert!((actual - expected).abs() < 0.06, "{actual}, not {expected}");
        }
        // The same histogram twice, for which the package returns 0.75.
        assert!((mauve_of_histograms(&[0.5, 0.5], &[0.5, 0.5]) - 1.0).abs() < 1e-9);
    }

    /// Samples of one distribution are close, and those of distant ones are not.
    #[test]
    fn mauve_tells_distributions_apart() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut cloud = |shift: f64| -> Vec<Vec<f64>> {
            let row = |rng: &mut ChaCha8Rng| (0..6).map(|_| uniform(rng) + shift).collect();
            // One coordinate differs in sign, since rows are scaled to norm 1.
            (0..200)
                .map(|_| {
                    let mut row: Vec<f64> = row(&mut rng);
                    row[0] -= 2.0 * shift;
                    row
                })
                .collect()
        };
        let (cloud_at_0, same, far) = (cloud(0.0), cloud(0.0), cloud(3.0));
        assert!(mauve(&cloud_at_0, &same) > 0.8, "{}", mauve(&cloud_at_0, &same));
        assert!(mauve(&cloud_at_0, &far) < 0.1, "{}", mauve(&cloud_at_0, &far));
        assert!((mauve(&cloud_at_0, &cloud_at_0) - 1.0).abs() < 1e-6);
        assert_eq!(mauve(&cloud_at_0, &[]), 0.0);
    }
}
