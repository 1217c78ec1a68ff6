//! Kills either side, and lets the network lose, repeat and reorder messages.

use super::proxy::{Proxy, requests};
use super::world::{World, json, said};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

/// Sends raw bytes; returns the status and the body of the response.
pub fn raw(address: &str, header: &str, body: &[u8]) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let close = header.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    socket.write_all(format!("{close}\r\n\r\n").as_bytes()).unwrap();
    // A server that refuses a body may close before receiving all of it.
    let _ = socket.write_all(body);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}

/// The contributions that passed through a proxy, each with its header.
fn contributions(proxy: &Proxy) -> Vec<(String, Vec<u8>)> {
    let all = proxy.sent().iter().flat_map(|bytes| requests(bytes)).collect::<Vec<_>>();
    all.into_iter().filter(|(header, _)| header.contains("/v1/contributions")).collect()
}

#[test]
fn an_answer_that_is_lost_costs_nothing_and_counts_once() {
    let world = World::usual();
    let server = world.insecure();
    let proxy = Proxy::to(&server.address(), 3);
    world.token("ada");
    world.texts("ada", 150);
    let done = json(&mut world.contribute("ada", &proxy.url));
    assert_eq!((done["frames"].as_u64(), proxy.still_losing()), (Some(3), 0), "{done}");
    assert_eq!(world.stored(), [("ada".into(), 150)]);
    assert_eq!(world.ledger("ada", "contribution").len(), 2);
    // Resent frames are identical, byte for byte.
    let sent = contributions(&proxy);
    let mut different: Vec<&Vec<u8>> = sent.iter().map(|(_, body)| body).collect();
    different.sort();
    different.dedup();
    assert_eq!((sent.len(), different.len()), (6, 3));
}

#[test]
fn replayed_reordered_and_damaged_frames_change_nothing() {
    let world = World::usual();
    let server = world.insecure();
    let proxy = Proxy::to(&server.address(), 0);
    world.token("ada");
    world.texts("ada", 150);
    json(&mut world.contribute("ada", &proxy.url));
    let sent = contributions(&proxy);
    assert_eq!(sent.len(), 3);
    let address = server.address();
    for (header, body) in sent.iter().rev().chain(&sent) {
        let (status, answer) = raw(&address, header, body);
        assert!(status == 200 && answer.contains("\"new\":0"), "{status}: {answer}");
    }
    // Another owner may send the same frames: they count as that owner's releases.
    let stored = world.stored();
    assert_eq!(stored, [("ada".into(), 150)]);
    let (header, body) = &sent[0];
    let length = format!("content-length: {}", body.len());
    assert!(header.contains(&length), "{header}");
    let with_length =
        |length_is: usize| header.replace(&length, &format!("content-length: {length_is}"));
    let mut changed = body.clone();
    changed[100] ^= 1;
    for (header, body, wanted, about) in [
        (header.clone(), changed, 400, "hash"),
        (with_length(body.len() - 1), body[..body.len() - 1].to_vec(), 413, "bytes, not"),
        (with_length(body.len() + 1), [body.as_slice(), b"x"].concat(), 413, "bytes, not"),
        (with_length(1 << 40), Vec::new(), 413, "bytes, not"),
        (header.replace("Bearer ", "Bearer x"), body.clone(), 401, "token"),
        (header.replace("authorization", "x-nothing"), body.clone(), 401, "token"),
        (header.replace("/v1/contributions", "/v1/predict"), body.clone(), 400, "kind"),
        (header.replace("/v1/contributions", "/v1/nothing"), body.clone(), 404, "nothing"),
        (header.replacen("POST", "GET", 1), body.clone(), 405, "method"),
    ] {
        let (status, answer) = raw(&address, &header, &body);
        assert_eq!(status, wanted, "{about}: {answer}");
        assert!(answer.contains(about) && answer.contains("urn:undertone:problem:"), "{answer}");
    }
    // A frame that is truncated and never completed: none of it is stored.
    let mut cut = TcpStream::connect(&address).unwrap();
    cut.write_all(format!("{header}\r\n\r\n").as_bytes()).unwrap();
    cut.write_all(&body[..body.len() / 2]).unwrap();
    drop(cut);
    assert_eq!(world.stored(), stored);
}

