//! Ranks started by mpirun, or by a cluster's scheduler with MPI support.

use super::{Collective, Error, Result};
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of bytes per call: MPI counts them in 32 bits.
const MOST: usize = 1 << 28;

/// The ranks of the MPI world.
pub struct Mpi {
    rank: usize,
    size: usize,
    sent: AtomicU64,
    /// Finalizes MPI when dropped.
    _universe: Mutex<Universe>,
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} by MPI", self.rank, self.size)
    }
}

impl Mpi {
    /// Joins the ranks that were started together. Can be called once per process.
    pub fn join() -> Result<Self> {
        let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
            return Err(Error::System("MPI has been used by this process already".to_owned()));
        };
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        Ok(Self { rank, size, sent: AtomicU64::new(0), _universe: Mutex::new(universe) })
    }
}

/// The part of each rank's bytes that is exchanged in one round.
fn part(length: usize, round: usize, most: usize) -> std::ops::Range<usize> {
    (round * most).min(length)..((round + 1) * most).min(length)
}

/// Offsets of concatenated parts.
fn offsets(lengths: &[i32]) -> Vec<i32> {
    let add = |next: &mut i32, length: &i32| {
        let offset = *next;
        *next += length;
        Some(offset)
    };
    lengths.iter().scan(0, add).collect()
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, outgoing: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let world = SimpleCommunicator::world();
        let lengths: Vec<u64> = outgoing.iter().map(|bytes| bytes.len() as u64).collect();
        let mut incoming = vec![0_u64; self.size];
        world.all_to_all_into(&lengths[..], &mut incoming[..]);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut longest_of_all = 0_u64;
        world.all_reduce_into(&longest, &mut longest_of_all, SystemOperation::max());
        let most = MOST / self.size;
        let mut received: Vec<Vec<u8>> =
            incoming.iter().map(|&length| Vec::with_capacity(length as usize)).collect();
        for round in 0..(longest_of_all as usize).div_ceil(most) {
            let pieces: Vec<&[u8]> =
                outgoing.iter().map(|bytes| &bytes[part(bytes.len(), round, most)]).collect();
            let counts: Vec<i32> = pieces.iter().map(|piece| piece.len() as i32).collect();
            let expected: Vec<i32> = incoming
                .iter()
                .map(|&length| part(length as usize, round, most).len() as i32)
                .collect();
            let (from, to) = (offsets(&counts), offsets(&expected));
            // One extra byte, since the address of an empty vector is what MPI calls MPI_IN_PLACE.
            let mut all = pieces.concat();
            all.push(0);
            let mut buffer = vec![0_u8; expected.iter().sum::<i32>() as usize + 1];
            let send = Partition::new(&all[..], counts, from);
            let mut receive = PartitionMut::new(&mut buffer[..], &expected[..], &to[..]);
            world.all_to_all_varcount_into(&send, &mut receive);
            for (bytes, (&start, &length)) in received.iter_mut().zip(to.iter().zip(&expected)) {
                bytes.extend(&buffer[start as usize..(start + length) as usize]);
            }
        }
        let others: u64 = lengths.iter().sum::<u64>() - lengths[self.rank];
        self.sent.fetch_add(others, Ordering::Relaxed);
        Ok(received)
    }

    /// Sent like any other message: MPI uses the cluster's own network.
    fn share_secret(&self, secret: [u8; 32]) -> Result<[u8; 32]> {
        let own: &[u8] = if self.rank == 0 { &secret } else { &[] };
        let received = self.exchange(&vec![own; self.size])?;
        received[0].as_slice().try_into().map_err(|_| Error::out_of_step())
    }

    /// MPI offers no other way to end all ranks.
    fn abort(&self, why: &Error) {
        eprintln!("error: rank {}: {why}", self.rank);
        SimpleCommunicator::world().abort(if why.is_of_system() { 1 } else { 2 });
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}
