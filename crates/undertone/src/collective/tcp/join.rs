//! Connects all ranks: every rank calls rank 0, which reports where the others are; then each rank
//! calls the ranks before it.

use super::super::{Error, Result};
use super::handshake::{Caller, accept, call};
use super::rendezvous::Meeting;
use super::{Key, Peer, Rendezvous};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time for an address to answer.
const ANSWER: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);
/// Maximum number of simultaneous connections that have not yet proved that they know the key.
const MOST_UNKNOWN: usize = 256;
/// Maximum length of a message while ranks are joining.
const LONGEST: u32 = 1 << 24;

/// Where a rank can be reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    rank: usize,
    host: String,
    addresses: Vec<String>,
    port: u16,
}

/// Rank 0's answer to a rank that has called.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// All ranks except rank 0.
    Places(Vec<Place>),
    Refused(String),
}

impl Rendezvous {
    fn caller(&self) -> Caller {
        Caller { rank: self.rank as u32, ranks: self.ranks as u32 }
    }
}

/// Connects all ranks. Returns the job's key and the other ranks, in order.
pub fn join(rendezvous: &Rendezvous) -> Result<(Key, Vec<Peer>)> {
    let Rendezvous { rank, ranks, .. } = *rendezvous;
    if rank >= ranks || ranks > u32::MAX as usize {
        return Err(Error::Refused(format!(
            "rank {rank} of {ranks} does not exist: ranks are numbered from 0"
        )));
    }
    let system = |e: std::io::Error| Error::System(format!("no port can be opened: {e}"));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(system)?;
    listener.set_nonblocking(true).map_err(system)?;
    let port = listener.local_addr().map_err(system)?.port();
    let (host, addresses) = own_addresses(rendezvous.address.as_deref());
    let deadline = Instant::now() + rendezvous.patience;
    let place = Place { rank, host, addresses, port };
    let (key, mut peers) = match rank {
        0 => lead(rendezvous, &listener, place, deadline)?,
        _ => follow(rendezvous, &listener, place, deadline)?,
    };
    peers.sort_by_key(|peer| peer.rank);
    Ok((key, peers))
}

fn peer(rank: usize, host: String, stream: TcpStream) -> Peer {
    Peer { rank, host, stream, writing: Mutex::new(()) }
}

/// Rank 0: waits for all ranks and informs them about each other.
fn lead(
    rendezvous: &Rendezvous,
    listener: &TcpListener,
    own: Place,
    deadline: Instant,
) -> Result<(Key, Vec<Peer>)> {
    let ranks = rendezvous.ranks;
    let mut key = Key([0; 32]);
    getrandom::fill(&mut key.0).map_err(|e| Error::System(format!("no random numbers: {e}")))?;
    let meeting = Meeting::new(&key, own.host, own.addresses, own.port);
    let _kept = (ranks > 1).then(|| meeting.write(&rendezvous.folder)).transpose()?;
    let mut joined: Vec<Option<(Place, TcpStream)>> = (0..ranks).map(|_| None).collect();
    let door = Door::new(listener, &key, 0);
    while joined.iter().skip(1).any(Option::is_none) {
        let Some((caller, mut stream)) = door.next(deadline) else {
            let missing: Vec<String> = (1..ranks)
                .filter(|&rank| joined[rank].is_none())
                .map(|rank| rank.to_string())
                .collect();
            let which = if missing.len() == 1 { "rank" } else { "ranks" };
            let sentence = format!(
                "{which} {} did not join through {} within {} s: start all {ranks} with the same \
                 folder",
                missing.join(", "),
                rendezvous.folder.display(),
                rendezvous.patience.as_secs()
            );
            refuse_all(joined, &sentence);
            return Err(Error::Refused(sentence));
        };
        // Read this in any case: a rank that is still sending would not receive the answer.
        let Some(mut place) = receive::<Place>(&mut stream) else { continue };
        let rank = caller.rank as usize;
        let problem = if caller.ranks as usize != ranks {
            let theirs = caller.ranks;
            Some(format!("rank {rank} was started for {theirs} ranks, but rank 0 for {ranks}"))
        } else if rank == 0 || rank >= ranks || joined[rank].is_some() {
            Some(format!("there is more than one rank {rank}"))
        } else {
            None
        };
        if let Some(problem) = problem {
            let sentence = format!("{problem}: start all ranks again");
            let _ = send(&mut stream, &Answer::Refused(sentence.clone()));
            refuse_all(joined, &sentence);
            return Err(Error::Refused(sentence));
        }
        place.rank = rank;
        // Try the address as seen from here first.
        if let Ok(address) = stream.peer_addr() {
            place.addresses.insert(0, address.ip().to_string());
        }
        joined[rank] = Some((place, stream));
    }
    let joined: Vec<(Place, TcpStream)> = joined.into_iter().flatten().collect();
    let places: Vec<Place> = joined.iter().map(|(place, _)| place.clone()).collect();
    let answer = Answer::Places(places);
    let mut peers = Vec::with_capacity(joined.len());
    for (place, mut stream) in joined {
        let lost = || lost(place.rank, &place.host);
        send(&mut stream, &answer).map_err(|_| lost())?;
        peers.push(peer(place.rank, place.host.clone(), stream));
    }
    Ok((key, peers))
}

fn lost(rank: usize, host: &str) -> Error {
    let why = "ended before the run began".to_owned();
    Error::Lost { rank, host: host.to_owned(), why }
}

fn refuse_all(joined: Vec<Option<(Place, TcpStream)>>, sentence: &str) {
    for (_, mut stream) in joined.into_iter().flatten() {
        let _ = send(&mut stream, &Answer::Refused(sentence.to_owned()));
    }
}

