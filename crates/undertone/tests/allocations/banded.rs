//! Correlated noise (BandMF).

use super::*;
use undertone::collective::Slice;
use undertone::noise::Bands;

const BANDS: usize = 4;

fn learner(kind: OptimizerKind) -> Learner {
    let model = model(&Tuning::Full);
    let method = BandedDpSgd::new(&Clip::Flat(0.5), BANDS, &model.parameters);
    let method = AllocationMethod::Proved(Box::new(method));
    let protection = Protection { method, noise: Noise::new(&Secret::from_seed(8)) };
    let settings = Settings { kind, momentum: 0.0, weight_decay: 0.0, ..Settings::default() };
    Learner::new(model, settings, Some(protection))
}

/// The values that a step releases about a batch, under SGD with learning rate 1.
fn step(learner: &mut Learner, batch: &Batch, number: u64, noise_multiplier: f64) -> Vec<f64> {
    let before = trained(learner);
    let settings = StepSettings { number, noise_multiplier, divisor: 1.0, learning_rate: 1.0 };
    steps::take(learner, batch, settings);
    before.iter().zip(trained(learner)).map(|(before, after)| before - after).collect()
}

fn variance(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum::<f64>() / numbers.len() as f64
}

/// C times the released noise is white, with the std that is accounted for. This fails if the noise
/// of any step is scaled wrongly, left out, or correlated differently than in the proof.
#[test]
fn the_matrix_makes_the_noise_white() {
    let (sigma, clip, steps) = (40.0, 0.5, 14);
    let mut learner = learner(OptimizerKind::Sgd);
    let nobody = Batch::pack(&[]);
    let noise: Vec<Vec<f64>> =
        (0..steps).map(|number| step(&mut learner, &nobody, number, sigma)).collect();
    let bands = Bands::square_root(BANDS);
    let white: Vec<Vec<f64>> = (0..noise.len())
        .map(|t| {
            let mut row = vec![0.0; noise[0].len()];
            for (k, c) in bands.coefficients().iter().enumerate().take(t + 1) {
                row.iter_mut().zip(&noise[t - k]).for_each(|(sum, n)| *sum += c * n);
            }
            row
        })
        .collect();
    let count = noise[0].len() as f64;
    let scale = (sigma * clip).powi(2);
    for (t, row) in white.iter().enumerate() {
        let ratio = variance(row) / scale;
        assert!((ratio - 1.0).abs() < 5.0 * (2.0 / count).sqrt() + 1e-3, "step {t}: {ratio}");
        for (s, earlier) in white[..t].iter().enumerate() {
            let product: f64 = row.iter().zip(earlier).map(|(x, y)| x * y).sum();
            let correlation = product / scale / count;
            assert!(correlation.abs() < 5.5 / count.sqrt(), "steps {s} and {t}: {correlation}");
        }
    }
    // The purpose of the method: the sum over the steps has less noise than with independent noise.
    let sum: Vec<f64> = (0..noise[0].len()).map(|i| noise.iter().map(|row| row[i]).sum()).collect();
    let inverse = bands.inverse(noise.len());
    let prefix = |k: usize| inverse[..=k].iter().sum::<f64>();
    let expected: f64 = (0..noise.len()).map(|k| prefix(k).powi(2)).sum::<f64>() * scale;
    let ratio = variance(&sum) / expected;
    assert!((ratio - 1.0).abs() < 5.0 * (2.0 / count).sqrt() + 1e-3, "{ratio}");
    assert!(expected < 0.7 * noise.len() as f64 * scale, "{}", expected / scale);
}

/// A learner that starts in the middle recomputes the noise of the earlier steps.
#[test]
fn a_resumed_run_has_the_same_noise() {
    let nobody = Batch::pack(&[]);
    let mut whole = learner(OptimizerKind::Sgd);
    let all: Vec<Vec<f64>> = (0..9).map(|number| step(&mut whole, &nobody, number, 2.0)).collect();
    let mut resumed = learner(OptimizerKind::Sgd);
    for number in [7, 8, 5] {
        // Its weights differ, so differences are rounded differently.
        let again = step(&mut resumed, &nobody, number, 2.0);
        for (x, y) in again.iter().zip(&all[number as usize]) {
            assert!((x - y).abs() < 1e-4, "step {number}: {x} {y}");
        }
    }
}

/// The noise-corrected optimizer uses the noise of all steps, not only of the last one: on noise
/// alone, its second moment is about zero.
#[test]
fn the_corrected_optimizer_knows_how_far_noise_reaches() {
    let mut learner = learner(OptimizerKind::AdamCorrected);
    let nobody = Batch::pack(&[]);
    (0..12).for_each(|number| {
        step(&mut learner, &nobody, number, 2.0);
    });
    let std = 2.0 * 0.5 / Bands::square_root(BANDS).coefficients()[0];
    let (mut sum, mut count) = (0.0, 0.0);
    for id in learner.trainable() {
        let whole = Slice { parameter: id, range: 0..learner.model.parameters.get(id).len() };
        let (_, second) = learner.optimizer.moments(&whole).unwrap();
        for v in second.to_vec().unwrap() {
            sum += f64::from(v) / (1.0 - 0.999_f64.powi(12));
            count += 1.0;
        }
    }
    let left = sum / count / (std * std);
    assert!(left.abs() < 5.0 * (2.0 / (12.0 * count)).sqrt() * 2.0 + 1e-3, "{left}");
}
