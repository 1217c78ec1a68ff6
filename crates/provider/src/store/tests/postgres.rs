//! The store in PostgreSQL.

use super::TASK;
use super::promises::{self, Open, all, new_of, releases, sent};
use crate::store::{Location, Store, new_token};

#[path = "../../../../../tests/postgres/mod.rs"]
mod database;

use database::{Database, PASSWORD};

/// A test of a promise, which opens its own stores.
type Promise = fn(Open);

fn open(url: &str) -> crate::Result<Box<dyn Store>> {
    Location::parse(url)?.open(&TASK)
}

fn why(url: &str) -> crate::Error {
    open(url).map(drop).unwrap_err()
}

/// One server for all tests, because starting a server takes a second.
#[test]
fn postgres_keeps_what_every_store_promises() {
    let Some(mut database) = Database::start() else { return };
    let kept: [(&str, Promise); 7] = [
        (
            "what_is_sent_again_counts_once_and_survives_the_process",
            promises::what_is_sent_again_counts_once_and_survives_the_process,
        ),
        (
            "another_release_under_an_id_is_refused",
            promises::another_release_under_an_id_is_refused,
        ),
        (
            "revoked_owners_and_limits_store_nothing",
            promises::revoked_owners_and_limits_store_nothing,
        ),
        (
            "contributions_that_wait_are_stored_together",
            promises::contributions_that_wait_are_stored_together,
        ),
        ("a_store_of_another_task_is_refused", promises::a_store_of_another_task_is_refused),
        ("two_processes_agree", promises::two_processes_agree),
        ("forgotten_releases_are_gone", promises::forgotten_releases_are_gone),
    ];
    for (name, promise) in kept {
        let location = Location::parse(&database.make(name)).unwrap();
        promise(&|task| location.open(task));
    }
    tokens_are_not_in_the_database(&database);
    commits_wait_for_the_disk(&mut database);
    another_machine_is_reached_by_tls(&mut database);
    a_server_that_went_away_is_found_again(&mut database);
}

fn tokens_are_not_in_the_database(database: &Database) {
    let mut store = open(&database.make("tokens")).unwrap();
    let token = new_token(store.as_mut(), "ada", 4).unwrap();
    let kept = database.sql("tokens", "SELECT encode(token, 'hex') FROM owners");
    assert_eq!(kept, crate::hex::hex(&crate::store::token_hash(&token)));
    let secret = token.strip_prefix(crate::store::TOKEN).unwrap();
    assert_ne!(kept, secret);
}

/// Whatever the server's default, a commit returns once it is on disk.
fn commits_wait_for_the_disk(database: &mut Database) {
    let url = database.make("commits");
    database.sql("postgres", "ALTER DATABASE commits SET synchronous_commit = off");
    let mut store = open(&url).unwrap();
    let token = new_token(store.as_mut(), "ada", 100).unwrap();
    for id in 0..20 {
        store.store(&[sent(&token, 0, releases(id..id + 1, 0.0))], 1000).unwrap();
    }
    // This would lose commits that had not waited for the disk.
    database.kill();
    database.run();
    assert_eq!(all(store.as_mut(), 0).len(), 20);
    database.sql("postgres", "ALTER SYSTEM SET fsync = off");
    database.sql("postgres", "SELECT pg_reload_conf()");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let error = why(&url);
    assert!(error.to_string().contains("fsync = off") && !error.is_of_system(), "{error}");
    database.sql("postgres", "ALTER SYSTEM RESET fsync");
    database.sql("postgres", "SELECT pg_reload_conf()");
}

/// With a password, and a verified certificate.
fn another_machine_is_reached_by_tls(database: &mut Database) {
    database.make("remote");
    let made = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        rcgen::generate_simple_self_signed(names).unwrap()
    };
    let (right, other) = (made(&["localhost"]), made(&["localhost"]));
    std::fs::write(database.path("server.crt"), right.cert.pem()).unwrap();
    std::fs::write(database.path("server.key"), right.signing_key.serialize_pem()).unwrap();
    std::fs::write(database.path("other.crt"), other.cert.pem()).unwrap();
    for (name, file) in [("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key")] {
        let path = database.path(file);
        database.give(&path);
        let set = format!("ALTER SYSTEM SET {name} = '{}'", path.display());
        database.sql("postgres", &set);
    }
    database.sql("postgres", "ALTER SYSTEM SET ssl = on");
    database.stop();
    database.run();
    let address = |password: &str, authorities: &str| {
        let with = database.by_port("remote").replace("undertone@", &format!("{password}@"));
        let file = database.path(authorities);
        format!("{with}?sslmode=require&sslrootcert={}", file.display())
    };
    let password = format!("undertone:{}", PASSWORD.replace(' ', "%20"));
    let mut store = open(&address(&password, "server.crt")).unwrap();
    new_token(store.as_mut(), "ada", 100).unwrap();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE ssl AND application_name = 'undertone'";
    assert_eq!(database.sql("remote", encrypted), "1");
    // A wrong or missing password is a user error.
    let error = why(&address("undertone:wrong", "server.crt"));
    assert!(!error.is_of_system() && error.to_string().contains("password"), "{error}");
    // A different server that impersonates this one.
    let error = why(&address(&password, "other.crt"));
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = why(&address(&password, "missing.crt"));
    assert!(error.to_string().contains("missing.crt"), "{error}");
    let error = why(&address(&password, "server.crt").replace("/remote", "/nothing"));
    assert!(!error.is_of_system() && error.to_string().contains("nothing"), "{error}");
}

/// Stopped or killed: nothing is acknowledged while the server is away, acknowledged data is there
/// when it is back, and the same store continues to work.
fn a_server_that_went_away_is_found_again(database: &mut Database) {
    let url = database.make("away");
    let mut store = open(&url).unwrap();
    let token = new_token(store.as_mut(), "ada", 1000).unwrap();
    let frame = |ids| sent(&token, 0, releases(ids, 0.0));
    for (round, kill) in [(0_u8, false), (1, true)] {
        let (first, more) = (10 * round, 10 * round + 5);
        assert_eq!(new_of(&store.store(&[frame(first..more)], 1000).unwrap()[0]), Some(5));
        if kill {
            database.kill()
        } else {
            database.stop()
        }
        let error = store.store(&[frame(more..more + 5)], 1000).unwrap_err();
        assert!(error.is_of_system() && error.to_string().contains("PostgreSQL"), "{error}");
        assert!(store.counts().is_err() && store.read(0, 3, &mut |_, _| Ok(())).is_err());
        assert!(why(&url).is_of_system());
        database.run();
        assert_eq!(new_of(&store.store(&[frame(more..more + 5)], 1000).unwrap()[0]), Some(5));
        assert_eq!(all(store.as_mut(), 0).len(), usize::from(first) + 10);
    }
    // The caller does not notice a connection lost between two queries.
    database.stop();
    database.run();
    assert_eq!(new_of(&store.store(&[frame(0..20)], 1000).unwrap()[0]), Some(0));
}
