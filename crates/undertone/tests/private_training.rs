//! A private step releases the clipped sum with noise of the std that the ledger records, and
//! nothing else.

use crate::steps;
use undertone::data::{Batch, Example, Target};
use undertone::gradient::Clip;
use undertone::gradient::Clipping;
use undertone::method::central::DpSgd;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::tuning::{LoraSettings, Tuning};
use undertone::model::{Model, TaskHead};
use undertone::noise::{Noise, Secret};
use undertone::run::OptimizerKind;
use undertone::step::optimizer::Settings;
use undertone::step::{AllocationMethod, Learner, Protection, StepSettings};

fn model() -> Model {
    tuned(&Tuning::Full)
}

fn tuned(tuning: &Tuning) -> Model {
    let dimensions = Dimensions {
        layers: 1,
        hidden: 32,
        heads: 2,
        inner: 64,
        vocabulary: 500,
        positions: 32,
        key_heads: None,
    };
    let labels = ["a".to_owned(), "b".to_owned()];
    let mut model = Architecture::Bert
        .random(dimensions, TaskHead::SequenceClassification, &labels, 3)
        .unwrap();
    model.apply_tuning(tuning, 1).unwrap();
    model
}

/// SGD with learning rate 1: the weights move by exactly the released value.
fn learner(clip: Option<Clip>, seed: u64) -> Learner {
    let settings = Settings {
        kind: OptimizerKind::Sgd,
        momentum: 0.0,
        weight_decay: 0.0,
        ..Settings::default()
    };
    let model = model();
    let protection = clip.map(|clip| protection(&model, clip, seed));
    Learner::new(model, settings, protection)
}

fn protection(model: &Model, clip: Clip, seed: u64) -> Protection {
    let method = AllocationMethod::Proved(Box::new(DpSgd::new(&clip, &model.parameters)));
    Protection { method, noise: Noise::new(&Secret::from_seed(seed)) }
}

fn weights(learner: &Learner) -> Vec<f64> {
    let parameters = learner.model.parameters.iter();
    parameters.flat_map(|(_, p)| p.value.to_vec().unwrap()).map(f64::from).collect()
}

fn batch(units: std::ops::Range<u32>) -> Batch {
    let examples: Vec<Example> = units
        .map(|unit| Example {
            tokens: (0..6 + unit % 5).map(|t| (unit * 31 + t * 7) % 500).collect(),
            target: Target::Class(unit % 2),
            unit,
            ..Example::default()
        })
        .collect();
    Batch::pack(&examples)
}

/// The values that a step releases about a batch.
fn released(
    clip: Option<Clip>,
    seed: u64,
    batch: &Batch,
    number: u64,
    noise_multiplier: f64,
    divisor: f64,
) -> Vec<f64> {
    let mut learner = learner(clip, seed);
    let before = weights(&learner);
    let settings = StepSettings { number, noise_multiplier, divisor, learning_rate: 1.0 };
    steps::take(&mut learner, batch, settings);
    before.iter().zip(weights(&learner)).map(|(before, after)| before - after).collect()
}

fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let (count, squares) =
        values.fold((0.0, 0.0), |(count, squares), x| (count + 1.0, squares + x * x));
    (squares / f64::max(count, 1.0)).sqrt()
}

#[test]
fn an_empty_batch_releases_noise_of_the_stated_std() {
    let nobody = batch(0..0);
    for (clip, bound) in
        [(Clip::Flat(0.5), 0.5), (Clip::PerLayer(2.0), 2.0), (Clip::Automatic, 1.0)]
    {
        let (noise_multiplier, divisor) = (1.7, 40.0);
        let noise = released(Some(clip), 5, &nobody, 3, noise_multiplier, divisor);
        let want = noise_multiplier * bound / divisor;
        let measured = root_mean_square(noise.iter().copied());
        // Five standard deviations of the estimate, plus the rounding of a weight near 1 to f32.
        let tolerance = 5.0 / (2.0 * noise.len() as f64).sqrt() + 1e-3;
        assert!((measured / want - 1.0).abs() < tolerance, "{clip:?}: {measured}, not {want}");
    }
}

#[test]
fn the_noise_of_a_step_is_its_own() {
    let nobody = batch(0..0);
    let of = |seed, number| released(Some(Clip::Automatic), seed, &nobody, number, 1.0, 1.0);
    let (first, second, other) = (of(5, 0), of(5, 1), of(6, 0));
    assert_eq!(first, of(5, 0), "the same step of the same run has the same noise");
    for different in [&second, &other] {
        let products: f64 = first.iter().zip(different).map(|(x, y)| x * y).sum();
        assert!(products.abs() < 5.0 * (first.len() as f64).sqrt(), "independent: {products}");
    }
}

#[test]
fn without_noise_what_is_released_is_the_clipped_mean_over_the_expected_batch() {
    let all = batch(0..12);
    // With a bound that no unit reaches, the sum is the plain one, divided by the expected number
    // of units instead of the actual one.
    let plain = released(None, 1, &all, 0, 0.0, 20.0);
    let clipped = released(Some(Clip::Flat(1e6)), 1, &all, 0, 0.0, 20.0);
    let size = root_mean_square(plain.iter().copied());
    let error = root_mean_square(plain.iter().zip(&clipped).map(|(x, y)| x - y));
    assert!(error < 1e-4 * size + 1e-7, "{error} of {size}");
    // With a bound that every unit exceeds: twelve gradients, each of ℓ2 norm at most 0.01.
    let short = released(Some(Clip::Flat(0.01)), 1, &all, 0, 0.0, 1.0);
    let norm = short.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(norm <= 12.0 * 0.01 * 1.01 && norm > 0.0, "{norm}");
}

