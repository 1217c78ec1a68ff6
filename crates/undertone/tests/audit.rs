//! The one-run audit detects a broken trainer and does not accuse a correct one.

use crate::steps;
use serde_json::Value;
use undertone::audit::canaries::{CanaryTemplate, Coins};
use undertone::audit::exposure::{exact, mean_reciprocal_rank};
use undertone::audit::membership::{by_loss, by_reference, judge};
use undertone::audit::one_run::{OneRun, audit, lower_bound, p_value};
use undertone::audit::statistics::{Scores, area, at_least, rate_at};
use undertone::audit::update::by_update;
use undertone::data::{Batch, Dataset, Example, Labels, Target};
use undertone::evaluate::{Limits, predict};
use undertone::gradient::Clip;
use undertone::method::central::DpSgd;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::tuning::Tuning;
use undertone::model::{Model, ParameterId, TaskHead};
use undertone::noise::{Noise, Secret};
use undertone::run::OptimizerKind;
use undertone::step::optimizer::Settings;
use undertone::step::{AllocationMethod, Learner, Protection, StepSettings};
use undertone::tensor::Matrix;
use undertone_accounting::gaussian::largest_mu;

const DELTA: f64 = 1e-5;
/// The audit sees the sum of all steps: signal and noise grow alike, whatever their number.
const STEPS: u64 = 2;
/// Below all gradient norms, so that every canary's gradient is clipped to the bound.
const BOUND: f64 = 1e-3;

/// A model that distinguishes different texts.
fn model(tuning: &Tuning) -> Model {
    let dimensions = Dimensions {
        layers: 1,
        hidden: 32,
        heads: 4,
        inner: 32,
        vocabulary: 1000,
        positions: 20,
        key_heads: None,
    };
    let labels = ["a".to_owned(), "b".to_owned()];
    let mut model = Architecture::Bert
        .random(dimensions, TaskHead::SequenceClassification, &labels, 5)
        .unwrap();
    let matrices: Vec<ParameterId> =
        model.parameters.iter().filter(|(_, p)| p.shape.len() == 2).map(|(id, _)| id).collect();
    for id in matrices {
        let parameter = model.parameters.get_mut(id);
        let values = parameter.value.to_vec().unwrap().iter().map(|w| 5.0 * w).collect();
        parameter.value =
            Matrix::from_vec(parameter.value.rows(), parameter.value.columns(), values);
    }
    model.apply_tuning(tuning, 3).unwrap();
    model
}

fn texts(count: usize, salt: usize) -> Dataset {
    let example = |i: usize| Example {
        tokens: (0..8).map(|t| ((i * 31 + t * 17 + salt * 7 + i * t) % 997) as u32).collect(),
        target: Target::Class((i % 2) as u32),
        unit: i as u32,
        ..Example::default()
    };
    Dataset {
        examples: (0..count).map(example).collect(),
        labels: Some(Labels::given(vec!["a".into(), "b".into()]).unwrap()),
        units: count,
        most_per_unit: 1,
        masking: None,
        skipped: 0,
        tally: Default::default(),
    }
}

fn losses(model: &Model, examples: &[Example]) -> Vec<f64> {
    let said = predict(model, examples, Limits::default(), false).unwrap();
    said.iter().map(|said| f64::from(said.loss.unwrap())).collect()
}

/// Trains on all examples in every step, which is a Gaussian mechanism without sampling, and audits
/// the result. `quieter` divides the noise; a `clip` above 1 breaks clipping.
fn one_run(seed: u64, epsilon: f64, quieter: f64, clip: f64) -> OneRun {
    let secret = Secret::from_seed(seed);
    let mut data = texts(20, 1);
    let canary_template = CanaryTemplate {
        frames: texts(1, 2).examples,
        words: (0..997).collect(),
        special: Vec::new(),
        classes: Some(2),
    };
    let planted = canary_template.canaries(200, &secret).unwrap();
    let coins = Coins::toss(200, &secret);
    coins.put_in(&planted, &mut data);
    // With token embeddings alone, every text has its own rows, so canaries can be distinguished.
    let mut start = model(&Tuning::Full);
    for (_, parameter) in start.parameters.iter_mut() {
        parameter.trainable = parameter.name.contains("word_embeddings");
    }
    let before = start.clone();
    let method = AllocationMethod::Proved(Box::new(DpSgd::new(
        &Clip::Flat(BOUND * clip),
        &start.parameters,
    )));
    let protection = Protection { method, noise: Noise::new(&secret) };
    let settings = Settings {
        kind: OptimizerKind::Sgd,
        momentum: 0.0,
        weight_decay: 0.0,
        ..Settings::default()
    };
    let mut learner = Learner::new(start, settings, Some(protection));
    // The noise that a correct trainer needs for ε.
    let noise_multiplier = (STEPS as f64).sqrt() / largest_mu(epsilon, DELTA).unwrap();
    let batch = Batch::pack(&data.examples);
    for number in 0..STEPS {
        let noise_multiplier = noise_multiplier / quieter / clip;
        let step = StepSettings { number, noise_multiplier, divisor: 1.0, learning_rate: 0.1 };
        steps::take(&mut learner, &batch, step);
    }
    let scores = by_update(&before, &learner.model, &planted).unwrap();
    audit(&scores, &coins.inside, 40, DELTA, 0.95)
}

