//! Synthetic rows: a language model, trained on rows as prompts and completions, writes new ones.
//!
//! ```text
//! plan.rs        what [synthesis] asks for, checked        classes.rs  control codes and prompts
//! statistics.rs  the noisy histograms, released once       quotas.rs   what sampling makes of them
//! sample.rs      sampling; journal.rs makes it resumable   row.rs      texts to rows
//! text_model.rs  the trained model as a writer of texts
//! export.rs      the files, with the data card (card.rs)
//! prediction/    the second method: a public model, steered by private rows, without training
//! evaluate/      figures about the rows, each with who may see it
//! ```
//!
//! # What is proved
//!
//! Training is the ordinary private training of [`train`](mod@crate::train), on prompts that are
//! filled with the row's control codes. Before its first step, two histograms are released: of the
//! classes (combinations of control codes) and of the lengths of texts. A unit counts with one of
//! its rows, chosen by a keyed hash of its own rows, so its contributions h_u and l_u have a single
//! 1 each, and other units do not change them. Adding or removing u moves the pair (h, l) by
//! exactly √2. Counts are integers, which f32 represents exactly up to 2²⁴, so rounding adds
//! nothing. With Gaussian noise of std s on every number, this is a Gaussian mechanism of noise
//! multiplier s and sensitivity √2 (1 without control codes, where h is constant and not released),
//! which is the ledger's first entry, recorded before the release. Its s spends
//! `synthesis.statistics_share` of ε on its own; the noise of training is calibrated to the
//! composition of this entry and all steps.
//!
//! **The classes are declared**, or their values may be published by consent
//! (`data.publish_labels`), which the ledger lists as an assumption: a histogram over classes that
//! were found in the data would reveal a class that only one unit has.
//!
//! **Everything after that is post-processing**: quotas and the length limit are functions of the
//! released histograms, texts of the released weights and of public randomness, and a text is
//! rejected for what it is. [`sample`] gets no training file. In particular, texts are not compared
//! with the training texts: a filter that removes copies would reveal that there was an original.

mod card;
mod classes;
pub mod evaluate;
mod export;
mod journal;
mod plan;
pub mod prediction;
mod quotas;
mod row;
mod sample;
mod statistics;
mod text_model;

pub use classes::{Class, Classes};
pub use export::{Export, export};
pub use journal::Settings as SamplingSettings;
pub(crate) use plan::{StatisticsPlan, check};
pub use quotas::{most_tokens, quotas};
pub use row::{Rejected, row_of};
pub use sample::{Sampled, Sampling, sample};
pub use statistics::{ClippedCounts, ReleasedCounts};
pub(crate) use statistics::{check_noise, release};
pub use text_model::TextModel;
