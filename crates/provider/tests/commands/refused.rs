//! Requests that an owner or a provider refuses, in one sentence.

use super::world::{USUAL, World, json, program};
use crate::bench::{Sentences, refused};
use std::fs;

/// A provider cannot make an owner exceed the owner's bound: neither with a costly task nor with
/// another task on the same texts.
#[test]
fn an_owner_spends_no_more_than_it_has_said() {
    let mut world = World::usual();
    let server = world.insecure();
    world.token("ada");
    world.texts("ada", 20);
    let bounded = |world: &World, url: &str, bound: &str| {
        let mut command = world.owner("contribute", "ada", url);
        command.arg("--data").arg(world.bench.path("ada.tsv")).args(["--text", "sentence"]);
        command.args(["--epsilon-at-most", bound]);
        command
    };
    refused(&bounded(&world, &server.url, "4").output().unwrap(), "--epsilon-at-most 4");
    assert!(world.ledger("ada", "contribution").is_empty());
    // At a smaller δ the same noise costs more.
    let mut small = bounded(&world, &server.url, "8");
    refused(&small.args(["--delta", "1e-9"]).output().unwrap(), "--epsilon-at-most 8");
    assert_eq!(world.stored(), [("ada".into(), 0)]);
    json(&mut bounded(&world, &server.url, "8"));
    // A query for the same texts is an additional release.
    let mut query = world.owner("query", "ada", &server.url);
    query.args(["--text", "the cat", "--epsilon-at-most", "8"]);
    refused(&query.output().unwrap(), "spent before");
    assert!(world.ledger("ada", "query").is_empty());
    // So is another task at another address.
    world.make_task("other", USUAL);
    world.with_task("other");
    let other = world.insecure();
    world.token("ada");
    refused(&bounded(&world, &other.url, "8").output().unwrap(), "spent before");
    assert_eq!(world.ledger("ada", "contribution").len(), 2);
    assert_eq!(world.stored(), [("ada".into(), 0)]);
    let done = json(&mut bounded(&world, &other.url, "16"));
    let both = done["epsilon"].as_f64().unwrap();
    assert!(both > 10.0 && both < 16.0, "{both}");
    assert_eq!(world.ledger("ada", "contribution").len(), 4);
}

#[test]
fn a_token_that_is_revoked_stores_and_predicts_nothing() {
    let world = World::usual();
    let server = world.insecure();
    world.token("ada");
    world.texts("ada", 70);
    json(&mut world.contribute("ada", &server.url));
    world.train("run");
    let revoke = |owner: &str| {
        let mut command = program(&["tokens", "revoke", "--owner", owner]);
        command.arg(world.folder()).output().unwrap()
    };
    assert!(revoke("ada").status.success());
    refused(&revoke("nobody"), "no owner called nobody");
    fs::write(world.bench.path("ada.tsv"), "sentence\tlabel\nthe sun ran warm\tgood\n").unwrap();
    refused(&world.contribute("ada", &server.url).output().unwrap(), "revoked");
    assert_eq!(world.stored(), [("ada".into(), 70)]);
    let mut query = world.owner("query", "ada", &server.url);
    query.args(["--text", "the cat", "--epsilon-at-most", "20"]);
    refused(&query.output().unwrap(), "revoked");
    // Sent releases remain until they are deleted; those of other owners are untouched.
    world.token("bob");
    world.texts("bob", 30);
    json(&mut world.contribute("bob", &server.url));
    assert_eq!(world.train("both")["releases"].as_u64(), Some(100));
    let mut forget = program(&["tokens", "revoke", "--forget", "--owner", "ada"]);
    assert_eq!(json(forget.arg(world.folder()))["forgotten"].as_u64(), Some(70));
    assert_eq!(world.stored(), [("ada".into(), 0), ("bob".into(), 30)]);
    let trained = world.train("one");
    assert_eq!((trained["releases"].as_u64(), trained["owners"].as_u64()), (Some(30), Some(1)));
    // A name is not reused, because its releases belong to the first owner.
    let mut again = program(&["tokens", "new", "--owner", "ada"]);
    refused(&again.arg(world.folder()).output().unwrap(), "already");
}

#[test]
fn a_task_that_changes_is_refused() {
    let mut world = World::usual();
    let server = world.insecure();
    let address = server.address();
    world.token("ada");
    world.texts("ada", 20);
    json(&mut world.contribute("ada", &server.url));
    let url = server.url.clone();
    server.kill();
    // Another task at the same address: nothing is sent to it, not even for free.
    world.make_task("other", USUAL);
    world.with_task("other");
    let _other = world.serve(&address, &["--insecure"]);
    world.token("ada");
    world.texts("ada", 40);
    refused(&world.contribute("ada", &url).output().unwrap(), "another task");
    assert_eq!(world.stored(), [("ada".into(), 0)]);
    let mut named = world.contribute("ada", &url);
    refused(&named.args(["--task-hash", &"0".repeat(64)]).output().unwrap(), "pinned");
}

