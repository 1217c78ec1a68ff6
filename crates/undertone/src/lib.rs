//! Fine-tuning of language models on private text, with a privacy guarantee that is proved.
//!
//! A whole run, from a run file to a folder with model, ledger and summary, is [`train::train`].
//! Its parts can be used by themselves. One private step, without files:
//!
//! ```
//! use undertone::data::{Batch, Example, Target};
//! use undertone::gradient::Clip;
//! use undertone::method::central::{AllocationMethod, DpSgd};
//! use undertone::noise::{Noise, Secret};
//! use undertone::model::TaskHead;
//! use undertone::model::architecture::{Architecture, Dimensions};
//! use undertone::train::optimiser::Settings;
//! use undertone::train::{Learner, Protection, Step};
//!
//! let dimensions = Dimensions { layers: 1, hidden: 16, heads: 2, inner: 32, vocabulary: 50, positions: 16 };
//! let labels = ["bad".to_owned(), "good".to_owned()];
//! let model = Architecture::Bert.random(dimensions, TaskHead::SequenceClassification, &labels, 1)?;
//!
//! // Gradients of at most length 1, all with the same noise, from the operating system's randomness.
//! let method = AllocationMethod::Proved(Box::new(DpSgd::new(&Clip::Flat(1.0), &model.parameters)));
//! let protection = Protection { method, noise: Noise::new(&Secret::from_system()?) };
//! let mut learner = Learner::new(model, Settings::default(), Some(protection));
//!
//! let example = |unit: u32| Example { tokens: vec![2, 7 + unit, 3], target: Target::Class(unit % 2), unit, ..Example::default() };
//! let mut sum = learner.start();
//! let losses = learner.accumulate(&Batch::pack(&[example(0), example(1)]), None, &mut sum)?;
//! assert_eq!((losses.len(), sum.clipped().units), (2, 2));
//!
//! // What this release is worth goes into a ledger before it is made.
//! let worth = learner.effective_noise_multiplier(&sum, 1.1)?;
//! assert_eq!(worth, 1.1);
//! learner.update(sum, &Step { number: 0, noise_multiplier: worth, divisor: 2.0, rate: 1e-3 })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
pub mod data;
mod error;
pub mod evaluate;
pub mod explain;
pub mod gradient;
pub mod method;
pub mod model;
pub mod noise;
mod plan;
pub mod tensor;
pub mod train;

pub use error::{Error, Result};
pub use plan::{Method, Plan};
pub use undertone_run as run;
