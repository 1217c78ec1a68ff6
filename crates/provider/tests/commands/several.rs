//! Two provider processes over one PostgreSQL store.

use super::world::{World, json, program};
use crate::bench::refused;
use crate::postgres::Database;
use std::process::Stdio;

#[test]
fn two_providers_share_one_store() {
    let Some(mut database) = Database::start() else { return };
    let url = database.make("releases");
    let mut world = World::usual();
    world.keep_in(&url);
    for owner in ["ada", "bob"] {
        world.token(owner);
        world.texts(owner, 200);
    }
    let (first, second) = (world.insecure(), world.insecure());
    assert_eq!(json(&mut world.contribute("ada", &first.url))["new"].as_u64(), Some(200));
    assert_eq!(json(&mut world.contribute("bob", &second.url))["new"].as_u64(), Some(200));
    // More of Ada's texts through the other process: both recognize the known ones.
    world.texts("ada", 250);
    let more = json(&mut world.contribute("ada", &second.url));
    assert_eq!((more["new"].as_u64(), more["frames"].as_u64()), (Some(50), Some(1)), "{more}");
    assert_eq!(world.stored(), [("ada".into(), 250), ("bob".into(), 200)]);
    // Both predict with a model that was trained once.
    assert_eq!(world.train("run")["releases"].as_u64(), Some(450));
    let query = ["--text", "the warm sun", "--epsilon-at-most", "20"];
    let answers = [&first, &second].map(|server| {
        json(world.owner("query", "ada", &server.url).args(query))["answers"].clone()
    });
    assert_eq!(answers[0], answers[1]);
    // A revoked token is revoked at both.
    let revoke = program(&["tokens", "revoke", "--owner", "bob", "--store", &url])
        .arg(world.folder())
        .output();
    assert!(revoke.unwrap().status.success());
    world.texts("bob", 210);
    for server in [&first, &second] {
        refused(&world.contribute("bob", &server.url).output().unwrap(), "token");
    }
    // The database stops and comes back while an owner is sending.
    world.token("eve");
    world.texts("eve", 2_000);
    let mut sending = world.contribute("eve", &first.url).stdout(Stdio::null()).spawn().unwrap();
    while world.stored()[2].1 == 0 && sending.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    database.stop();
    std::thread::sleep(std::time::Duration::from_millis(300));
    database.run();
    assert!(sending.wait().unwrap().success());
    let stored = [("ada", 250), ("bob", 200), ("eve", 2_000)];
    assert_eq!(world.stored(), stored.map(|(owner, count)| (owner.to_owned(), count)));
    assert_eq!(database.sql("releases", "SELECT count(*) FROM releases"), "2450");
    assert!(first.stop() && second.stop());
    // Incorrect addresses.
    let nothing = url.replace("releases", "nothing");
    for (store, about) in [
        ("postgres://ada@db.example/releases", "sslmode=require"),
        ("postgres://ada@localhost:port/releases", "port"),
        ("mysql://ada@localhost/releases", "sqlite:PATH"),
        (nothing.as_str(), "nothing"),
    ] {
        let mut list = program(&["tokens", "list", "--store", store]);
        refused(&list.arg(world.folder()).output().unwrap(), about);
    }
}
