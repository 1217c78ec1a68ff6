//! A linear classifier in closed form, from perturbed embeddings and randomized labels: the linear
//! discriminant of the embeddings *without* noise.
//!
//! An ordinary task head trained on perturbed embeddings predicts the majority class: noise in its
//! input shrinks its weights but not its bias. Here the known covariance of the noise is subtracted
//! from the within-class sample covariance, and the threshold lies between the class means.

use super::moments::{Known, Moments, eigen};
use nalgebra::DMatrix;

/// A linear classifier.
#[derive(Clone, Debug)]
pub struct Discriminant {
    /// `[classes, width]`, in row-major order.
    pub weights: Vec<f32>,
    /// `[classes]`.
    pub bias: Vec<f32>,
}

/// Computes the scores μ_kᵀ Σ⁻¹ x − ½ μ_kᵀ Σ⁻¹ μ_k, where Σ is the within-class covariance.
pub fn discriminant(moments: &Moments, known: &Known) -> Discriminant {
    let classes = moments.class_means(known);
    let mean = moments.mean();
    let mut within = moments.covariance(known);
    for (class, share) in classes.shares.iter().enumerate() {
        let apart = classes.means.column(class) - &mean;
        within -= &apart * apart.transpose() * *share;
    }
    // Raise variances below the uncertainty of the estimate to that uncertainty.
    let floor = moments.uncertainty(known);
    let (values, vectors) = eigen(within);
    let largest = values.first().copied().unwrap_or(1.0).abs();
    let inverse: Vec<f64> =
        values.iter().map(|v| 1.0 / v.max(floor).max(1e-6 * largest).max(1e-12)).collect();
    let inverse = &vectors * DMatrix::from_diagonal(&inverse.into()) * vectors.transpose();
    let (mut weights, mut bias) = (Vec::new(), Vec::new());
    for class in 0..classes.shares.len() {
        // A class without labels is never predicted.
        if !classes.seen[class] {
            bias.push(-1e30);
            weights.extend(vec![0.0; moments.width()]);
            continue;
        }
        let center = classes.means.column(class);
        let direction = &inverse * center;
        bias.push((-0.5 * center.dot(&direction)) as f32);
        weights.extend(direction.iter().map(|&w| w as f32));
    }
    Discriminant { weights, bias }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::local::{EmbeddingNoise, RandomizedLabels};
    use crate::noise::Secret;
    use crate::tensor::Host;
    use undertone_run::ReleaseKind;

    /// Two classes in four columns, one of which separates them, under noise larger than the
    /// signal.
    fn data(n: usize, noise: f64, label_epsilon: Option<f64>) -> (Moments, Known) {
        let release = EmbeddingNoise::new(&Secret::from_seed(5), ReleaseKind::Once, vec![noise]);
        let shape = EmbeddingNoise::new(&Secret::from_seed(6), ReleaseKind::Once, vec![0.3]);
        let labels =
            label_epsilon.map(|epsilon| RandomizedLabels::new(&Secret::from_seed(7), epsilon, 2));
        let mut moments = Moments::new(4, 2);
        let (mut rows, mut classes) = (Vec::new(), Vec::new());
        for i in 0..n as u64 {
            // Two thirds belong to the first class.
            let class = u32::from(i % 3 == 0);
            let mut row = [if class == 0 { 0.4 } else { -0.2 }, 0.5, 0.0, 0.0];
            shape.perturb(i, 0, &mut row);
            release.perturb(i, 0, &mut row);
            rows.extend(row);
            classes.push(labels.as_ref().map_or(class, |labels| labels.answer(i, class)));
        }
        moments.add(&Host::from_vec(n, 4, rows), &classes).unwrap();
        let known = Known {
            variances: vec![noise * noise; 4],
            labels: labels.map(|labels| labels.flipped()),
        };
        (moments, known)
    }

    #[test]
    fn noise_and_label_flips_are_corrected_for() {
        for label_epsilon in [None, Some(1.0)] {
            let (moments, known) = data(200_000, 1.0, label_epsilon);
            let covariance = moments.covariance(&known);
            assert!((covariance[(2, 2)] - 0.09).abs() < 0.03, "{covariance}");
            let classes = moments.class_means(&known);
            assert!((classes.shares[0] - 2.0 / 3.0).abs() < 0.01, "{:?}", classes.shares);
            assert!(
                (classes.means[(0, 0)] - 0.4).abs() < 0.02
                    && (classes.means[(0, 1)] + 0.2).abs() < 0.03
            );
            let fitted = discriminant(&moments, &known);
            // The boundary on the first axis lies halfway between the means, at 0.1, although the
            // classes are unbalanced.
            let difference: Vec<f32> =
                (0..4).map(|j| fitted.weights[j] - fitted.weights[4 + j]).collect();
            let at = -(fitted.bias[0] - fitted.bias[1] + difference[1] * 0.5) / difference[0];
            assert!((at - 0.1).abs() < 0.05, "{label_epsilon:?}: {at}");
            assert!(difference[0] > 5.0 * difference[2].abs());
        }
    }
}
