//! Fine-tuning of language models on private text with differential privacy that is proved.
//!
//! A whole run, from a run file to a folder with model, ledger and summary, is [`train::train`].
//! Its parts can be used by themselves. One step of DP-SGD with ghost clipping, without files
//! (`examples/private_step.rs` has Poisson sampling, a ledger and the proved ε too):
//!
//! ```
//! use undertone::data::{Batch, Example, Target};
//! use undertone::gradient::Clip;
//! use undertone::method::central::{AllocationMethod, DpSgd};
//! use undertone::model::TaskHead;
//! use undertone::model::architecture::{Architecture, Dimensions};
//! use undertone::noise::{Noise, Secret};
//! use undertone::train::optimiser::Settings;
//! use undertone::train::{Learner, Protection, Step};
//!
//! let dimensions =
//!     Dimensions { layers: 1, hidden: 16, heads: 2, inner: 32, vocabulary: 50, positions: 16,
//!                  key_heads: None };
//! let labels = ["bad".to_owned(), "good".to_owned()];
//! let task_head = TaskHead::SequenceClassification;
//! let model = Architecture::Bert.random(dimensions, task_head, &labels, 1)?;
//!
//! // Per-example gradients are clipped to ℓ2 norm 1; the noise is the same for all coordinates,
//! // and its key comes from the operating system.
//! let dp_sgd = DpSgd::new(&Clip::Flat(1.0), &model.parameters);
//! let method = AllocationMethod::Proved(Box::new(dp_sgd));
//! let protection = Protection { method, noise: Noise::new(&Secret::from_system()?) };
//! let mut learner = Learner::new(model, Settings::default(), Some(protection));
//!
//! let example = |unit: u32| Example {
//!     tokens: vec![2, 7 + unit, 3],
//!     target: Target::Class(unit % 2),
//!     unit,
//!     ..Example::default()
//! };
//! let mut sum = learner.empty_sum();
//! let losses = learner.accumulate(&Batch::pack(&[example(0), example(1)]), None, &mut sum)?;
//! assert_eq!((losses.len(), sum.clipped().units), (2, 2));
//!
//! // The effective noise multiplier is recorded in a ledger before the release is made.
//! let noise_multiplier = learner.effective_noise_multiplier(&sum, 1.1)?;
//! assert_eq!(noise_multiplier, 1.1);
//! let step = Step { number: 0, noise_multiplier, divisor: 2.0, learning_rate: 1e-3 };
//! learner.update(sum, &step)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
mod bounded;
pub mod collective;
pub mod data;
mod error;
pub mod evaluate;
pub mod explain;
pub mod gradient;
pub mod method;
pub mod model;
pub mod noise;
mod plan;
pub mod replay;
pub mod tensor;
pub mod train;

pub use bounded::BoundedAllocator;
pub use error::{Error, Result, is_of_system};
pub use plan::{Method, Plan, PublicFacts, ResolvedPlan, recipe, units_of};
pub use undertone_run as run;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: BoundedAllocator = BoundedAllocator;
