//! Clipping, a private step and the accountant against known answers.

use super::check::Checked;
use std::path::Path;
use undertone::data::{Batch, Example, Target};
use undertone::gradient::{Clip, ClippedSum};
use undertone::method::central::DpSgd;
use undertone::model::TaskHead;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::noise::{Noise, Secret};
use undertone::step::optimizer::Settings;
use undertone::step::{AllocationMethod, Cost, Learner, Protection, RunLedger, Step, StepSettings};
use undertone::tensor::CpuLevel;
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{Accountant, Adjacency, Composition, Event, Mode, Part, Threat, Unit};
use undertone_run::OptimizerKind;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// A norm above that of any gradient of the small model here.
const LOOSE: f64 = 1e6;

/// Steps of DP-SGD (noise multiplier, sampling rate, number), δ, and the ε that two independent
/// accountants published for them.
const PUBLISHED: [(f64, f64, u64, f64, f64); 4] = [
    (1.5, 0.04, 2250, 1e-5, 6.768_787),
    (0.8, 0.001, 100, 1e-6, 0.260_339),
    (2.0, 0.2, 100, 1e-6, 5.661_788),
    (1.1, 256.0 / 60_000.0, 14_063, 1e-5, 2.381_682),
];

pub fn checks(folder: &Path) -> Vec<Checked> {
    let sentence = |result: Fallible<String>| result.map_err(|e| e.to_string());
    vec![
        Checked::of("clipping", sentence(clipping())),
        Checked::of("noisy step", sentence(noisy_step(folder))),
        Checked::of("accountant", sentence(accountant())),
    ]
}

/// A small random BERT that is trained by plain SGD, clipped to this norm.
fn learner(clip: f64, secret: &Secret) -> Fallible<Learner> {
    let dimensions = Dimensions {
        layers: 2,
        hidden: 64,
        heads: 2,
        inner: 128,
        vocabulary: 100,
        positions: 32,
        key_heads: None,
    };
    let labels = ["even".to_owned(), "odd".to_owned()];
    let head = TaskHead::SequenceClassification;
    let model = Architecture::Bert.random(dimensions, head, &labels, 1)?;
    let dp_sgd = DpSgd::new(&Clip::Flat(clip), &model.parameters);
    let method = AllocationMethod::Proved(Box::new(dp_sgd));
    let plain = Settings {
        kind: OptimizerKind::Sgd,
        momentum: 0.0,
        weight_decay: 0.0,
        ..Settings::default()
    };
    Ok(Learner::new(model, plain, Some(Protection { method, noise: Noise::new(secret) })))
}

fn examples() -> Vec<Example> {
    let example = |unit: u32| Example {
        tokens: (0..4 + unit % 20).map(|at| 2 + (at * 7 + unit * 13) % 90).collect(),
        target: Target::Class(unit % 2),
        unit,
        ..Example::default()
    };
    (0..8).map(example).collect()
}

/// A step whose update is minus its noisy sum.
fn begin(learner: &mut Learner, noise_multiplier: f64) -> Fallible<Step> {
    let settings = StepSettings { number: 0, noise_multiplier, divisor: 1.0, learning_rate: 1.0 };
    Ok(learner.begin_step(settings)?)
}

/// The coordinates of the examples' clipped sum, and whether the update may see them.
fn clipped_sum(clip: f64, examples: &[Example]) -> Fallible<Vec<f32>> {
    let mut learner = learner(clip, &Secret::from_bytes([1; 32]))?;
    let step = begin(&mut learner, 1.0)?;
    let mut sum = learner.empty_sum();
    learner.accumulate(&step, &Batch::pack(examples), None, &mut sum)?;
    coordinates(&learner, &sum)
}

fn coordinates(learner: &Learner, sum: &ClippedSum) -> Fallible<Vec<f32>> {
    let mut all = Vec::new();
    for id in learner.trainable() {
        if let Some(gradient) = sum.get(id) {
            all.extend(gradient.to_vec()?);
        }
    }
    Ok(all)
}

