//! The filter over released gradients (DiSK).

use super::*;
use undertone::collective::Slice;
use undertone::step::GradientFilter;
use undertone::tensor::Matrix;

const GAIN: f64 = 0.4;
const CLIP: f64 = 0.5;

fn learner(kind: OptimizerKind, gain: Option<f64>) -> Learner {
    let model = model(&Tuning::Full);
    let method = DpSgd::new(&Clip::Flat(CLIP), &model.parameters);
    let method = AllocationMethod::Proved(Box::new(method));
    let protection = Protection { method, noise: Noise::new(&Secret::from_seed(8)) };
    let settings = Settings { kind, momentum: 0.0, weight_decay: 0.0, ..Settings::default() };
    let mut learner = Learner::new(model, settings, Some(protection));
    learner.filter = gain.map(GradientFilter::new);
    learner
}

fn set(learner: &mut Learner, values: &[f64]) {
    let mut rest = values;
    for id in learner.trainable() {
        let parameter = learner.model.parameters.get_mut(id);
        let [rows, columns] = parameter.value.shape();
        let (own, after) = rest.split_at(rows * columns);
        rest = after;
        let own = own.iter().map(|&x| x as f32).collect();
        parameter.value = Matrix::from_vec(rows, columns, own);
    }
}

/// What a step with SGD and learning rate 1 subtracts from the weights.
fn step(learner: &mut Learner, batch: &Batch, number: u64, noise_multiplier: f64) -> Vec<f64> {
    let before = trained(learner);
    let settings = StepSettings { number, noise_multiplier, divisor: 1.0, learning_rate: 1.0 };
    steps::take(learner, batch, settings);
    before.iter().zip(trained(learner)).map(|(before, after)| before - after).collect()
}

fn close(left: &[f64], right: &[f64], tolerance: f64) {
    for (i, (x, y)) in left.iter().zip(right).enumerate() {
        assert!((x - y).abs() <= tolerance, "coordinate {i}: {x} and {y}");
    }
}

/// The filter is applied to releases with all their noise: on noise alone, step t is f_t =
/// (1 − κ) f_{t−1} + κ g_t, where g_t is what a learner without filter releases. This fails if the
/// noise is smaller than without filter.
#[test]
fn the_filter_averages_whole_releases() {
    let nobody = Batch::pack(&[]);
    let mut plain = learner(OptimizerKind::Sgd, None);
    let mut filtering = learner(OptimizerKind::Sgd, Some(GAIN));
    let mut expected: Vec<f64> = Vec::new();
    for number in 0..9 {
        let noise = step(&mut plain, &nobody, number, 4.0);
        let variance = noise.iter().map(|x| x * x).sum::<f64>() / noise.len() as f64;
        assert!((variance / (4.0 * CLIP).powi(2) - 1.0).abs() < 0.2, "{variance}");
        expected.resize(noise.len(), 0.0);
        expected.iter_mut().zip(&noise).for_each(|(f, g)| *f = (1.0 - GAIN) * *f + GAIN * g);
        // Sums are rounded to a grid with a spacing of at most 1/256 of the noise.
        close(&step(&mut filtering, &nobody, number, 4.0), &expected, 4.0 * CLIP / 256.0);
    }
}

/// Gradients are those of the weights further along the path, and the weights are back afterward.
#[test]
fn gradients_are_taken_ahead() {
    // The gradient at given weights, by a learner without filter.
    let gradient = |weights: &[f64]| {
        let mut plain = learner(OptimizerKind::Sgd, None);
        set(&mut plain, weights);
        step(&mut plain, &batch(), 0, 0.0)
    };
    let mut filtering = learner(OptimizerKind::Sgd, Some(GAIN));
    let (mut before, mut filtered) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let now = trained(&filtering);
        let distance = (1.0 - GAIN) / GAIN;
        let ahead: Vec<f64> = match before.is_empty() {
            true => now.clone(),
            false => {
                now.iter().zip(&before).map(|(x, y): (&f64, &f64)| x + distance * (x - y)).collect()
            }
        };
        let fresh = gradient(&ahead);
        filtered.resize(fresh.len(), 0.0);
        filtered.iter_mut().zip(&fresh).for_each(|(f, g): (&mut f64, &f64)| {
            *f = (1.0 - GAIN) * *f + GAIN * g;
        });
        close(&step(&mut filtering, &batch(), number, 0.0), &filtered, 2e-5);
        before = now;
    }
    // A step that was begun twice moves the weights once.
    let now = trained(&filtering);
    steps::begun(&mut filtering, 0.0);
    steps::begun(&mut filtering, 0.0);
    assert_ne!(trained(&filtering), now);
    step(&mut filtering, &Batch::pack(&[]), 4, 0.0);
    let moved: Vec<f64> = filtered.iter().map(|f| (1.0 - GAIN) * f).collect();
    let expected: Vec<f64> = now.iter().zip(&moved).map(|(x, f)| x - f).collect();
    close(&trained(&filtering), &expected, 2e-5);
}

/// The corrected optimizer subtracts the noise that is left after the filter: on noise alone, its
/// second moment is about zero.
#[test]
fn the_corrected_optimizer_knows_the_noise_after_the_filter() {
    let mut learner = learner(OptimizerKind::AdamCorrected, Some(GAIN));
    let nobody = Batch::pack(&[]);
    const STEPS: u64 = 60;
    (0..STEPS).for_each(|number| {
        step(&mut learner, &nobody, number, 2.0);
    });
    let std = 2.0 * CLIP * (GAIN / (2.0 - GAIN)).sqrt();
    let (mut sum, mut count) = (0.0, 0.0);
    for id in learner.trainable() {
        let whole = Slice { parameter: id, range: 0..learner.model.parameters.get(id).len() };
        let (_, second) = learner.optimizer.moments(&whole).unwrap();
        for v in second.to_vec().unwrap() {
            sum += f64::from(v) / (1.0 - 0.999_f64.powi(STEPS as i32));
            count += 1.0;
        }
    }
    // Squares of successive f_t are correlated over about 1/κ steps.
    let left = sum / count / (std * std);
    let independent = STEPS as f64 * count * GAIN;
    assert!(left.abs() < 5.0 * (2.0 / independent).sqrt() + 5e-3, "{left}");
}
