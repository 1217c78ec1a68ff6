//! Datasets: text files in, tokenized batches out.
//!
//! ```text
//! file ─ read ─▶ rows ─ tokenize ─▶ examples ─ Poisson sampling ─▶ units ─ pack ─▶ batch
//! ```
//!
//! Files are streamed and untrusted: whatever their bytes, the result is either rows or an
//! [`Error`] that names the file, the line and what to do. Every [`Example`] carries its privacy
//! unit, and the samplers draw units, so user-level privacy (one unit per author) works like
//! example-level privacy (one unit per row).

mod batch;
mod bounded;
mod chat;
mod count;
mod cut;
mod dataset;
mod encode;
mod error;
mod example;
#[cfg(test)]
mod fixture;
mod format;
mod frame;
mod guard;
mod hold_out;
mod labels;
mod mask;
mod members;
mod options;
mod pack;
mod progress;
pub mod read;
mod sample;
mod shuffle;
mod special;
mod stream;
mod tally;
mod task;
mod template;
mod tokenize;
mod units;
mod write;

pub use batch::{Batch, micro_batches, micro_batches_in_order, pieces};
pub use bounded::BoundedAllocator;
pub use chat::ChatPrompts;
pub use count::{UnitCount, count_units};
pub use dataset::Dataset;
pub use encode::Encoder;
pub use error::{Error, Result};
pub use example::{Example, Target};
pub use format::{Format, format_of};
pub use guard::guarded;
pub use hold_out::{HoldOut, Part};
pub use labels::Labels;
pub use mask::Masking;
pub use members::Members;
pub use options::{Options, PrivacyUnit};
pub use progress::{ReadingObserver, observe_reading};
pub use read::Row;
pub use sample::PoissonSampler;
pub use shuffle::ShuffledEpochs;
pub use stream::{Stream, examples_by_line, stream};
pub use tally::Tally;
pub use task::Task;
pub use template::Template;
pub use tokenize::{MOST_OF_TOKENIZER, Tokenizer, Tokens};
pub use undertone_settings::LongTexts;
pub use write::{check_columns, write_rows};

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: BoundedAllocator = BoundedAllocator;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
