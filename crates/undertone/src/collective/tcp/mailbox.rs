//! Received messages, and ranks that have ended.

use super::super::{Error, Result};
use super::lock;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of an exchange.
    Data,
    /// Shows that the sender is alive.
    Heartbeat,
    /// A rank has failed: its index and the reason.
    Abort,
    /// The sender has nothing more to exchange.
    Leave,
}

/// The header that precedes a message's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: Kind,
    /// Sequence number of the exchange.
    pub number: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Larger than any model: a larger length is invalid.
const LONGEST: u64 = 1 << 40;

impl Header {
    pub fn bytes(self) -> [u8; 17] {
        let mut bytes = [self.kind as u8; 17];
        bytes[1..9].copy_from_slice(&self.number.to_le_bytes());
        bytes[9..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8; 17]) -> Option<Self> {
        let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let kinds = [Kind::Data, Kind::Heartbeat, Kind::Abort, Kind::Leave];
        let kind = *kinds.get(usize::from(bytes[0]))?;
        let header = Self { kind, number: number(1), length: number(9) };
        (header.length <= LONGEST).then_some(header)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Waiting messages of each rank, with the sequence numbers of their exchanges.
    waiting: Vec<VecDeque<(u64, Vec<u8>)>>,
    /// Whether each rank has announced that it leaves.
    left: Vec<bool>,
    hosts: Vec<String>,
    /// The first rank that failed, and the reason.
    fault: Option<Error>,
}

/// Messages from the other ranks.
#[derive(Debug)]
pub struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Mailbox {
    pub fn new(ranks: usize) -> Self {
        let state = State {
            waiting: vec![VecDeque::new(); ranks],
            left: vec![false; ranks],
            hosts: vec![String::new(); ranks],
            fault: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for a rank's part of an exchange.
    pub fn take(&self, rank: usize, number: u64) -> Result<Vec<u8>> {
        let mut state = lock(&self.state);
        loop {
            if let Some((received, bytes)) = state.waiting[rank].pop_front() {
                return if received == number { Ok(bytes) } else { Err(Error::out_of_step()) };
            }
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            if state.left[rank] {
                let host = state.hosts[rank].clone();
                return Err(Error::Lost { rank, host, why: "ended before the others".to_owned() });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fails if a rank has failed.
    pub fn check(&self) -> Result<()> {
        lock(&self.state).fault.clone().map_or(Ok(()), Err)
    }

    /// The known fault, or one that becomes known within the given time.
    pub fn fault_within(&self, time: Duration) -> Option<Error> {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, time, |state| state.fault.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.fault.clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn fail(&self, rank: usize, host: &str, why: String) {
        self.change(|state| {
            let fault = Error::Lost { rank, host: host.to_owned(), why };
            state.fault.get_or_insert(fault);
        });
    }
}

/// Receives a rank's messages until it leaves or fails.
pub fn receive(mut stream: TcpStream, rank: usize, host: &str, mailbox: &Mailbox) {
    mailbox.change(|state| state.hosts[rank] = host.to_owned());
    loop {
        let (header, bytes) = match read(&mut stream) {
            Ok(message) => message,
            Err(e) => return mailbox.fail(rank, host, reason(&e)),
        };
        match header.kind {
            Kind::Heartbeat => {}
            Kind::Data => {
                mailbox.change(|state| state.waiting[rank].push_back((header.number, bytes)));
            }
            Kind::Leave => return mailbox.change(|state| state.left[rank] = true),
            Kind::Abort => {
                let (lost, why) = bytes.split_at(bytes.len().min(8));
                let lost = lost.try_into().map_or(rank as u64, u64::from_le_bytes) as usize;
                let why = String::from_utf8_lossy(why).into_owned();
                let hosts = lock(&mailbox.state).hosts.clone();
                let host = hosts.get(lost).filter(|host| !host.is_empty());
                return mailbox.fail(lost, host.map_or("this machine", String::as_str), why);
            }
        }
    }
}

fn read(stream: &mut TcpStream) -> std::io::Result<(Header, Vec<u8>)> {
    let mut header = [0; 17];
    stream.read_exact(&mut header)?;
    let header = Header::of(&header).ok_or(ErrorKind::InvalidData)?;
    let mut bytes = Vec::new();
    let length = stream.take(header.length).read_to_end(&mut bytes)?;
    match length as u64 == header.length {
        true => Ok((header, bytes)),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "ended unexpectedly".to_owned()
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("was silent for {} s", super::SILENCE.as_secs())
        }
        _ => format!("cannot be heard ({error})"),
    }
}
