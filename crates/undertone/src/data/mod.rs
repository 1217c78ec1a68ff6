//! Text files in, token batches out.
//!
//! ```text
//! file ─ read ─▶ rows ─ task, labels, tokeniser ─▶ examples ─ sampler ─▶ units ─ batch ─▶ packed tokens
//! ```
//!
//! Files are read as a stream and with suspicion: whatever their bytes are, the answer is rows or
//! an [`Error`] that names the file, the line and what to do. Every [`Example`] knows the privacy
//! unit it belongs to, and the samplers draw units, so that a guarantee per author is as natural as
//! one per row.

mod batch;
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
mod labels;
mod mask;
mod members;
mod options;
mod progress;
pub mod read;
mod sample;
mod shuffle;
mod special;
mod stream;
mod task;
mod tokenise;
mod units;

pub use batch::{Batch, micro_batches, pieces};
pub use cut::LongTexts;
pub use dataset::Dataset;
pub(crate) use encode::Encoder;
pub use error::{Error, Result};
pub use example::{Example, Target};
pub use format::Format;
pub use labels::Labels;
pub use mask::Masking;
pub use members::Members;
pub use options::{Options, Unit};
pub(crate) use read::Row;
pub use sample::PoissonSampler;
pub use shuffle::ShuffledEpochs;
pub use stream::{Stream, stream};
pub use task::Task;
pub use tokenise::{Tokeniser, Tokens};
