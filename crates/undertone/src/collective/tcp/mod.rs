//! Ranks that are connected by TCP and find each other through a shared folder. No other software
//! is required.
//!
//! ```text
//! rendezvous.rs   the file by which ranks find rank 0, with the job's key
//! join.rs         connections between all ranks
//! handshake.rs    both ends of a connection prove that they know the key
//! mailbox.rs      received messages, and ranks that have ended
//! ```

mod handshake;
mod join;
mod mailbox;
mod rendezvous;

use super::{Collective, Error, Result};
use hmac::{Hmac, KeyInit, Mac};
use mailbox::{Header, Kind, Mailbox, receive};
use sha2::Sha256;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which a rank shows the others that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A rank that has been silent for this long is considered to have ended.
const SILENCE: Duration = Duration::from_secs(25);
/// How long a rank that cannot send waits for the reason.
const REASON: Duration = Duration::from_secs(1);

/// How the ranks of a job find each other.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// A folder that all ranks can access, but no other user.
    pub folder: PathBuf,
    /// Index of this process, starting at 0.
    pub rank: usize,
    /// Number of processes.
    pub ranks: usize,
    /// Address at which other machines reach this one, if its own name is not enough.
    pub address: Option<String>,
    /// How long to wait for the other ranks.
    pub patience: Duration,
}

/// The key of a job, which its ranks share.
#[derive(Clone)]
struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// HMAC-SHA-256 over parts of known lengths.
    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        parts.iter().fold(mac, |mac, part| mac.chain_update(part))
    }
}

/// A connection to another rank.
#[derive(Debug)]
struct Peer {
    rank: usize,
    host: String,
    stream: TcpStream,
    /// Locked while a message is being written.
    writing: Mutex<()>,
}

/// The ranks of a job, connected by TCP.
#[derive(Debug)]
pub struct Tcp {
    rank: usize,
    key: Key,
    /// The other ranks, in rank order.
    peers: Arc<Vec<Peer>>,
    mailbox: Arc<Mailbox>,
    /// Sequence number of the next exchange.
    next: Mutex<u64>,
    sent: AtomicU64,
    ended: Arc<AtomicBool>,
}

impl Tcp {
    /// Waits for all ranks and connects to them.
    pub fn join(rendezvous: &Rendezvous) -> Result<Self> {
        let (key, peers) = join::join(rendezvous)?;
        let mailbox = Arc::new(Mailbox::new(rendezvous.ranks));
        let failed = |e: std::io::Error| Error::System(format!("a connection failed: {e}"));
        for peer in &peers {
            peer.stream.set_nodelay(true).map_err(failed)?;
            peer.stream.set_read_timeout(Some(SILENCE)).map_err(failed)?;
            peer.stream.set_write_timeout(Some(SILENCE)).map_err(failed)?;
            let stream = peer.stream.try_clone().map_err(failed)?;
            let (mailbox, rank, host) = (Arc::clone(&mailbox), peer.rank, peer.host.clone());
            std::thread::spawn(move || receive(stream, rank, &host, &mailbox));
        }
        let peers = Arc::new(peers);
        let ended = Arc::new(AtomicBool::new(false));
        let (beating, stopped) = (Arc::clone(&peers), Arc::clone(&ended));
        std::thread::spawn(move || beat(&beating, &stopped));
        let (rank, sent) = (rendezvous.rank, AtomicU64::new(0));
        Ok(Self { rank, key, peers, mailbox, next: Mutex::new(0), sent, ended })
    }

    fn send(&self, peer: &Peer, header: Header, bytes: &[u8]) -> Result<()> {
        let written = write(peer, &lock(&peer.writing), header, bytes);
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        written.map_err(|e| {
            // A rank that ends sends the reason before it closes its connections.
            self.mailbox.fault_within(REASON).unwrap_or_else(|| Error::Lost {
                rank: peer.rank,
                host: peer.host.clone(),
                why: format!("has ended or cannot be reached ({e})"),
            })
        })
    }

    /// Sends a last message to all ranks.
    fn tell_all(&self, kind: Kind, bytes: &[u8]) {
        if self.ended.swap(true, Ordering::SeqCst) {
            return;
        }
        for peer in self.peers.iter() {
            let header = Header { kind, number: 0, length: bytes.len() as u64 };
            let _ = write(peer, &lock(&peer.writing), header, bytes);
            let _ = peer.stream.shutdown(Shutdown::Write);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(
    peer: &Peer,
    _writing: &MutexGuard<()>,
    header: Header,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut stream = &peer.stream;
    stream.write_all(&header.bytes())?;
    stream.write_all(bytes)
}

/// Sends heartbeats to the other ranks while this process computes.
fn beat(peers: &[Peer], ended: &AtomicBool) {
    let mut waited = Duration::ZERO;
    let nap = Duration::from_millis(200);
    while !ended.load(Ordering::SeqCst) {
        std::thread::sleep(nap);
        waited += nap;
        if waited < HEARTBEAT {
            continue;
        }
        waited = Duration::ZERO;
        for peer in peers {
            // A message in progress also shows that this process is alive.
            let Ok(writing) = peer.writing.try_lock() else { continue };
            let header = Header { kind: Kind::Heartbeat, number: 0, length: 0 };
            if !ended.load(Ordering::SeqCst) {
                let _ = write(peer, &writing, header, &[]);
            }
        }
    }
}

impl Collective for Tcp {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.peers.len() + 1
    }

    fn exchange(&self, outgoing: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let mut next = lock(&self.next);
        let number = *next;
        *next += 1;
        // Each rank starts with the next rank, so that not all send to the same one first. The
        // receivers read continuously, so there is no deadlock from circular waits.
        for i in 0..self.peers.len() {
            let peer = &self.peers[(self.rank + i) % self.peers.len()];
            let bytes = outgoing[peer.rank];
            let header = Header { kind: Kind::Data, number, length: bytes.len() as u64 };
            self.send(peer, header, bytes)?;
        }
        let mut received = Vec::with_capacity(self.size());
        for (rank, own) in outgoing.iter().enumerate() {
            received.push(match rank == self.rank {
                true => own.to_vec(),
                false => self.mailbox.take(rank, number)?,
            });
        }
        Ok(received)
    }

    /// The secret is XORed with a pad that only the job's ranks can compute and that no other
    /// message uses: the key is created for the job, which shares only one secret.
    fn share_secret(&self, secret: [u8; 32]) -> Result<[u8; 32]> {
        let pad: [u8; 32] = self.key.mac(&[b"the run's secret"]).finalize().into_bytes().into();
        let xor = |bytes: &[u8; 32]| -> [u8; 32] { std::array::from_fn(|i| bytes[i] ^ pad[i]) };
        let hidden = if self.rank == 0 { xor(&secret).to_vec() } else { Vec::new() };
        let received = self.exchange(&vec![hidden.as_slice(); self.size()])?;
        match received[0].first_chunk() {
            Some(hidden) => Ok(xor(hidden)),
            None => Err(Error::out_of_step()),
        }
    }

    fn check(&self) -> Result<()> {
        self.mailbox.check()
    }

    fn abort(&self, why: &Error) {
        let (rank, why) = match why {
            // All ranks name the rank that was lost, and not each other.
            Error::Lost { rank, why, .. } => (*rank, why.clone()),
            other => (self.rank, format!("has stopped: {other}")),
        };
        let mut bytes = (rank as u64).to_le_bytes().to_vec();
        bytes.extend(why.as_bytes());
        self.tell_all(Kind::Abort, &bytes);
    }

    fn leave(&self) {
        self.tell_all(Kind::Leave, &[]);
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        for peer in self.peers.iter() {
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}