/// fixtures/audit/make.py computes the same figures from their definitions.
#[test]
fn figures_are_those_of_an_independent_implementation() {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let path = std::path::Path::new(&root).join("tests/fixtures/audit/cases.json");
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    let numbers =
        |value: &Value| value.as_array().unwrap().iter().map(number).collect::<Vec<f64>>();
    let list = |key: &str| cases[key].as_array().unwrap().clone();
    let whole = |value: &Value| value.as_u64().unwrap();
    for case in list("tails") {
        let tail = at_least(whole(&case["n"]), whole(&case["k"]), number(&case["p"]));
        assert!((tail - number(&case["tail"])).abs() < 1e-11, "{case}: {tail}");
    }
    for case in list("groups") {
        let curve = Scores::new(&numbers(&case["members"]), &numbers(&case["others"])).roc();
        assert!((area(&curve) - number(&case["auc"])).abs() < 1e-12, "{}", area(&curve));
        for at in case["at"].as_array().unwrap() {
            let at = numbers(at);
            assert!((rate_at(&curve, at[0]) - at[1]).abs() < 1e-12, "{at:?}");
        }
    }
    for case in list("one_run") {
        let of = |key: &str| whole(&case[key]);
        let (delta, confidence) = (number(&case["delta"]), number(&case["confidence"]));
        let p = p_value(of("canaries"), of("guesses"), of("right"), 1.0, delta);
        assert!((p - number(&case["p_value_at_1"])).abs() < 1e-10, "{case}: {p}");
        let lower = lower_bound(of("canaries"), of("guesses"), of("right"), delta, confidence);
        assert!((lower - number(&case["lower"])).abs() < 1e-8, "{case}: {lower}");
    }
    let ranks: Vec<f64> = list("exposure")
        .iter()
        .map(|case| {
            let exposure = exact(number(&case["secret"]), &numbers(&case["others"]));
            assert!((exposure.bits - number(&case["bits"])).abs() < 1e-12);
            exposure.rank
        })
        .collect();
    assert!((mean_reciprocal_rank(&ranks) - number(&cases["mean_reciprocal_rank"])).abs() < 1e-12);
}

#[test]
fn a_broken_trainer_is_found_out_and_an_honest_one_is_not_accused() {
    let epsilon = 1.0;
    let loud = one_run(1, epsilon, 1000.0, 1.0);
    assert!(loud.epsilon_lower > 2.0, "without noise the canaries sing: {loud:?}");
    for (what, quieter, clip) in [("noise at a tenth", 10.0, 1.0), ("clipping off", 1.0, 1e6)] {
        let detected = (0..5)
            .filter(|&seed| one_run(seed, epsilon, quieter, clip).epsilon_lower > epsilon)
            .count();
        assert!(detected >= 4, "{what}: found in {detected} of 5 runs");
    }
    let accused =
        (0..100).filter(|&seed| one_run(seed, epsilon, 1.0, 1.0).epsilon_lower > epsilon).count();
    assert!(accused <= 5, "{accused} of 100 honest runs were accused");
}

#[test]
fn an_overfitted_model_gives_its_members_away_and_a_private_one_does_not() {
    let (data, others) = (texts(60, 1), texts(60, 5));
    let auc = |noise: Option<f64>| {
        let start = model(&Tuning::Full);
        let (before_in, before_out) =
            (losses(&start, &data.examples), losses(&start, &others.examples));
        let protection = noise.map(|_| Protection {
            method: AllocationMethod::Proved(Box::new(DpSgd::new(
                &Clip::Flat(1.0),
                &start.parameters,
            ))),
            noise: Noise::new(&Secret::from_seed(3)),
        });
        let settings = Settings { weight_decay: 0.0, ..Settings::default() };
        let mut learner = Learner::new(start, settings, protection);
        for number in 0..80 {
            let step = StepSettings {
                number,
                noise_multiplier: noise.unwrap_or(0.0),
                divisor: 60.0,
                learning_rate: 3e-3,
            };
            steps::take(&mut learner, &Batch::pack(&data.examples), step);
        }
        let (inside, outside) =
            (losses(&learner.model, &data.examples), losses(&learner.model, &others.examples));
        // Wide intervals: a correct one misses the truth once in a thousand, whatever the rounding.
        let plain = judge("loss", &by_loss(&inside), &by_loss(&outside), 0.999, 1).auc;
        let scores = (by_reference(&inside, &before_in), by_reference(&outside, &before_out));
        (plain, judge("reference", &scores.0, &scores.1, 0.999, 1).auc)
    };
    let (plain, reference) = auc(None);
    assert!(plain.estimate > 0.9 && reference.lower > 0.6, "{plain:?} {reference:?}");
    // 80 releases with this noise multiplier cost about ε = 3.
    let (plain, reference) = auc(Some(12.0));
    assert!(plain.contains(0.5) && reference.contains(0.5), "{plain:?} {reference:?}");
}