/// One additional unit moves the release by at most the bound, with the same noise in both runs.
#[test]
fn one_unit_moves_the_release_by_at_most_its_bound() {
    for clip in [Clip::Flat(0.2), Clip::PerLayer(0.2), Clip::Automatic] {
        let with = released(Some(clip), 9, &batch(0..12), 4, 0.8, 10.0);
        let without = released(Some(clip), 9, &batch(0..11), 4, 0.8, 10.0);
        let moved = with.iter().zip(&without).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
        // Results lie on a grid with a spacing of 1/4096 of the noise, and weights are rounded to
        // f32.
        let rounding = 0.8 * clip.bound() / 10.0 / 4096.0 * (with.len() as f64).sqrt();
        assert!(moved <= clip.bound() / 10.0 + rounding, "{clip:?}: {moved}");
        assert!(moved > 0.3 * clip.bound() / 10.0, "{clip:?}: the unit counts, {moved}");
    }
}

/// Compares all optimizers with their formulas in double precision, on known gradients.
#[test]
fn optimizers_follow_their_formulas() {
    let all = batch(0..8);
    for kind in [OptimizerKind::Sgd, OptimizerKind::Adamw, OptimizerKind::AdamCorrected] {
        let settings = Settings { kind, weight_decay: 0.1, ..Settings::default() };
        let model = model();
        let given = protection(&model, Clip::Automatic, 2);
        let mut learner = Learner::new(model, settings, Some(given));
        let decays: Vec<bool> = learner
            .model
            .parameters
            .iter()
            .flat_map(|(_, p)| vec![p.shape.len() > 1; p.len()])
            .collect();
        let (mut m, mut v) = (vec![0.0; decays.len()], vec![0.0; decays.len()]);
        for number in 0..3 {
            // The gradient that a plain learner in the same state releases.
            let probe_settings =
                Settings { kind: OptimizerKind::Sgd, momentum: 0.0, weight_decay: 0.0, ..settings };
            let given = protection(&learner.model, Clip::Automatic, 2);
            let mut probe = Learner::new(learner.model.clone(), probe_settings, Some(given));
            let step =
                StepSettings { number, noise_multiplier: 0.5, divisor: 8.0, learning_rate: 0.01 };
            let before = weights(&learner);
            steps::take(&mut probe, &all, StepSettings { learning_rate: 1.0, ..step });
            let gradient: Vec<f64> =
                before.iter().zip(weights(&probe)).map(|(x, y)| x - y).collect();
            steps::take(&mut learner, &all, step);
            let after = weights(&learner);
            let (t, variance) = (number as i32 + 1, (0.5 / 8.0_f64).powi(2));
            let mut furthest: f64 = 0.0;
            for (i, g) in gradient.iter().enumerate() {
                let kept = if decays[i] { before[i] * (1.0 - 0.01 * 0.1) } else { before[i] };
                let want = if kind == OptimizerKind::Sgd {
                    m[i] = 0.9 * m[i] + g;
                    kept - 0.01 * m[i]
                } else {
                    m[i] = 0.9 * m[i] + 0.1 * g;
                    v[i] = 0.999 * v[i] + 0.001 * g * g;
                    let mut second: f64 = v[i] / (1.0 - 0.999_f64.powi(t));
                    if kind == OptimizerKind::AdamCorrected {
                        second = (second - variance).max(variance / 16.0);
                    }
                    kept - 0.01 * (m[i] / (1.0 - 0.9_f64.powi(t))) / (second.sqrt() + 1e-8)
                };
                furthest = furthest.max((want - after[i]).abs());
            }
            assert!(furthest < 2e-4, "{kind:?}, step {number}: off by {furthest}");
        }
    }
}

/// LoRA+: B moves `b_rate` times as far, and other parameters as far as before.
#[test]
fn b_has_a_learning_rate_of_its_own() {
    let moved = |b_rate: f32| {
        let model = tuned(&Tuning::Lora(LoraSettings::default()));
        let settings = Settings {
            kind: OptimizerKind::Sgd,
            momentum: 0.0,
            weight_decay: 0.0,
            b_rate,
            ..Settings::default()
        };
        let given = protection(&model, Clip::Automatic, 2);
        let mut learner = Learner::new(model, settings, Some(given));
        let names: Vec<(bool, usize)> = learner
            .trainable()
            .into_iter()
            .map(|id| learner.model.parameters.get(id))
            .map(|parameter| (parameter.name.ends_with("lora_B.weight"), parameter.len()))
            .collect();
        let values = |learner: &Learner| -> Vec<f32> {
            let own = learner.trainable().into_iter();
            own.flat_map(|id| learner.model.parameters.value(id).to_vec().unwrap()).collect()
        };
        let before = values(&learner);
        let step =
            StepSettings { number: 0, noise_multiplier: 0.5, divisor: 8.0, learning_rate: 0.25 };
        steps::take(&mut learner, &batch(0..8), step);
        let moved: Vec<f32> = before.iter().zip(values(&learner)).map(|(x, y)| y - x).collect();
        let is_b = names.iter().flat_map(|&(is_b, len)| vec![is_b; len]).collect::<Vec<bool>>();
        (moved, is_b)
    };
    let ((once, is_b), (faster, _)) = (moved(1.0), moved(4.0));
    assert!(is_b.iter().any(|&b| b) && !is_b.iter().all(|&b| b));
    for ((once, faster), is_b) in once.iter().zip(&faster).zip(is_b) {
        let expected = if is_b { 4.0 * once } else { *once };
        assert!((faster - expected).abs() < 1e-5, "{once}, {faster}");
    }
}
