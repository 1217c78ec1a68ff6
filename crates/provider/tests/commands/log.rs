//! The server's log.

use super::world::{World, json};
use std::fs;

/// Requests and contributions are logged, but neither tokens nor any data that was sent.
#[test]
fn the_log_has_no_tokens_and_nothing_of_texts() {
    let world = World::usual();
    let log = world.bench.path("log");
    let server = world.serve_with("127.0.0.1:0", &["--insecure", "--log", "debug"], |serve| {
        serve.stderr(fs::File::create(&log).unwrap());
    });
    let token = fs::read_to_string(world.token("ada")).unwrap();
    let texts = fs::read_to_string(world.texts("ada", 100)).unwrap();
    json(&mut world.contribute("ada", &server.url));
    world.train("run");
    let asked = ["--text", "the warm sun", "--epsilon-at-most", "20"];
    json(world.owner("query", "ada", &server.url).args(asked));
    // A token in the wrong place.
    let path = format!("GET /v1/{}?token={} HTTP/1.1\r\nhost: a", token.trim(), token.trim());
    super::faults::raw(&server.address(), &path, b"");
    assert!(server.stop());
    let log = fs::read_to_string(log).unwrap();
    for line in [
        "listening",
        "stored owner=\"ada\" epoch=0 releases=64 new=64",
        "answered method=POST route=\"/v1/contributions\" status=200",
        "answered method=POST route=\"/v1/predict\" status=200",
        "answered method=GET route=\"none\" status=404",
        "a new model answers",
        "stopping",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let secret = token.trim().strip_prefix("undertone-").unwrap();
    assert!(!log.contains(secret), "{log}");
    let hashed = undertone_provider::hex(&undertone_provider::store::token_hash(token.trim()));
    assert!(!log.contains(&hashed), "{log}");
    for text in texts.lines().skip(1).filter_map(|line| line.split_once('\t')) {
        assert!(!log.contains(text.0), "{log}");
    }
    assert!(!log.contains("the warm sun"), "{log}");
    let book = rusqlite::Connection::open(world.home("ada").join("owner.db")).unwrap();
    let mut ask = book.prepare("SELECT lower(hex(record)) FROM releases").unwrap();
    let ids = ask.query_map([], |row| row.get::<_, String>(0)).unwrap();
    ids.for_each(|id| assert!(!log.contains(&id.unwrap()), "{log}"));
}

/// By default, a server without problems logs nothing.
#[test]
fn a_server_is_silent_by_default() {
    let world = World::usual();
    let log = world.bench.path("log");
    let server = world.serve_with("127.0.0.1:0", &["--insecure"], |serve| {
        serve.stderr(fs::File::create(&log).unwrap());
    });
    world.token("ada");
    world.texts("ada", 10);
    json(&mut world.contribute("ada", &server.url));
    assert!(server.stop());
    let said = fs::read_to_string(log).unwrap();
    assert_eq!(said.trim(), "stopped; everything that was acknowledged is stored");
}
