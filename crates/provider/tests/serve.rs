//! The server alone: what it accepts, what it refuses, and how long it waits.

use super::world::{World, get, limits, rest};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use undertone_provider::serve::Limits;
use undertone_provider::store::Location;
use undertone_provider::{Receipt, frame_hash, frame_length, hash, hex, unhex};

/// Clients that send slowly do not block anything: they are disconnected, and others are served in
/// the meantime.
#[test]
fn slow_clients_are_cut_off() {
    let world = World::start(limits());
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..20).map(|_| world.connect()).collect();
    let mut half_a_header = world.connect();
    half_a_header.write_all(b"POST /v1/contributions HTTP/1.1\r\nhost: a\r\n").unwrap();
    let mut half_a_body = world.connect();
    let head = world.head("/v1/contributions", frame_length(&world.task.task));
    half_a_body.write_all(head.as_bytes()).unwrap();
    half_a_body.write_all(&world.frame(1)[..50]).unwrap();
    // In the meantime, others are served.
    let mut good = world.connect();
    good.write_all(head.as_bytes()).unwrap();
    good.write_all(&world.frame(2)).unwrap();
    let mut answer = [0; 15];
    good.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    // A byte from time to time does not help.
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(150));
        let _ = half_a_header.write_all(b"x");
        let _ = half_a_body.write_all(b"x");
    }
    assert!(rest(half_a_body).contains("408 Request Timeout"));
    rest(half_a_header);
    silent.drain(..).for_each(|socket| drop(rest(socket)));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let mut store = Location::Sqlite(world.task.store()).open(&world.task.hash).unwrap();
    assert_eq!(store.counts().unwrap().of_epoch(0), 1);
}

#[test]
fn connections_above_the_limit_are_closed() {
    let world = World::start(Limits { connections: 4, ..limits() });
    let mut open: Vec<TcpStream> = (0..4).map(|_| world.connect()).collect();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(rest(world.connect()), "");
    // Once others have disconnected, there is room again.
    open.clear();
    let begun = Instant::now();
    while !get(&world.ready.url, "/healthz", "").contains("200 OK") {
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_owner_that_sends_too_fast_is_told_to_wait() {
    let world = World::start(Limits { per_second: 0.5, burst: 3.0, ..limits() });
    let enrol = || {
        let mut socket = world.connect();
        socket.write_all(world.head("/v1/enrol", 0).as_bytes()).unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        String::from_utf8(answer.to_vec()).unwrap()
    };
    let answers: Vec<String> = (0..5).map(|_| enrol()).collect();
    assert!(answers[..3].iter().all(|answer| answer.ends_with("200")), "{answers:?}");
    assert!(answers[3..].iter().all(|answer| answer.ends_with("429")), "{answers:?}");
}

/// A server that is stopped finishes requests in progress and closes idle connections.
#[test]
fn requests_in_progress_are_finished_before_the_end() {
    let world = World::start(Limits { body: Duration::from_secs(10), ..limits() });
    let mut begun = world.connect();
    let frame = world.frame(7);
    begun
        .write_all(world.head("/v1/contributions", frame.len()).as_bytes())
        .and_then(|()| begun.write_all(&frame[..100]))
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    world.stop.store(true, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(200));
    let refused = TcpStream::connect(world.ready.url.strip_prefix("http://").unwrap());
    assert!(refused.is_err(), "no new connection is taken");
    begun.write_all(&frame[100..]).unwrap();
    let answer = rest(begun);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    // The receipt states this and is signed with the task's key.
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    let said: serde_json::Value = serde_json::from_str(body).unwrap();
    let receipt: Receipt = serde_json::from_value(said["receipt"].clone()).unwrap();
    assert!(receipt.is_signed_by(&unhex(&world.task.task.key).unwrap()));
    assert_eq!(receipt.frame, hex(&frame_hash(&frame).unwrap()));
    assert_eq!((receipt.owner.as_str(), receipt.releases), ("ada", 1));
    let path = world.task.store();
    let hash = world.task.hash;
    let kept = world.folder.path().to_path_buf();
    drop(Location::Sqlite(path).open(&hash).unwrap().counts().unwrap());
    assert!(kept.is_dir());
}

#[test]
fn the_task_and_pre_are_served_as_they_are() {
    let world = World::start(limits());
    let url = &world.ready.url;
    let task = get(url, "/v1/task", "");
    let body = task.split("\r\n\r\n").nth(1).unwrap();
    assert_eq!(hash(body.as_bytes()), world.task.hash);
    let file = &world.task.task.files[0];
    let bytes = fs::read(world.task.pre().join(&file.name)).unwrap();
    let whole = get(url, &format!("/v1/pre/{}", file.name), "");
    assert!(whole.ends_with(std::str::from_utf8(&bytes).unwrap()), "{whole}");
    let part = get(url, &format!("/v1/pre/{}", file.name), "range: bytes=3-9\r\n");
    assert!(
        part.starts_with("HTTP/1.1 206")
            && part.ends_with(&whole[whole.len() - bytes.len()..][3..10]),
        "{part}"
    );
    let range = format!("content-range: bytes 3-9/{}", bytes.len());
    assert!(part.contains(&range), "{part}");
    for path in ["/v1/pre/../task.json", "/v1/pre/provider.key", "/v1/pre/%2e%2e%2fprovider.key"] {
        let answer = get(url, path, "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    let beyond = get(url, &format!("/v1/pre/{}", file.name), "range: bytes=99999999-\r\n");
    assert!(beyond.starts_with("HTTP/1.1 416"), "{beyond}");
}

/// Owners cannot reach the page and the metrics.
#[test]
fn the_page_and_the_metrics_are_the_providers() {
    let world = World::start(limits());
    let admin = world.ready.admin.clone().unwrap();
    let mut socket = world.connect();
    let frame = world.frame(3);
    socket
        .write_all(world.head("/v1/contributions", frame.len()).as_bytes())
        .and_then(|()| socket.write_all(&frame))
        .unwrap();
    let mut first = [0; 12];
    socket.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    for path in ["/", "/metrics"] {
        let answer = get(&world.ready.url, path, "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    let page = get(&admin, "/", "");
    assert!(page.contains("default-src 'none'") && page.contains("<td>ada</td>"), "{page}");
    // Label names are escaped as text, whatever they contain.
    assert!(page.contains("&lt;good&gt;") && !page.contains("<good>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
    let metrics = get(&admin, "/metrics", "");
    for line in [
        "undertone_releases{epoch=\"0\",label=\"<good>\"} 1",
        "undertone_releases_new_total 1",
        "undertone_owners 1",
        "undertone_contribution_seconds_count 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(get(&admin, "/healthz", "").contains("\"ok\""));
}

/// The API description lists every path, and each path exists.
#[test]
fn the_interface_is_described() {
    let world = World::start(limits());
    let answer = get(&world.ready.url, "/v1/openapi.json", "");
    let described: serde_json::Value =
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let mut socket = world.connect();
            let (method, path) = (method.to_uppercase(), path.replace("{name}", "config.json"));
            let ask = format!(
                "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: \
                 0\r\n\r\n"
            );
            socket.write_all(ask.as_bytes()).unwrap();
            let answer = rest(socket);
            let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
            let described = &methods[&method.to_lowercase()]["responses"];
            assert!(described.get(status.to_string()).is_some(), "{method} {path}: {status}");
        }
    }
}
