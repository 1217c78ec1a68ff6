//! Everything that leaves an owner is a function of releases, ids and the public task.

use super::proxy::{Proxy, requests};
use super::world::{World, json};
use std::fs;

/// All requests that passed through a proxy, in order.
fn all(proxy: &Proxy) -> Vec<(String, Vec<u8>)> {
    proxy.sent().iter().flat_map(|bytes| requests(bytes)).collect()
}

/// Every byte is accounted for: headers are functions of the address, the token and the task, and a
/// body is a frame whose releases are in the owner's folder.
#[test]
fn nothing_but_releases_leaves() {
    let world = World::usual();
    let server = world.insecure();
    let proxy = Proxy::to(&server.address(), 0);
    let token = fs::read_to_string(world.token("ada")).unwrap();
    world.texts("ada", 100);
    let done = json(&mut world.contribute("ada", &proxy.url));
    let task: serde_json::Value =
        serde_json::from_slice(&fs::read(world.folder().join("task.json")).unwrap()).unwrap();
    let width = task["width"].as_u64().unwrap() as usize;
    let host = proxy.url.strip_prefix("http://").unwrap();
    let frame_bytes = done["frame_bytes"].as_u64().unwrap() as usize;
    let mut expected: Vec<(String, usize)> =
        vec![(format!("GET /v1/task HTTP/1.1\r\nhost: {host}"), 0)];
    for file in task["files"].as_array().unwrap() {
        let (name, bytes) = (file["name"].as_str().unwrap(), file["bytes"].as_u64().unwrap());
        let range = format!("range: bytes=0-{}", bytes - 1);
        expected.push((format!("GET /v1/pre/{name} HTTP/1.1\r\nhost: {host}\r\n{range}"), 0));
    }
    let post = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/octet-stream"
        )
    };
    expected.push((post("/v1/enrol"), 0));
    let length = format!("\r\ncontent-length: {frame_bytes}");
    let frame = (post("/v1/contributions") + &length, frame_bytes);
    expected.extend([frame.clone(), frame]);
    let sent = all(&proxy);
    let shapes: Vec<(String, usize)> =
        sent.iter().map(|(header, body)| (header.clone(), body.len())).collect();
    assert_eq!(shapes, expected);
    // Everything in a frame except its slots comes from the task.
    let hash = done["task"].as_str().unwrap();
    let mut slots = Vec::new();
    for ((_, body), used) in sent.iter().rev().take(2).rev().zip([64_u32, 36]) {
        let slot = 20 + 4 * width;
        let word = |n: u32| n.to_le_bytes();
        let mut header = b"UNDTONE1\x01\x00\x01\x00".to_vec();
        for n in [64, used, 0, width as u32, 0] {
            header.extend(word(n));
        }
        header.extend((0..32).map(|i| u8::from_str_radix(&hash[2 * i..2 * i + 2], 16).unwrap()));
        assert_eq!(body[..64], header);
        assert_eq!(body.len(), 64 + 64 * slot + 32);
        let (filled, empty) = body[64..64 + 64 * slot].split_at(used as usize * slot);
        assert!(empty.iter().all(|&byte| byte == 0));
        slots.extend(filled.chunks_exact(slot).map(<[u8]>::to_vec));
    }
    // The slots are the stored releases, ordered by their ids, which are hashes, instead of the
    // order of the file.
    assert!(slots.is_sorted());
    let releases = stored(&world, "ada");
    assert_eq!(slots, releases);
}

/// The releases in an owner's folder as slots, ordered by their ids.
fn stored(world: &World, owner: &str) -> Vec<Vec<u8>> {
    let book = rusqlite::Connection::open(world.home(owner).join("owner.db")).unwrap();
    let mut ask =
        book.prepare("SELECT record, label, numbers FROM releases ORDER BY record").unwrap();
    let slot = |row: &rusqlite::Row| {
        let (id, label, numbers): (Vec<u8>, u32, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok([id, label.to_le_bytes().to_vec(), numbers].concat())
    };
    ask.query_map([], slot).unwrap().map(Result::unwrap).collect()
}

/// Two files with the same number of texts, one with single words and one with texts beyond the
/// maximum length: the number and the lengths of the messages are equal.
#[test]
fn lengths_do_not_depend_on_the_texts() {
    let world = World::usual();
    let server = world.insecure();
    let shapes = |owner: &str, text: &dyn Fn(usize) -> String| {
        let proxy = Proxy::to(&server.address(), 0);
        world.token(owner);
        let rows: String = (0..70).map(|i| format!("{}\tgood\n", text(i))).collect();
        let file = world.bench.path(&format!("{owner}.tsv"));
        fs::write(file, format!("sentence\tlabel\n{rows}")).unwrap();
        let done = json(&mut world.contribute(owner, &proxy.url));
        assert_eq!(done["new"].as_u64(), Some(70), "{done}");
        let mut query = world.owner("query", owner, &proxy.url);
        query.args(["--epsilon-at-most", "20", "--text", &text(71)]);
        // There is no model yet, but the query is sent all the same.
        assert!(!query.output().unwrap().status.success());
        let port = proxy.url.rsplit_once(':').unwrap().1.to_owned();
        let lengths: Vec<(String, usize, usize)> = all(&proxy)
            .iter()
            .map(|(header, body)| {
                let path = header.split(' ').nth(1).unwrap().to_owned();
                // Each proxy has its own port.
                (path, header.replace(&port, "0").len(), body.len())
            })
            .collect();
        lengths
    };
    let word = |i: usize| crate::bench::WORDS[i % 8];
    let short = shapes("ada", &|i| [word(i), word(i / 8), word(i / 64)].join(" "));
    let long = shapes("bob", &|i| {
        let words: Vec<&str> = (0..200 + i % 50).map(|j| word(i * j + i / 8 + j / 3)).collect();
        format!("{} {} {} {}", word(i), word(i / 8), word(i / 64), words.join(" "))
    });
    assert_eq!(short, long);
}
