//! Fine-tuning of language models on private text with provable differential privacy.
//!
//! [`train::train`] executes a whole run, from a run file to a folder with the model, the ledger
//! and a summary. You can also use its parts on their own. The following is one step of DP-SGD with
//! ghost clipping, but without Poisson sampling (`examples/private_step.rs` adds sampling):
//!
//! ```
//! use undertone::data::{Batch, Example, Target};
//! use undertone::gradient::Clip;
//! use undertone::method::central::DpSgd;
//! use undertone::model::TaskHead;
//! use undertone::model::architecture::{Architecture, Dimensions};
//! use undertone::noise::{Noise, Secret};
//! use undertone::step::optimizer::Settings;
//! use undertone::step::{AllocationMethod, Cost, Learner, Protection, RunLedger, StepSettings};
//! use undertone_accounting::ledger::{Ledger, Terms};
//! use undertone_accounting::{Adjacency, Event, Mode, Part, Threat, Unit};
//!
//! let dimensions =
//!     Dimensions { layers: 1, hidden: 16, heads: 2, inner: 32, vocabulary: 50, positions: 16,
//!                  key_heads: None };
//! let labels = ["bad".to_owned(), "good".to_owned()];
//! let task_head = TaskHead::SequenceClassification;
//! let model = Architecture::Bert.random(dimensions, task_head, &labels, 1)?;
//!
//! // Per-example gradients are clipped to ℓ2 norm 1. All coordinates get the same amount of noise,
//! // and the noise key comes from the operating system.
//! let dp_sgd = DpSgd::new(&Clip::Flat(1.0), &model.parameters);
//! let method = AllocationMethod::Proved(Box::new(dp_sgd));
//! let protection = Protection { method, noise: Noise::new(&Secret::from_system()?) };
//! let mut learner = Learner::new(model, Settings::default(), Some(protection));
//!
//! // Clipping and noise are computed once per step and used by everything that follows.
//! let settings =
//!     StepSettings { number: 0, noise_multiplier: 1.1, divisor: 2.0, learning_rate: 1e-3 };
//! let step = learner.begin_step(settings)?;
//! let example = |unit: u32| Example {
//!     tokens: vec![2, 7 + unit, 3],
//!     target: Target::Class(unit % 2),
//!     unit,
//!     ..Example::default()
//! };
//! let mut sum = learner.empty_sum();
//! let batch = Batch::pack(&[example(0), example(1)]);
//! let losses = learner.accumulate(&step, &batch, None, &mut sum)?;
//! assert_eq!((losses.len(), sum.clipped().units), (2, 2));
//!
//! // A release takes a `Cost`. For private examples, the only way to get one is to record the
//! // release in a ledger.
//! let event = Event::Gaussian { noise_multiplier: 1.1, sensitivity: 1.0 };
//! let terms = Terms {
//!     id: String::new(),
//!     run: None,
//!     unit: Unit::Example,
//!     adjacency: Adjacency::AddRemove,
//!     threat: Threat::Central,
//!     mode: Mode::Proved,
//!     assumptions: vec!["the number of examples is public".to_owned()],
//!     announced: vec![Part { event, count: 1 }],
//! };
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("ledger.jsonl");
//! let mut ledger = RunLedger::alone(Ledger::create(&path, terms)?, &path, 1e-5);
//! let recorded = ledger.record(0, event, 1)?;
//! learner.release(sum, step, Cost::Recorded(recorded))?;
//! println!("{}", ledger.guarantee()?.expect("one process has the ledger"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
pub mod collective;
mod error;
pub mod evaluate;
pub mod gradient;
mod memory;
pub mod method;
pub mod noise;
mod plan;
pub mod replay;
pub mod scan;
pub mod statistics;
pub mod step;
pub mod synthesize;
pub mod train;

pub use error::{Error, Result, is_of_full_disk, is_of_system};
pub use plan::{
    Method, Plan, Population, PublicFacts, ResolvedPlan, precision_of, recipe, task_of, units_of,
};
pub use undertone_data as data;
pub use undertone_data::BoundedAllocator;
pub use undertone_model as model;
pub use undertone_model::explain;
pub use undertone_run as run;
pub use undertone_tensor as tensor;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: BoundedAllocator = BoundedAllocator;