fn weights(learner: &Learner) -> Fallible<Vec<f32>> {
    let mut all = Vec::new();
    for id in learner.trainable() {
        all.extend(learner.model.parameters.value(id).to_vec()?);
    }
    Ok(all)
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

/// The clipped sum is Σ gᵢ·min(1, C/‖gᵢ‖), with each gᵢ computed alone and without clipping.
fn clipping() -> Fallible<String> {
    let mut names = Vec::new();
    let examples = examples();
    for level in CpuLevel::available() {
        let apart = level.run(|| -> Result<f64, String> {
            let sum =
                |clip, examples: &[Example]| clipped_sum(clip, examples).map_err(|e| e.to_string());
            let alone = examples.iter().map(|example| sum(LOOSE, std::slice::from_ref(example)));
            let alone = alone.collect::<Result<Vec<_>, _>>()?;
            let mut norms: Vec<f64> = alone.iter().map(|gradient| norm(gradient)).collect();
            let each = norms.clone();
            norms.sort_by(f64::total_cmp);
            // Half of the examples are clipped.
            let clip = norms[norms.len() / 2];
            let mut expected = vec![0.0; alone[0].len()];
            for (gradient, norm) in alone.iter().zip(each) {
                let factor = (clip / norm).min(1.0) as f32;
                expected.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += factor * g);
            }
            let together = sum(clip, &examples)?;
            let difference: Vec<f32> =
                together.iter().zip(&expected).map(|(sum, expected)| sum - expected).collect();
            Ok(norm(&difference) / clip)
        })??;
        if apart.is_nan() || apart > 1e-4 {
            let name = level.name();
            return Err(format!("at {name}: the clipped sum is {apart:.1e} C away").into());
        }
        names.push(level.name());
    }
    Ok(format!("clipped sums match their definition at {}", names.join(", ")))
}

/// An empty batch releases noise of standard deviation σC, once it is recorded in a ledger.
fn noisy_step(folder: &Path) -> Fallible<String> {
    const SIGMA: f64 = 0.75;
    const CLIP: f64 = 2.0;
    let secret = Secret::from_system()?;
    let mut learner = learner(CLIP, &secret)?;
    let event = Event::PoissonGaussian { noise_multiplier: SIGMA, sampling_rate: 0.01 };
    let own = tempfile::tempdir_in(folder)?;
    let path = own.path().join("ledger.jsonl");
    let terms = Terms {
        id: secret.ledger_id(),
        run: None,
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: Mode::Proved,
        assumptions: Vec::new(),
        announced: vec![Part { event, count: 1 }],
    };
    let mut ledger = RunLedger::alone(Ledger::create(&path, terms)?, &path, 1e-5);
    let before = weights(&learner)?;
    let step = begin(&mut learner, SIGMA)?;
    let recorded = ledger.record(0, event, 1)?;
    let sum = learner.empty_sum();
    learner.release(sum, step, Cost::Recorded(recorded))?;
    let after = weights(&learner)?;
    let moved: Vec<f32> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let n = moved.len() as f64;
    let std = norm(&moved) / n.sqrt();
    let expected = SIGMA * CLIP;
    if ((std / expected).powi(2) - 1.0).abs() > 6.0 * (2.0 / n).sqrt() + 1e-4 {
        return Err(format!("the noise of a step has std {std:.4}, not {expected:.4}").into());
    }
    if ledger.guarantee()?.is_none() {
        return Err("the ledger of a private step states no guarantee".into());
    }
    Ok(format!("the noise has std {std:.4} for σC = {expected}, and its release is recorded"))
}

fn accountant() -> Fallible<String> {
    for (noise, rate, steps, delta, published) in PUBLISHED {
        let released = Composition::dp_sgd(noise, rate, steps);
        let bounds = undertone_accounting::epsilon(&released, delta, Accountant::Auto)?.epsilon;
        let agrees = bounds.lower <= published + 1e-3
            && published - 1e-3 <= bounds.upper
            && bounds.gap() < 0.01 * published + 0.005;
        if !agrees {
            return Err(format!(
                "ε is between {} and {}, not {published} (σ = {noise}, q = {rate}, {steps} steps)",
                bounds.lower, bounds.upper
            )
            .into());
        }
    }
    Ok(format!("{} published values of ε lie within their bounds", PUBLISHED.len()))
}
