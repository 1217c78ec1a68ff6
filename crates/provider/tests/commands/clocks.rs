//! The clocks of an owner and of its provider differ by decades. Skipped unless libfaketime, which
//! shifts them, is installed.

use super::world::{World, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn libfaketime() -> Option<PathBuf> {
    let places = ["x86_64-linux-gnu/faketime", "aarch64-linux-gnu/faketime", "faketime"];
    let place = |place| Path::new("/usr/lib").join(place).join("libfaketimeMT.so.1");
    places.into_iter().map(place).find(|path| path.is_file())
}

/// A command with a shifted clock.
fn at(command: &mut Command, library: &Path, shift: &str) {
    command.env("LD_PRELOAD", library).env("FAKETIME", shift);
    // Durations are measured as usual.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

#[test]
fn nothing_depends_on_the_owners_clock() {
    let Some(library) = libfaketime() else {
        eprintln!("skipped: libfaketime is not installed");
        return;
    };
    let world = World::usual();
    // A provider whose clock is set to a long past year creates the certificate.
    let server = world.serve_with("127.0.0.1:0", &[], |serve| at(serve, &library, "-30y"));
    let fingerprint = server.fingerprint.clone().unwrap();
    for (owner, shift) in [("ada", "-20y"), ("bob", "+0"), ("eve", "+40y")] {
        world.token(owner);
        world.texts(owner, 70);
        let mut contribute = world.contribute(owner, &server.url);
        at(&mut contribute, &library, shift);
        let done = json(contribute.args(["--fingerprint", &fingerprint]));
        assert_eq!((done["new"].as_u64(), done["receipts"].as_u64()), (Some(70), Some(2)));
        // Resent at another time, everything is recognized.
        let mut again = world.contribute(owner, &server.url);
        at(&mut again, &library, "+1y");
        let again = json(&mut again);
        assert_eq!((again["new"].as_u64(), again["frames"].as_u64()), (Some(0), Some(0)));
    }
    assert_eq!(world.stored().iter().map(|(_, count)| count).sum::<u64>(), 210);
    // Receipts carry the provider's time.
    let book = rusqlite::Connection::open(world.home("eve").join("owner.db")).unwrap();
    let receipt: String = book
        .query_row("SELECT receipt FROM frames WHERE receipt IS NOT NULL", [], |row| row.get(0))
        .unwrap();
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(receipt["at"].as_u64().unwrap() < now - 29 * 365 * 24 * 3600, "{receipt}");
}
