//! Noise of each example's embedding. It is a function of key, example and epoch, so a release can
//! be repeated without being stored.

use crate::data::Example;
use crate::evaluate::{Limits, Prediction, classify, in_batches};
use crate::model::layer::sanitizer::Perturb;
use crate::model::{Model, Result};
use crate::noise::{Noise, Secret};
use crate::replay::{ReleaseId, Tape};
use undertone_run::ReleaseKind;

/// The noise of all perturbed embeddings of a run.
#[derive(Clone, Debug)]
pub struct EmbeddingNoise {
    noise: Noise,
    release: ReleaseKind,
    /// Standard deviations by epoch.
    stds: Vec<f32>,
    tape: Option<Tape>,
}

/// Stream numbers per example, which limit the number of epochs in a run.
const EPOCHS: u64 = 1 << 16;

impl EmbeddingNoise {
    /// Noise with a standard deviation for each epoch, which must not increase if the release is a
    /// path.
    ///
    /// # Panics
    /// If the standard deviation increases along a path, or if there are more than 65,536 epochs.
    pub fn new(secret: &Secret, release: ReleaseKind, stds: Vec<f64>) -> Self {
        assert!(stds.len() as u64 <= EPOCHS, "at most {EPOCHS} epochs");
        let falls = stds.windows(2).all(|pair| pair[0] >= pair[1]);
        assert!(release != ReleaseKind::Path || falls, "the noise of a path does not rise");
        // Rounded up, since the ledger records the standard deviations as given.
        let rounded = |s: f64| if s == 0.0 { 0.0 } else { (s as f32).next_up() };
        let stds = stds.into_iter().map(rounded).collect();
        Self { noise: Noise::new(secret), release, stds, tape: None }
    }

    /// Passes every embedding to a tape before noise is added to it.
    pub(super) fn on(self, tape: Option<Tape>) -> Self {
        Self { tape, ..self }
    }

    /// Adds an example's noise for an epoch to its rows.
    pub fn perturb(&self, example: u64, epoch: usize, rows: &mut [f32]) {
        if let Some(tape) = &self.tape {
            let epoch = if self.release == ReleaseKind::Once { 0 } else { epoch };
            let release = ReleaseId::Embedding { example, epoch };
            tape.pass_slice(release, 0, rows, self.stds[epoch]);
        }
        let mut add = |stream: usize, std: f32| {
            self.noise.add(example * EPOCHS + stream as u64, 0, std, 1.0, rows);
        };
        let last = self.last_epoch();
        match self.release {
            ReleaseKind::Once => add(0, self.stds[0]),
            ReleaseKind::Fresh => add(epoch, self.stds[epoch]),
            ReleaseKind::Path => {
                // Go backward from the last release: each earlier release is the next one plus
                // noise.
                add(last, self.stds[last]);
                for e in (epoch..last).rev() {
                    let (more, less) = (f64::from(self.stds[e]), f64::from(self.stds[e + 1]));
                    add(e, (more * more - less * less).max(0.0).sqrt() as f32);
                }
            }
        }
    }

    /// The epoch with the least noise.
    pub fn last_epoch(&self) -> usize {
        self.stds.len() - 1
    }

    /// The noise of a batch of examples, given by their indices, in an epoch.
    pub fn of<'a>(&'a self, examples: &'a [u64], epoch: usize) -> BatchNoise<'a> {
        BatchNoise { noise: self, examples, epoch }
    }
}

/// The noise of a batch of examples in an epoch.
#[derive(Clone, Copy, Debug)]
pub struct BatchNoise<'a> {
    noise: &'a EmbeddingNoise,
    examples: &'a [u64],
    epoch: usize,
}

impl Perturb for BatchNoise<'_> {
    fn perturb(&self, sequence: usize, rows: &mut [f32]) {
        self.noise.perturb(self.examples[sequence], self.epoch, rows);
    }
}

