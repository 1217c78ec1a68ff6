//! A proxy between an owner and a provider, which records requests and drops responses.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A proxy on loopback.
pub struct Proxy {
    pub url: String,
    /// The bytes that the owner has sent, by connection.
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Number of responses still to be dropped.
    losing: Arc<AtomicUsize>,
}

impl Proxy {
    /// Forwards everything to an address; the first `losing` responses to contributions are dropped
    /// after the provider has sent them.
    pub fn to(address: &str, losing: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sent: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let losing = Arc::new(AtomicUsize::new(losing));
        let (address, kept, lose) = (address.to_owned(), sent.clone(), losing.clone());
        std::thread::spawn(move || {
            for owner in listener.incoming().flatten() {
                let Ok(provider) = TcpStream::connect(&address) else { continue };
                let number = {
                    let mut all = kept.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                let (kept, lose) = (kept.clone(), lose.clone());
                let (from, to) = (owner.try_clone().unwrap(), provider.try_clone().unwrap());
                let seen = kept.clone();
                std::thread::spawn(move || {
                    copy(from, to, |bytes| seen.lock().unwrap()[number].extend(bytes));
                });
                std::thread::spawn(move || answers(provider, owner, number, &kept, &lose));
            }
        });
        Self { url, sent, losing }
    }

    /// The bytes that the owner has sent, by connection.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.sent.lock().unwrap().clone()
    }

    /// Number of responses still to be dropped.
    pub fn still_losing(&self) -> usize {
        self.losing.load(Ordering::SeqCst)
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        see(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Forwards responses. While there are responses to drop, the response to a contribution is lost
/// together with its connection.
fn answers(
    mut provider: TcpStream,
    mut owner: TcpStream,
    number: usize,
    sent: &Mutex<Vec<Vec<u8>>>,
    losing: &AtomicUsize,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = provider.read(&mut buffer) {
        let asked = sent.lock().unwrap()[number].clone();
        let contributes = asked.windows(17).any(|part| part == b"/v1/contributions");
        let lost = contributes
            && losing
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        if lost {
            let _ = owner.shutdown(Shutdown::Both);
            let _ = provider.shutdown(Shutdown::Both);
            return;
        }
        if owner.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = owner.shutdown(Shutdown::Write);
}

/// The requests of a connection, each with its header and body.
pub fn requests(mut bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut requests = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let header = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = header.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let length: usize = length.unwrap_or(0);
        let rest = &bytes[end + 4..];
        requests.push((header, rest[..length.min(rest.len())].to_vec()));
        bytes = &rest[length.min(rest.len())..];
    }
    requests
}