#[test]
fn a_pre_that_is_not_the_tasks_is_refused() {
    let world = World::usual();
    world.token("ada");
    world.texts("ada", 20);
    let weights = world.folder().join("pre/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let server = world.insecure();
    refused(&world.contribute("ada", &server.url).output().unwrap(), "SHA-256");
    assert!(world.ledger("ada", "contribution").is_empty());
    assert_eq!(world.stored(), [("ada".into(), 0)]);
}

/// With another secret the same texts would get fresh noise that nobody has accounted for.
#[test]
fn an_owner_without_its_secret_is_refused() {
    let world = World::usual();
    let server = world.insecure();
    world.token("ada");
    world.texts("ada", 20);
    json(&mut world.contribute("ada", &server.url));
    let secret = world.home("ada").join("secret.key");
    let kept = fs::read(&secret).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o077, 0);
    }
    fs::remove_file(&secret).unwrap();
    refused(&world.contribute("ada", &server.url).output().unwrap(), "secret.key");
    fs::write(&secret, [7; 32]).unwrap();
    refused(&world.contribute("ada", &server.url).output().unwrap(), "another secret.key");
    fs::write(&secret, &kept[..31]).unwrap();
    refused(&world.contribute("ada", &server.url).output().unwrap(), "damaged");
    fs::write(&secret, &kept).unwrap();
    json(&mut world.contribute("ada", &server.url));
    assert_eq!(world.stored(), [("ada".into(), 20)]);
    assert_eq!(world.ledger("ada", "contribution").len(), 2);
    // Without its database it would use the same coin for labels that may have changed.
    for file in ["owner.db", "owner.db-wal", "owner.db-shm"] {
        let _ = fs::remove_file(world.home("ada").join(file));
    }
    refused(&world.contribute("ada", &server.url).output().unwrap(), "owner.db");
}

#[test]
fn mistakes_are_one_sentence() {
    let sentences = Sentences::start();
    let world = World::usual();
    let server = world.insecure();
    let (folder, url) = (world.folder(), server.url.clone());
    world.token("ada");
    world.texts("ada", 20);
    let provider = |arguments: &[&str]| {
        let mut command = program(&[]);
        command.args(arguments).arg(&folder).output().unwrap()
    };
    refused(&provider(&["tokens", "new", "--owner", "a b"]), "name has");
    refused(&provider(&["serve", "--insecure", "--listen", "0.0.0.0:0"]), "--insecure works only");
    refused(&provider(&["serve", "--admin", "0.0.0.0:0"]), "--admin works only");
    refused(&provider(&["serve", "--store", "redis:x"]), "--store must be");
    refused(&provider(&["train", "--out", "nowhere"]), "fewer than two releases");
    let mut nothing = program(&["train", "--out", "nowhere"]);
    refused(&nothing.arg(world.bench.path("model")).output().unwrap(), "not the folder of a task");
    let contribute = |more: [&str; 2]| world.contribute("ada", &url).args(more).output().unwrap();
    refused(&contribute(["--text", "words"]), "no column");
    refused(&contribute(["--label", "none"]), "none");
    refused(&contribute(["--delta", "0"]), "--delta");
    let far = world.contribute("ada", "http://provider.example:80").output().unwrap();
    refused(&far, "on this machine");
    refused(&world.contribute("ada", "provider").output().unwrap(), "--task must be an address");
    fs::write(world.bench.path("ada.token"), "two words").unwrap();
    refused(&world.contribute("ada", &url).output().unwrap(), "one token");
    for (key, value, about) in [
        ("privacy.method", "\"dp-sgd\"", "dp-forward, ew-ft and mvg"),
        ("data.train", "\"rows.tsv\"", "data.train is for run files"),
        ("privacy.mode", "\"paper\"", "proved"),
        ("model.tuning", "\"bitfit\"", "model.tuning"),
        ("privacy.local.release", "\"fresh\"", "release"),
    ] {
        let file = world.bench.path("wrong.toml");
        let text = fs::read_to_string(world.bench.path("task.toml")).unwrap();
        let mut table: toml::Table = toml::from_str(&text).unwrap();
        let mut keys: Vec<&str> = key.split('.').collect();
        let last = keys.pop().unwrap();
        let mut at = &mut table;
        for key in keys {
            at = at.get_mut(key).unwrap().as_table_mut().unwrap();
        }
        let value: toml::Table = toml::from_str(&format!("x = {value}")).unwrap();
        at.insert(last.into(), value["x"].clone());
        fs::write(&file, toml::to_string(&table).unwrap()).unwrap();
        let mut init = program(&["init"]);
        let out = world.bench.path("wrong");
        refused(&init.arg(file).arg("--out").arg(out).output().unwrap(), about);
    }
    let mut again = program(&["init"]);
    again.arg(world.bench.path("task.toml")).arg("--out").arg(&folder);
    refused(&again.output().unwrap(), "already contains a task");
    sentences.assert("provider");
}