/// Any other rank: calls rank 0 and the ranks before itself, and is called by those after it.
fn follow(
    rendezvous: &Rendezvous,
    listener: &TcpListener,
    own: Place,
    deadline: Instant,
) -> Result<(Key, Vec<Peer>)> {
    let (caller, rank) = (rendezvous.caller(), rendezvous.rank);
    let (key, host, mut first) = loop {
        // A file left by an earlier job leads nowhere: keep reading until it belongs to this job.
        if let Some(meeting) = Meeting::read(&rendezvous.folder)?
            && let Some(key) = meeting.key()
            && let Some(stream) = reach(&meeting.addresses, meeting.port, &key, 0, caller)
        {
            break (key, meeting.host, stream);
        }
        if Instant::now() > deadline {
            return Err(Error::Refused(format!(
                "rank 0 did not join through {} within {} s: start all ranks with the same folder, \
                 which all of them can see",
                rendezvous.folder.display(),
                rendezvous.patience.as_secs()
            )));
        }
        std::thread::sleep(NAP);
    };
    let left = deadline.saturating_duration_since(Instant::now()) + ANSWER;
    let answer = send(&mut first, &own).ok().and_then(|()| {
        first.set_read_timeout(Some(left)).ok()?;
        receive::<Answer>(&mut first)
    });
    let places = match answer {
        Some(Answer::Places(places)) => places,
        Some(Answer::Refused(sentence)) => return Err(Error::Refused(sentence)),
        None => return Err(lost(0, &host)),
    };
    let mut peers = vec![peer(0, host, first)];
    for place in places.iter().filter(|place| place.rank < rank) {
        let Place { rank: callee, host, addresses, port } = place;
        let stream = loop {
            match reach(addresses, *port, &key, *callee as u32, caller) {
                Some(stream) => break stream,
                None if Instant::now() > deadline => return Err(lost(*callee, host)),
                None => std::thread::sleep(NAP),
            }
        };
        peers.push(peer(*callee, host.clone(), stream));
    }
    let mut missing: Vec<&Place> = places.iter().filter(|place| place.rank > rank).collect();
    let door = Door::new(listener, &key, rank as u32);
    while let Some(awaited) = missing.first() {
        let Some((caller, stream)) = door.next(deadline) else {
            return Err(lost(awaited.rank, &awaited.host));
        };
        if let Some(i) = missing.iter().position(|place| place.rank == caller.rank as usize) {
            let place = missing.remove(i);
            peers.push(peer(place.rank, place.host.clone(), stream));
        }
    }
    Ok((key, peers))
}

/// Accepts calls to a rank. Each caller gets a thread in which it proves that it knows the key, so
/// that a silent caller does not block others.
struct Door<'a> {
    listener: &'a TcpListener,
    key: &'a Key,
    callee: u32,
    /// Callers that have proved that they know the key.
    known: (Sender<Call>, Receiver<Call>),
    /// Number of callers that have not proved it yet.
    unknown: Arc<AtomicUsize>,
}

type Call = (Caller, TcpStream);

impl<'a> Door<'a> {
    fn new(listener: &'a TcpListener, key: &'a Key, callee: u32) -> Self {
        Self { listener, key, callee, known: channel(), unknown: Arc::default() }
    }

    /// The next caller that knows the key; `None` if none arrives before the deadline.
    fn next(&self, deadline: Instant) -> Option<Call> {
        loop {
            if let Ok(call) = self.known.1.try_recv() {
                return Some(call);
            }
            if self.unknown.load(Ordering::SeqCst) < MOST_UNKNOWN
                && let Ok((stream, _)) = self.listener.accept()
            {
                self.greet(stream);
                continue;
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn greet(&self, mut stream: TcpStream) {
        let (key, callee, known) = (self.key.clone(), self.callee, self.known.0.clone());
        let unknown = Arc::clone(&self.unknown);
        unknown.fetch_add(1, Ordering::SeqCst);
        let greeting = std::thread::Builder::new().spawn(move || {
            if stream.set_nonblocking(false).is_ok()
                && let Ok(caller) = accept(&mut stream, &key, callee)
            {
                // The receiver is gone once all ranks have joined.
                let _ = known.send((caller, stream));
            }
            unknown.fetch_sub(1, Ordering::SeqCst);
        });
        if greeting.is_err() {
            self.unknown.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Connects to a rank at the first of its addresses that answers.
fn reach(
    addresses: &[String],
    port: u16,
    key: &Key,
    callee: u32,
    caller: Caller,
) -> Option<TcpStream> {
    let resolved =
        addresses.iter().filter_map(|address| (address.as_str(), port).to_socket_addrs().ok());
    resolved.flatten().find_map(|address| {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER).ok()?;
        call(&mut stream, key, callee, caller).ok()?;
        Some(stream)
    })
}

/// This machine's name, and the addresses at which others may reach it, most likely ones first.
fn own_addresses(given: Option<&str>) -> (String, Vec<String>) {
    let host = undertone_run::host_name().unwrap_or_else(|| "localhost".to_owned());
    // Nothing is sent: the system only reports which of its addresses it would use.
    let outward = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()));
    let outward = outward.ok().map(|address| address.ip().to_string());
    let loopback = Ipv4Addr::LOCALHOST.to_string();
    let all = [given.map(str::to_owned), outward, Some(host.clone()), Some(loopback)];
    (host, all.into_iter().flatten().collect())
}

fn send(stream: &mut TcpStream, message: &impl Serialize) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
    stream.write_all(&bytes)
}

fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> Option<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}