#[test]
fn a_provider_that_is_killed_loses_no_acknowledged_contribution() {
    let world = World::usual();
    world.token("ada");
    world.texts("ada", 2_000);
    let mut server = world.insecure();
    let (url, address) = (server.url.clone(), server.address());
    let mut contributing =
        world.contribute("ada", &url).arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut kills = 0;
    // Killed each time more has been stored, until everything is.
    let mut before = 0;
    while contributing.try_wait().unwrap().is_none() && kills < 4 {
        std::thread::sleep(Duration::from_millis(10));
        let stored = world.stored()[0].1;
        if stored > before {
            server.kill();
            assert!(world.stored()[0].1 >= stored, "what was stored stays stored");
            before = stored + 200;
            kills += 1;
            server = world.serve(&address, &["--insecure"]);
        }
    }
    let output = contributing.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["receipts"].as_u64(), Some(2_000_u64.div_ceil(64)), "{done}");
    assert_eq!(world.stored(), [("ada".into(), 2_000)], "after {kills} kills");
    assert_eq!(world.ledger("ada", "contribution").len(), 2);
}

/// A provider that is stopped while owners send: requests in progress are answered, it ends without
/// a failure, and acknowledged data is stored.
#[test]
fn a_provider_that_is_told_to_stop_finishes_what_it_has_begun() {
    let world = World::usual();
    let mut server = world.insecure();
    let (url, address) = (server.url.clone(), server.address());
    let owners = ["ada", "bob", "eve"];
    for owner in owners {
        world.token(owner);
        // The task has been downloaded, and the provider is not contacted again before releases are
        // sent.
        world.texts(owner, 10);
        json(&mut world.contribute(owner, &url));
        world.texts(owner, 1_000);
    }
    let sending = owners.map(|owner| {
        let mut command = world.contribute(owner, &url);
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let all = || world.stored().iter().map(|(_, count)| count).sum::<u64>();
    for _ in 0..3 {
        let before = all();
        for _ in 0..400 {
            if all() > before {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(server.stop(), "it ends without a failure");
        for owner in owners {
            assert!(acknowledged(&world, owner) <= stored_of(&world, owner));
        }
        server = world.serve(&address, &["--insecure"]);
    }
    for child in sending {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_eq!(world.stored(), owners.map(|owner| (owner.to_owned(), 1_000)));
}

fn stored_of(world: &World, owner: &str) -> u64 {
    world.stored().iter().find(|(name, _)| name == owner).unwrap().1
}

/// Number of an owner's releases with a receipt.
fn acknowledged(world: &World, owner: &str) -> u64 {
    let path = world.home(owner).join("owner.db");
    let read_only = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(book) = rusqlite::Connection::open_with_flags(path, read_only) else { return 0 };
    let ask = "SELECT count(*) FROM releases JOIN frames ON frame = frames.id
        WHERE receipt IS NOT NULL";
    book.query_row(ask, [], |row| row.get::<_, i64>(0)).map_or(0, |count| count as u64)
}

#[test]
fn an_owner_that_is_killed_goes_on_with_the_same_releases() {
    let world = World::usual();
    let server = world.insecure();
    let proxy = Proxy::to(&server.address(), 0);
    world.token("ada");
    world.texts("ada", 2_000);
    let mut killed = 0;
    for wait in [20, 60, 120, 200, 300, 450, 600, 800, 1_000, 1_200] {
        let mut child = world
            .contribute("ada", &proxy.url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let over = child.try_wait().unwrap().is_some();
        let _ = child.kill();
        child.wait().unwrap();
        killed += usize::from(!over);
        if over {
            break;
        }
    }
    let done = json(&mut world.contribute("ada", &proxy.url));
    assert!(killed > 0 && done["rows"].as_u64() == Some(2_000), "{killed}: {done}");
    assert_eq!(world.stored(), [("ada".into(), 2_000)]);
    // A torn line counts as one of each event.
    let entries = world.ledger("ada", "contribution");
    assert!(entries.len() >= 2 && entries.len() <= 2 + killed, "{entries:?}");
    // No text has two releases: everything sent under one id was identical.
    let mut slots = std::collections::HashMap::new();
    for (_, body) in contributions(&proxy) {
        if body.len() < 64 {
            continue;
        }
        let used = u32::from_le_bytes(body[16..20].try_into().unwrap()) as usize;
        let width = u32::from_le_bytes(body[24..28].try_into().unwrap()) as usize;
        for slot in body[64..].chunks_exact(20 + 4 * width).take(used) {
            let (id, release) = slot.split_at(16);
            let first = slots.entry(id.to_vec()).or_insert_with(|| release.to_vec());
            assert_eq!(first, release, "one text, one release");
        }
    }
    assert_eq!(slots.len(), 2_000);
}

#[test]
fn two_processes_do_not_share_an_owners_folder() {
    let world = World::usual();
    world.token("ada");
    world.texts("ada", 10);
    // A provider that accepts the connection and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut first =
        world.contribute("ada", &url).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (_open, _) = silent.accept().unwrap();
    crate::bench::refused(&world.contribute("ada", &url).output().unwrap(), "another process");
    first.kill().unwrap();
    first.wait().unwrap();
}
