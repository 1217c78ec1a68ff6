//! The effective noise multiplier of each allocation, compared with brute force: the direction in
//! which one unit can move a release the farthest, measured in noise.

mod adaptive;
mod banded;
mod filtered;
mod methods;
mod public;
mod sharded;

use crate::steps;
use methods::*;
use undertone::data::{Batch, Dataset, Example, Target};
use undertone::gradient::{Clip, ParameterGroups};
use undertone::method::central::{
    Adaclip, AdaclipSection, AdaptiveClipping, Anadp, BandedDpSgd, DpSgd, FixedWeights,
    ImportanceForm, ImportanceSettings, PublicGradients, PublishedAnadp, PublishedRapFt, RapFt,
    ReleasedRelevanceMap, RelevanceMap,
};
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::tuning::{AdapterSettings, LoraSettings, Tuning};
use undertone::model::{Model, Parameters, TaskHead};
use undertone::noise::{Noise, Secret};
use undertone::run::{AdaptiveClip, OptimizerKind};
use undertone::step::optimizer::Settings;
use undertone::step::{
    Allocation, AllocationMethod, Cost, Learner, Protection, Step, StepSettings,
};

fn model(tuning: &Tuning) -> Model {
    let dimensions = Dimensions {
        layers: 1,
        hidden: 16,
        heads: 2,
        inner: 32,
        vocabulary: 50,
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

fn examples() -> Vec<Example> {
    let example = |unit: u32| Example {
        tokens: (0..6 + unit % 5).map(|t| (unit * 31 + t * 7) % 50).collect(),
        target: Target::Class(unit % 2),
        unit,
        ..Example::default()
    };
    (0..8).map(example).collect()
}

fn batch() -> Batch {
    Batch::pack(&examples())
}

/// A learner after a few steps, with the next step begun.
fn after(
    steps: u64,
    noise: f64,
    tuning: &Tuning,
    method: impl Fn(&Parameters) -> AllocationMethod,
) -> Learner {
    let model = model(tuning);
    let protection =
        Protection { method: method(&model.parameters), noise: Noise::new(&Secret::from_seed(4)) };
    let mut learner = Learner::new(model, Settings::default(), Some(protection));
    for number in 0..=steps {
        let settings =
            StepSettings { number, noise_multiplier: noise, divisor: 8.0, learning_rate: 1e-2 };
        let mut step = learner.begin_step(settings).unwrap();
        let mut sum = learner.empty_sum();
        learner.accumulate(&step, &batch(), None, &mut sum).unwrap();
        learner.observe_raw(&sum, &mut step).unwrap();
        if number < steps {
            learner.release(sum, step, Cost::NonPrivate).unwrap();
        }
    }
    learner
}

/// A coordinate: its group, its weight in the clipping norm, and the std of its noise.
struct Coordinate {
    group: usize,
    weight: f64,
    std: f64,
}

fn coordinates(learner: &Learner, allocation: &Allocation) -> Vec<Coordinate> {
    let mut all = Vec::new();
    for (id, parameter) in
        learner.model.parameters.iter().filter(|(_, parameter)| parameter.trainable)
    {
        let count = parameter.len();
        let (mut stds, mut weights) = (vec![0.0; count], vec![1.0; count]);
        allocation.write_stds(id, 0, &mut stds);
        let mut groups = vec![0; count];
        match allocation.groups.of(id).unwrap() {
            ParameterGroups::Plain(group) => groups.fill(*group),
            ParameterGroups::Weighted(group, given) => {
                groups.fill(*group);
                given.write(0, &mut weights);
            }
            ParameterGroups::Split(sides) => {
                let mask = sides[0].1.values().iter();
                groups = mask.map(|&m| if m == 1.0 { sides[0].0 } else { sides[1].0 }).collect();
            }
        }
        for j in 0..count {
            all.push(Coordinate {
                group: groups[j],
                weight: f64::from(weights[j]),
                std: f64::from(stds[j]),
            });
        }
    }
    all
}

/// The largest distance, in units of noise, of a vector within the bounds: ascends from a random
/// direction. Returns the distance at the start and at the end.
fn furthest(coordinates: &[Coordinate], bounds: &[f64], seed: u64) -> (f64, f64) {
    let mut state = seed;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
    };
    let mut v: Vec<f64> = coordinates.iter().map(|_| random()).collect();
    let onto_bounds = |v: &mut [f64]| {
        let mut squared = vec![0.0; bounds.len()];
        for (x, c) in v.iter().zip(coordinates) {
            squared[c.group] += c.weight * x * x;
        }
        for (x, c) in v.iter_mut().zip(coordinates) {
            *x *= bounds[c.group] / squared[c.group].sqrt().max(1e-300);
        }
    };
    let far =
        |v: &[f64]| v.iter().zip(coordinates).map(|(x, c)| (x / c.std).powi(2)).sum::<f64>().sqrt();
    onto_bounds(&mut v);
    let at_random = far(&v);
    let mut most = at_random;
    for _ in 0..400 {
        // Ascend in the geometry of the bounds: x/s² relative to the weight of the coordinate.
        for (x, c) in v.iter_mut().zip(coordinates) {
            *x *= (1.0 / (c.std * c.std * c.weight)).sqrt();
        }
        onto_bounds(&mut v);
        most = most.max(far(&v));
    }
    (at_random, most)
}

#[test]
fn no_direction_is_worse_than_stated_and_one_is_as_bad() {
    for (name, tuning, proved, make) in methods() {
        let learner = after(3, 0.5, &tuning, make);
        let allocation = learner.method().unwrap().allocator().allocation(0.8);
        let stated = allocation.noise_multiplier();
        let coordinates = coordinates(&learner, &allocation);
        let mut most: f64 = 0.0;
        for seed in 1..6 {
            let (at_random, worst) = furthest(&coordinates, allocation.bounds.thresholds(), seed);
            assert!(at_random <= (1.0 + 1e-5) / stated, "{name}: {at_random} is beyond 1/{stated}");
            most = most.max(worst);
        }
        assert!(most <= (1.0 + 1e-5) / stated, "{name}: {most} is beyond 1/{stated}");
        assert!(most >= 0.99 / stated, "{name}: {most} is not near 1/{stated}");
        if proved {
            assert!(
                (stated / 0.8 - 1.0).abs() < 1e-9,
                "{name}: the effective noise multiplier is the nominal one, {stated}"
            );
        }
    }
}

/// ANADP as published: a unit whose gradient is concentrated on the coordinate with the least noise
/// is more visible than the claimed ε allows.
#[test]
fn the_published_allocation_of_anadp_breaks_its_claim() {
    let settings = ImportanceSettings::usual(ImportanceForm::Element);
    let learner = after(3, 0.5, &lora(), |p| {
        AllocationMethod::Published(Box::new(PublishedAnadp::new(&Clip::Flat(0.3), settings, p)))
    });
    let allocation = learner.method().unwrap().allocator().allocation(1.0);
    let coordinates = coordinates(&learner, &allocation);
    let least = coordinates.iter().map(|c| c.std).fold(f64::INFINITY, f64::min);
    // The unit moves that coordinate by its whole bound.
    let seen = 0.3 / least;
    assert!(seen > 1.2, "it is seen at {seen} stds, where the claim is 1");
    assert!(
        (allocation.noise_multiplier() * seen - 1.0).abs() < 1e-5,
        "and the effective noise multiplier says so"
    );
    // The total noise is not smaller, which is what the claim rests on.
    let mean_weight =
        coordinates.iter().map(|c| (0.3 / c.std).powi(2)).sum::<f64>() / coordinates.len() as f64;
    assert!((mean_weight - 1.0).abs() < 1e-3, "{mean_weight}");
}

/// S uses the gradient before clipping (line 6 of Algorithm 1), so the clipping norm does not
/// affect the weights.
#[test]
fn the_published_importance_of_anadp_is_that_of_unclipped_gradients() {
    let settings = ImportanceSettings::usual(ImportanceForm::Element);
    let weights = |bound: f64| -> Vec<f64> {
        let learner = after(0, 0.5, &Tuning::Bitfit, |p| {
            let clip = Clip::Flat(bound);
            AllocationMethod::Published(Box::new(PublishedAnadp::new(&clip, settings, p)))
        });
        let allocation = learner.method().unwrap().allocator().allocation(1.0);
        coordinates(&learner, &allocation).iter().map(|c| (bound / c.std).powi(2)).collect()
    };
    let (low, high) = (weights(1e-3), weights(1e3));
    assert!(low.iter().any(|w| (w - 1.0).abs() > 0.1), "they differ between coordinates");
    for (low, high) in low.iter().zip(&high) {
        assert!((low / high - 1.0).abs() < 1e-4, "{low} {high}");
    }
}

/// Rap-FT at β = 0.7: as published, σ_eff is 1.644 times the requested one.
#[test]
fn rap_ft_as_published_pays_for_more_than_it_uses() {
    let clip = Clip::Flat(2.0);
    let model = model(&lora());
    let map = some_map(&model.parameters);
    let mask = map.mask(0.7);
    let count = mask.iter().map(Vec::len).sum::<usize>() as f64;
    let weak = mask.iter().flatten().map(|&m| f64::from(m)).sum::<f64>() / count;
    assert!((weak - 0.7).abs() < 0.02, "{weak}");
    let published = PublishedRapFt::new(&clip, &map, 0.7, &model.parameters);
    let effective = undertone::step::Allocator::allocation(&published, 1.0).noise_multiplier();
    let expected = (weak.powi(3) + (1.0 - weak).powi(3)).powf(-0.5);
    assert!((effective - expected).abs() < 1e-9, "{effective}, not {expected}");
    assert!((1.55..1.75).contains(&effective), "{effective}");
}

#[test]
fn the_first_step_knows_nothing() {
    let learner = after(0, 0.5, &Tuning::Full, |p| {
        AllocationMethod::Proved(Box::new(Anadp::new(
            &Clip::Automatic,
            ImportanceSettings::usual(ImportanceForm::Element),
            p,
        )))
    });
    let allocation = learner.method().unwrap().allocator().allocation(1.0);
    let coordinates = coordinates(&learner, &allocation);
    assert!(coordinates.iter().all(|c| c.weight == 1.0 && c.std == 1.0));
    let later = after(2, 0.5, &Tuning::Full, |p| {
        AllocationMethod::Proved(Box::new(Anadp::new(
            &Clip::Automatic,
            ImportanceSettings::usual(ImportanceForm::Element),
            p,
        )))
    });
    let allocation = later.method().unwrap().allocator().allocation(1.0);
    let coordinates = self::coordinates(&later, &allocation);
    let mean = coordinates.iter().map(|c| c.weight).sum::<f64>() / coordinates.len() as f64;
    assert!((mean - 1.0).abs() < 1e-3, "{mean}");
    assert!(
        coordinates.iter().any(|c| c.weight > 1.5) && coordinates.iter().any(|c| c.weight < 0.9)
    );
}

/// AdaClip gives large gradients more noise; with exponent 0 it is DP-SGD.
#[test]
fn adaclip_follows_the_gradients() {
    let with = |exponent: f64| {
        let settings = AdaclipSection { exponent, ..AdaclipSection::default() };
        let learner = after(3, 0.02, &lora(), |p| {
            AllocationMethod::Proved(Box::new(Adaclip::new(&Clip::Automatic, settings.clone(), p)))
        });
        let allocation = learner.method().unwrap().allocator().allocation(1.0);
        coordinates(&learner, &allocation)
    };
    assert!(with(0.0).iter().all(|c| (c.weight - 1.0).abs() < 1e-5));
    let learned = with(0.5);
    let mean = learned.iter().map(|c| c.weight).sum::<f64>() / learned.len() as f64;
    assert!((mean - 1.0).abs() < 1e-4, "{mean}");
    assert!(learned.iter().any(|c| c.weight > 1.2) && learned.iter().any(|c| c.weight < 0.8));
}

/// All trained weights, concatenated.
fn trained(learner: &Learner) -> Vec<f64> {
    let trained = learner.model.parameters.iter().filter(|(_, parameter)| parameter.trainable);
    trained.flat_map(|(_, p)| p.value.to_vec().unwrap()).map(f64::from).collect()
}

/// The values that the next step of a learner releases about a batch: under SGD with learning rate
/// 1, weights move by exactly these values.
fn released(learner: &Learner, make: &Make, batch: &Batch, noise_multiplier: f64) -> Vec<f64> {
    let settings = Settings {
        kind: OptimizerKind::Sgd,
        momentum: 0.0,
        weight_decay: 0.0,
        ..Settings::default()
    };
    let method = make(&learner.model.parameters);
    let protection = Protection { method, noise: Noise::new(&Secret::from_seed(8)) };
    let mut fresh = Learner::new(learner.model.clone(), settings, Some(protection));
    let state = learner.method().unwrap().allocator().state();
    fresh.restore_method(&|name| {
        state.iter().find(|(known, _)| known == name).map(|entry| entry.1.dense().into_owned())
    });
    let before = trained(&fresh);
    let settings = StepSettings { number: 9, noise_multiplier, divisor: 1.0, learning_rate: 1.0 };
    steps::take(&mut fresh, batch, settings);
    before.iter().zip(trained(&fresh)).map(|(before, after)| before - after).collect()
}

/// The added noise has the stds from which σ_eff is computed, and one unit moves no group by more
/// than its bound. This fails if noise is scaled wrongly for any coordinate, or if clipping ignores
/// a weight, a mask or a bound.
#[test]
fn every_method_releases_what_it_states() {
    for (name, tuning, proved, make) in methods() {
        // A published method uses the sum of the same step, so its allocation is not known in
        // advance.
        if !proved {
            continue;
        }
        let learner = after(3, 0.5, &tuning, &make);
        let allocation = learner.method().unwrap().allocator().allocation(50.0);
        let coordinates = coordinates(&learner, &allocation);
        let noise = released(&learner, &make, &Batch::pack(&[]), 50.0);
        let squares = noise.iter().zip(&coordinates).map(|(x, c)| (x / c.std).powi(2));
        let ratio = (squares.sum::<f64>() / noise.len() as f64).sqrt();
        let tolerance = 5.0 / (2.0 * noise.len() as f64).sqrt() + 1e-3;
        assert!((ratio - 1.0).abs() < tolerance, "{name}: noise of {ratio} times what is stated");
        // One additional unit, with noise so small that it does not hide the unit's effect.
        let some = batch();
        let seven = Batch::pack(&examples()[..7]);
        let (with, without) =
            (released(&learner, &make, &some, 1e-4), released(&learner, &make, &seven, 1e-4));
        let mut moved = vec![0.0; allocation.bounds.thresholds().len()];
        for ((x, y), c) in with.iter().zip(&without).zip(&coordinates) {
            moved[c.group] += c.weight * (x - y).powi(2);
        }
        for (moved, bound) in moved.iter().zip(allocation.bounds.thresholds()) {
            assert!(moved.sqrt() <= bound * 1.01, "{name}: {} beyond {bound}", moved.sqrt());
        }
        let whole: f64 = moved.iter().sum();
        assert!(whole > 0.0, "{name}: the unit counts");
    }
}
