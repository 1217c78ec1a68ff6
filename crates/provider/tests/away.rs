//! When the store is away, nothing is acknowledged, and the server continues once it is back.

use super::postgres::Database;
use super::world::{World, get, limits};
use std::time::{Duration, Instant};
use undertone_provider::serve::Limits;
use undertone_provider::store::Location;

/// Refused with 503 as problem+json, without details about the store.
fn is_away(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    for part in ["application/problem+json", "urn:undertone:problem:busy", "retry-after"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    assert!(!answer.contains("receipt") && !answer.contains("PostgreSQL"), "{answer}");
    assert!(!answer.contains("database"), "{answer}");
}

/// Retries until the store is back.
fn is_back(world: &World) {
    let begun = Instant::now();
    while !get(&world.ready.url, "/healthz", "").starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the store is not found again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stored(location: &Location, world: &World) -> u64 {
    location.open(&world.task.hash).unwrap().counts().unwrap().of_epoch(0)
}

#[test]
fn a_database_that_stops_acknowledges_nothing() {
    let Some(mut database) = Database::start() else { return };
    let location = Location::parse(&database.make("releases")).unwrap();
    let world = World::with_store(limits(), Some(location.clone()));
    assert!(world.contribute(1).contains("\"new\":1"));
    database.stop();
    let admin = world.ready.admin.clone().unwrap();
    for path in ["/healthz", "/metrics"] {
        is_away(&get(&admin, path, ""));
    }
    let page = get(&admin, "/", "");
    assert!(page.starts_with("HTTP/1.1 503") && page.contains("away<small>"), "{page}");
    is_away(&world.contribute(1));
    is_away(&world.contribute(2));
    // Requests that need no store are served all the time.
    assert!(get(&world.ready.url, "/v1/task", "").starts_with("HTTP/1.1 200"));
    database.run();
    is_back(&world);
    assert!(world.contribute(1).contains("\"new\":0"), "what was acknowledged is there");
    assert!(world.contribute(2).contains("\"new\":1"), "what was not can be sent again");
    assert_eq!(stored(&location, &world), 2);
    // A server whose database is away can still be stopped.
    database.kill();
    is_away(&world.contribute(3));
}

/// A store locked by another process: waiting clients get a response in time and resend.
#[test]
fn a_file_that_is_locked_acknowledges_nothing() {
    let world = World::start(Limits { store: Duration::from_millis(300), ..limits() });
    let location = Location::Sqlite(world.task.store());
    assert!(world.contribute(1).contains("\"new\":1"));
    let other = rusqlite::Connection::open(world.task.store()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    is_away(&world.contribute(2));
    assert_eq!(stored_by(&other), 1);
    other.execute_batch("COMMIT").unwrap();
    // Waiting contributions may have been stored by now without an acknowledgment; they count once.
    let begun = Instant::now();
    while !world.contribute(2).starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the store is not found again");
    }
    assert_eq!(stored(&location, &world), 2);
}

fn stored_by(connection: &rusqlite::Connection) -> u64 {
    let count = connection.query_row("SELECT count(*) FROM releases", [], |row| row.get(0));
    count.map(|count: i64| count as u64).unwrap()
}
