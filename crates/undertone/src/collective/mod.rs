//! Collectives: communication between the processes (ranks) of one run.
//!
//! # What is proved
//!
//! A run on N ranks is the same mechanism as a run in one process, and has the same ledger.
//!
//! - *One sample.* Every rank draws the same Poisson sample from the run's secret, which all ranks
//!   share. [`share_of_rank`] divides the sampled units among the ranks: each unit, with all its
//!   examples, goes to exactly one rank, which clips its gradient as a whole.
//! - *One sum.* The ranks' clipped sums are added up. Each unit's clipped gradient is in exactly
//!   one of them, so the result is what one process computes, up to the rounding of f32 sums.
//!   Adding or removing one unit moves it by at most the clipping norm C.
//! - *One noise.* Each coordinate of the sum belongs to one rank ([`Shards`]). That rank adds the
//!   noise, which is a function of (secret, step, coordinate), updates the weight and sends the new
//!   weight to all ranks. No other noise is added: N ranks with independent noise would be a
//!   different mechanism. The assignment of coordinates to ranks does not change any bit. If sums
//!   stay on the GPUs, every rank has the whole sum, adds this same noise to it and makes the same
//!   update: the results are bit-identical, and are one release.
//! - *One ledger.* Rank 0 records the release and syncs the file to disk. All ranks wait for this
//!   before any of them adds noise and updates its weights.
//!
//! A rank that added a unit's gradient a second time would move the sum by 2C, twice what the
//! ledger states. So before a sum is released, the ranks compare what they added with the sample
//! ([`Tally`](crate::train::Tally)), and release nothing if an example was added twice or left out.
//!
//! Sums before noise are private data, and travel between the ranks unencrypted: the network
//! between them must be trusted as much as the machines.
//!
//! # Order
//!
//! A backend has one primitive, [`Collective::exchange`]. Everything else is built on it here, so
//! that sums are added in rank order with every backend: results are bit-identical for a given
//! number of ranks. Sums that stay on the GPUs ([`Gpus`]) are added in this order too. A step that
//! is repeated after a crash has the same noise, so it must also have the same sum: a run may be
//! resumed with another backend, or on other machines of the same kind, without releasing anything
//! twice.

mod divide;
mod error;
mod gpus;
#[cfg(feature = "mpi")]
pub mod mpi;
mod reduce;
mod shards;
mod share;
pub mod tcp;

pub use error::{Error, Result};
pub use gpus::Gpus;
pub(crate) use shards::part_length;
pub use shards::{Shards, Slice};
pub use share::share_of_rank;

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

/// The processes of one run. All of them must call the same methods in the same order.
pub trait Collective: Debug + Send + Sync {
    /// Index of this process, starting at 0. Rank 0 writes the run folder.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Sends `outgoing[r]` to each rank r, and returns what each rank has sent to this one.
    fn exchange(&self, outgoing: &[&[u8]]) -> Result<Vec<Vec<u8>>>;

    /// Sends rank 0's secret to all ranks, such that nobody else can read it.
    fn share_secret(&self, secret: [u8; 32]) -> Result<[u8; 32]>;

    /// Fails if another rank is known to have ended. Called occasionally between collectives.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Notifies the other ranks why this rank ends.
    fn abort(&self, _why: &Error) {}

    /// Notifies the other ranks that this rank has nothing more to exchange.
    fn leave(&self) {}

    /// Number of bytes that this rank has sent to others.
    fn bytes_sent(&self) -> u64 {
        0
    }
}

/// A shared handle to the processes of a run.
#[derive(Clone, Debug)]
pub struct Ranks {
    control: Arc<dyn Collective>,
    /// The GPUs of the ranks, if sums stay on them.
    gpus: Option<Arc<Gpus>>,
}

/// A run in a single process, which exchanges nothing.
#[derive(Debug)]
struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn exchange(&self, outgoing: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        Ok(outgoing.iter().map(|bytes| bytes.to_vec()).collect())
    }

    fn share_secret(&self, secret: [u8; 32]) -> Result<[u8; 32]> {
        Ok(secret)
    }
}

impl Default for Ranks {
    fn default() -> Self {
        Self::alone()
    }
}

impl Deref for Ranks {
    type Target = dyn Collective;

    fn deref(&self) -> &Self::Target {
        &*self.control
    }
}

impl Ranks {
    /// A run in a single process.
    pub fn alone() -> Self {
        Self::of(Alone)
    }

    /// The ranks of a backend.
    pub fn of(backend: impl Collective + 'static) -> Self {
        Self { control: Arc::new(backend), gpus: None }
    }

    /// The GPUs of the ranks, if NCCL connects them.
    pub fn gpus(&self) -> Option<&Gpus> {
        self.gpus.as_deref()
    }

    fn control(&self) -> Arc<dyn Collective> {
        Arc::clone(&self.control)
    }

    fn set_gpus(&mut self, gpus: Gpus) {
        self.gpus = Some(Arc::new(gpus));
    }

    /// Whether there is only one process.
    pub fn are_one(&self) -> bool {
        self.size() == 1
    }

    /// Whether this process is rank 0, which writes the run folder.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Waits until all ranks have reached this call.
    pub fn barrier(&self) -> Result<()> {
        if self.are_one() {
            return Ok(());
        }
        self.exchange(&vec![[].as_slice(); self.size()]).map(|_| ())
    }

    /// The bytes given by each rank.
    pub fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange(&vec![own; self.size()])
    }

    /// The bytes given by rank 0; those of other ranks are ignored.
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.are_one() {
            return Ok(bytes);
        }
        let own: &[u8] = if self.is_first() { &bytes } else { &[] };
        Ok(self.exchange(&vec![own; self.size()])?.swap_remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_exchanges_nothing() {
        let alone = Ranks::alone();
        let mut values = [1.5, -2.0];
        alone.all_reduce(&mut values).unwrap();
        assert_eq!(values, [1.5, -2.0]);
        assert_eq!(alone.reduce_scatter(&values).unwrap(), values);
        assert_eq!(alone.all_gather_f32(&values).unwrap(), values);
        assert_eq!(alone.all_gather(b"own").unwrap(), [b"own"]);
        assert_eq!(alone.broadcast(b"own".to_vec()).unwrap(), b"own");
        alone.barrier().unwrap();
        assert!(alone.is_first() && alone.bytes_sent() == 0);
    }
}
