//! Both ends of a new connection prove that they know the job's key, without revealing it.
//!
//! Each end sends a nonce, and answers with an authentication code (HMAC-SHA-256) over both nonces,
//! both ranks and its own role in the connection. Recorded codes from another connection are
//! useless, as one of the nonces is new, and so is a code reflected to its sender.

use super::Key;
use hmac::Mac;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

const MAGIC: [u8; 8] = *b"undrton1";
/// Read timeout, since others may connect by mistake and send nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// The caller: its rank, and the number of ranks it was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub rank: u32,
    pub ranks: u32,
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(Error::other)?;
    Ok(bytes)
}

fn read<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The facts that both codes authenticate.
struct Facts {
    callee: u32,
    caller: Caller,
    /// The nonces of the caller and the callee.
    numbers: [[u8; 32]; 2],
}

impl Facts {
    fn mac(&self, key: &Key, part: &[u8; 6]) -> hmac::Hmac<sha2::Sha256> {
        let Caller { rank, ranks } = self.caller;
        let ranks = [self.callee, rank, ranks].map(u32::to_le_bytes).concat();
        key.mac(&[part, &ranks, &self.numbers[0], &self.numbers[1]])
    }
}

fn stranger() -> Error {
    Error::new(ErrorKind::PermissionDenied, "the other end does not know the job's key")
}

/// The caller's side of a connection to rank `callee`.
pub fn call(stream: &mut TcpStream, key: &Key, callee: u32, caller: Caller) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let own = random()?;
    let Caller { rank, ranks } = caller;
    stream.write_all(&[&MAGIC[..], &rank.to_le_bytes(), &ranks.to_le_bytes(), &own].concat())?;
    let numbers = [own, read(stream)?];
    let code: [u8; 32] = read(stream)?;
    let facts = Facts { callee, caller, numbers };
    facts.mac(key, b"accept").verify_slice(&code).map_err(|_| stranger())?;
    stream.write_all(&facts.mac(key, b"caller").finalize().into_bytes())
}

/// The side of rank `callee`, which accepted the connection.
pub fn accept(stream: &mut TcpStream, key: &Key, callee: u32) -> Result<Caller> {
    stream.set_read_timeout(Some(PATIENCE))?;
    if read::<8>(stream)? != MAGIC {
        return Err(stranger());
    }
    let rank = u32::from_le_bytes(read(stream)?);
    let caller = Caller { rank, ranks: u32::from_le_bytes(read(stream)?) };
    let facts = Facts { callee, caller, numbers: [read(stream)?, random()?] };
    stream.write_all(&facts.numbers[1])?;
    stream.write_all(&facts.mac(key, b"accept").finalize().into_bytes())?;
    let code: [u8; 32] = read(stream)?;
    facts.mac(key, b"caller").verify_slice(&code).map_err(|_| stranger())?;
    Ok(caller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn meet(ours: u8, theirs: u8) -> (Result<Caller>, Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calling = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            call(&mut stream, &Key([theirs; 32]), 1, Caller { rank: 3, ranks: 4 })
        });
        let mut stream = listener.accept().unwrap().0;
        let accepted = accept(&mut stream, &Key([ours; 32]), 1);
        drop(stream);
        (accepted, calling.join().unwrap())
    }

    #[test]
    fn only_those_who_know_the_key_are_connected() {
        let (accepted, called) = meet(1, 1);
        assert_eq!(accepted.unwrap(), Caller { rank: 3, ranks: 4 });
        called.unwrap();
        let (accepted, called) = meet(1, 2);
        assert!(accepted.is_err() && called.is_err());
    }
}
