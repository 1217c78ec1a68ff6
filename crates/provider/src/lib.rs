//! Owners and a provider over a network, in the local model of differential privacy.
//!
//! ```text
//! owner:     text ─ pre(·) ─ bound ─ + noise ─▶ own ledger ─▶ owner.db ─▶ frame ─HTTPS─▶ provider
//! provider:  frame ─▶ store ─▶ learners that know the noise ─▶ model ─▶ predictions
//! ```
//!
//! The provider is the adversary. Everything that leaves an owner is a function of releases, of
//! keyed hashes and of the public task (`frame.rs`). A release is recorded in the owner's own
//! ledger before it is made, and stored before it is sent. After any failure, the same release is
//! therefore sent again, and nothing is spent twice (`owner/`).
//!
//! ```text
//! task/      the public task, and how it is created
//! frame.rs   the wire format            receipt.rs  signed acknowledgments
//! reach.rs   the largest possible release
//! store/     the provider's store       serve/      the provider's server
//! train.rs   training from the store    owner/      the owner's side
//! ```

mod error;
mod frame;
mod hex;
pub mod owner;
mod reach;
mod receipt;
pub mod serve;
pub mod store;
mod task;
mod train;

pub use error::{Error, Result};
pub use frame::{Frame, Kind, NO_LABEL, RecordId, Release, frame_hash, frame_length};
pub use hex::{Hash, hash, hex, unhex};
pub use receipt::{Receipt, SigningKey};
pub use task::{BaseModel, PublicFile, Task, TaskFolder, init};
pub use train::{PublicTest, Trained, train};
