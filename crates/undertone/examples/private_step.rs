//! DP-SGD by hand: fine-tunes a small random BERT with ghost clipping and Poisson sampling, records
//! every release in a privacy ledger before it is made, and prints the proved (ε, δ).
//!
//!     cargo run --release --example private_step [-- LEDGER]

use std::path::PathBuf;
use undertone::data::{Batch, Example, PoissonSampler, Target, micro_batches};
use undertone::gradient::Clip;
use undertone::method::central::DpSgd;
use undertone::model::TaskHead;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::noise::{Noise, Secret, purpose};
use undertone::step::optimizer::Settings;
use undertone::step::{AllocationMethod, Cost, Learner, Protection, RunLedger, StepSettings};
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{Accountant, Adjacency, Event, Mode, Part, Threat, Unit};

const EXAMPLES: usize = 500;
const STEPS: u64 = 20;
const SAMPLING_RATE: f64 = 0.1;
const EPSILON: f64 = 3.0;
const DELTA: f64 = 1e-5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The ledger must be a new file: ε covers everything released since its first line.
    let name = format!("undertone-private-step-{}.jsonl", std::process::id());
    let path = std::env::args().nth(1);
    let path = path.map_or_else(|| std::env::temp_dir().join(name), PathBuf::from);

    // A model and labeled token sequences. Each example is its own privacy unit.
    let dimensions = Dimensions {
        layers: 2,
        hidden: 32,
        heads: 2,
        inner: 64,
        vocabulary: 50,
        positions: 16,
        key_heads: None,
    };
    let labels = ["even".to_owned(), "odd".to_owned()];
    let task_head = TaskHead::SequenceClassification;
    let model = Architecture::Bert.random(dimensions, task_head, &labels, 1)?;
    let example = |unit: u32| Example {
        tokens: vec![2, 4 + unit % 40, 4 + (unit * 7) % 40, 3],
        target: Target::Class(unit % 2),
        unit,
        ..Example::default()
    };
    let examples: Vec<Example> = (0..EXAMPLES as u32).map(example).collect();

    // One secret from the operating system; sampling and noise have independent keys derived from
    // it. Anyone who knows it can subtract the noise.
    let secret = Secret::from_system()?;
    let sampler = PoissonSampler::new(EXAMPLES, SAMPLING_RATE, secret.key(purpose::SAMPLING))?;

    // DP-SGD: per-example gradients clipped to ℓ2 norm 1, and Gaussian noise of standard deviation
    // σ · 1 on their sum. σ is the least noise multiplier with which all steps together spend (ε,
    // δ).
    let auto = Accountant::Auto;
    let sigma = noise_multiplier(EPSILON, DELTA, SAMPLING_RATE, STEPS, auto)?.noise;
    let dp_sgd = DpSgd::new(&Clip::Flat(1.0), &model.parameters);
    let method = AllocationMethod::Proved(Box::new(dp_sgd));
    let protection = Protection { method, noise: Noise::new(&secret) };
    let mut learner = Learner::new(model, Settings::default(), Some(protection));

    // The first line of the ledger: the scope of the guarantee, and the costliest release.
    let event = Event::PoissonGaussian { noise_multiplier: sigma, sampling_rate: SAMPLING_RATE };
    let terms = Terms {
        id: String::new(),
        run: None,
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: Mode::Proved,
        assumptions: vec![
            format!("the number of examples ({EXAMPLES}) is public"),
            "rounding of f32 arithmetic reveals nothing".to_owned(),
        ],
        announced: vec![Part { event, count: 1 }],
    };
    let mut ledger = RunLedger::alone(Ledger::create(&path, terms)?, &path, DELTA);

    for number in 0..STEPS {
        let step = learner.begin_step(StepSettings {
            number,
            noise_multiplier: sigma,
            // The expected batch size, since the actual one is private.
            divisor: SAMPLING_RATE * EXAMPLES as f64,
            learning_rate: 1e-3,
        })?;
        // The batch size is random and private. An empty batch is also a step.
        let sample = sampler.step(number);
        let mut sum = learner.empty_sum();
        for indices in micro_batches(&sample, &examples, 32, 1024) {
            let batch = Batch::pack(indices.iter().map(|&i| &examples[i]));
            // Losses are computed without noise: they are private and are not shown.
            let _losses = learner.accumulate(&step, &batch, None, &mut sum)?;
        }
        // Record first, then release: a crash between the two wastes budget but hides nothing. A
        // release requires the proof that recording returns, and checks its noise against it.
        let recorded = ledger.record(number, event, 1)?;
        learner.release(sum, step, Cost::Recorded(recorded))?;
    }

    println!(
        "{STEPS} steps of DP-SGD with noise multiplier {sigma:.4}; ledger: {}",
        path.display()
    );
    if let Some(guarantee) = ledger.guarantee()? {
        println!("{guarantee}");
    }
    Ok(())
}