/// Predictions of a classifier on embeddings perturbed under local DP; `first` is the noise index
/// of the first example.
pub fn predict_perturbed(
    model: &Model,
    examples: &[Example],
    limits: Limits,
    noise: &EmbeddingNoise,
    first: u64,
) -> Result<Vec<Prediction>> {
    let predictions = in_batches(
        examples,
        limits,
        |_| true,
        |piece, batch| {
            let indices: Vec<u64> = piece.iter().map(|&i| first + i as u64).collect();
            classify(model, batch, Some(&noise.of(&indices, noise.last_epoch())))
        },
    )?;
    Ok(predictions.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(
        release: ReleaseKind,
        stds: &[f64],
        example: u64,
        epoch: usize,
        n: usize,
    ) -> Vec<f32> {
        let noise = EmbeddingNoise::new(&Secret::from_seed(11), release, stds.to_vec());
        let mut rows = vec![0.0; n];
        noise.perturb(example, epoch, &mut rows);
        rows
    }

    fn mean_of_products(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / a.len() as f64
    }

    #[test]
    fn a_path_has_the_scheduled_variances_and_independent_steps() {
        let stds = [2.0, 1.5, 0.7];
        let n = 1_000_000;
        let paths: Vec<Vec<f32>> =
            (0..3).map(|e| releases(ReleaseKind::Path, &stds, 5, e, n)).collect();
        for (path, s) in paths.iter().zip(stds) {
            let variance = mean_of_products(path, path);
            assert!(
                (variance / (s * s) - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt(),
                "{variance} {s}"
            );
        }
        for e in 0..2 {
            let step: Vec<f32> = paths[e].iter().zip(&paths[e + 1]).map(|(a, b)| a - b).collect();
            let wanted = stds[e].powi(2) - stds[e + 1].powi(2);
            let variance = mean_of_products(&step, &step);
            assert!((variance / wanted - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt());
            // The increments are independent, not only uncorrelated: check the squares as well.
            let together = mean_of_products(&step, &paths[e + 1]);
            let most = 5.0 * (wanted.sqrt() * stds[e + 1]) / (n as f64).sqrt();
            assert!(together.abs() < most, "{together}");
            let squares =
                |x: &[f32], v: f64| x.iter().map(|x| x * x - v as f32).collect::<Vec<_>>();
            let (a, b) = (squares(&step, wanted), squares(&paths[e + 1], stds[e + 1].powi(2)));
            let most = 5.0 * 2.0 * wanted * stds[e + 1].powi(2) / (n as f64).sqrt();
            assert!(mean_of_products(&a, &b).abs() < most);
        }
    }

    #[test]
    fn the_last_release_of_a_path_tells_as_much_as_all_of_them() {
        // The optimal guess whether a value is +1 or −1, given all releases of a path, is the sign
        // of their sum weighted by the inverse covariance. For a path, all of that weight is on the
        // last release, so no linear combination is right more often than the sign of the last
        // release.
        let stds = [3.0, 2.0, 1.0];
        let trials = 40_000;
        let noise = EmbeddingNoise::new(&Secret::from_seed(2), ReleaseKind::Path, stds.to_vec());
        let combinations = [
            [0.0, 0.0, 1.0],
            [1.0, 1.0, 1.0],
            [0.1, 0.2, 0.7],
            [-0.3, 0.1, 1.2],
            [1.0 / 9.0, 0.25, 1.0],
        ];
        let mut right = [0; 5];
        for example in 0..trials {
            let seen: Vec<f32> = (0..3)
                .map(|e| {
                    let mut row = [1.0];
                    noise.perturb(example, e, &mut row);
                    row[0]
                })
                .collect();
            for (right, weights) in right.iter_mut().zip(combinations) {
                let guess: f32 = weights.iter().zip(&seen).map(|(w, x)| w * x).sum();
                *right += usize::from(guess > 0.0);
            }
        }
        let rate = |n: usize| n as f64 / trials as f64;
        // P(N > −1): replacing −1 by +1 is a shift of 2 at std 1.
        assert!((rate(right[0]) - 0.841_3).abs() < 0.01, "{right:?}");
        for other in &right[1..] {
            assert!(rate(*other) < rate(right[0]) + 0.006, "{right:?}");
        }
        // With fresh noise, the releases do add information, so the same attack gains.
        let fresh = EmbeddingNoise::new(&Secret::from_seed(2), ReleaseKind::Fresh, stds.to_vec());
        let mut gained = 0;
        for example in 0..trials {
            let guess: f32 = (0..3)
                .map(|e| {
                    let mut row = [1.0];
                    fresh.perturb(example, e, &mut row);
                    row[0] / (stds[e] * stds[e]) as f32
                })
                .sum();
            gained += usize::from(guess > 0.0);
        }
        assert!(rate(gained) > rate(right[0]) + 0.02);
    }

    #[test]
    fn an_epoch_of_std_0_has_no_noise() {
        let of = |epoch| releases(ReleaseKind::Fresh, &[0.0, 1.0, 0.0], 3, epoch, 50);
        assert!(of(0).iter().chain(&of(2)).all(|&x| x == 0.0));
        assert!(of(1).iter().all(|&x| x != 0.0));
    }

    #[test]
    fn an_example_has_its_own_noise_and_always_the_same() {
        for release in [ReleaseKind::Once, ReleaseKind::Path, ReleaseKind::Fresh] {
            let of = |example, epoch| releases(release, &[2.0, 1.0], example, epoch, 300);
            assert_eq!(of(1, 0), of(1, 0));
            assert_ne!(of(1, 0), of(2, 0));
            let same = of(1, 0) == of(1, 1);
            assert_eq!(same, release == ReleaseKind::Once);
            assert!(mean_of_products(&of(1, 1), &of(2, 1)).abs() < 0.6 * 2.0);
        }
    }
}
