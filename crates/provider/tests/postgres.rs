//! The store in PostgreSQL: a server of its own, in a temporary folder.
//!
//!     cargo test --workspace --features undertone-provider/postgres --test postgres
//!
//! Skipped where PostgreSQL is not installed.
#![cfg(feature = "postgres")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use undertone_provider::Release;
use undertone_provider::store::{Contribution, Location, Store, Stored, new_token, token_hash};

const TASK: [u8; 32] = [3; 32];

/// A database server.
struct Database {
    folder: tempfile::TempDir,
    programs: PathBuf,
    child: Option<Child>,
}

/// Where PostgreSQL's programs are.
fn programs() -> Option<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.sort();
    found.retain(|folder| folder.join("initdb").is_file());
    found.pop()
}

/// PostgreSQL does not run as root.
fn as_somebody(program: &Path) -> Command {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

impl Database {
    fn start() -> Option<Self> {
        let programs = programs()?;
        let folder = tempfile::tempdir().unwrap();
        let _ = Command::new("chown").arg("postgres").arg(folder.path()).output();
        let made = as_somebody(&programs.join("initdb"))
            .args(["-A", "trust", "-U", "undertone", "-D"])
            .arg(folder.path().join("data"))
            .stdout(Stdio::null())
            .status();
        made.ok()?.success().then_some(())?;
        let mut database = Self { folder, programs, child: None };
        database.run();
        Some(database)
    }

    fn run(&mut self) {
        let mut command = as_somebody(&self.programs.join("postgres"));
        command.arg("-D").arg(self.folder.path().join("data"));
        command.args(["-c", "listen_addresses=", "-k"]).arg(self.folder.path());
        self.child = Some(command.stderr(Stdio::null()).spawn().unwrap());
        let begun = Instant::now();
        while self.location().open(&TASK).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "PostgreSQL does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// `kill -9` of the server and all of its processes.
    fn kill(&mut self) {
        let id = self.folder.path().join("data/postmaster.pid");
        let id = std::fs::read_to_string(id).unwrap();
        let id = id.lines().next().unwrap();
        Command::new("kill").args(["-9", id]).status().unwrap();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        // The backends see that their parent is gone.
        std::thread::sleep(Duration::from_millis(500));
    }

    fn location(&self) -> Location {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        Location::parse(&format!("postgres://undertone@{folder}/postgres")).unwrap()
    }

    fn store(&self) -> Box<dyn Store> {
        self.location().open(&TASK).unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn releases(ids: std::ops::Range<u8>, add: f32) -> Vec<Release> {
    let numbers = |id: u8| vec![f32::from(id) + add, -1.5];
    ids.map(|id| Release { id: [id; 16], label: u32::from(id % 2), numbers: numbers(id) }).collect()
}

fn sent(token: &str, epoch: u32, releases: Vec<Release>) -> Contribution {
    Contribution { token: token_hash(token), epoch, releases }
}

fn new_of(stored: &[Stored]) -> Vec<Option<u64>> {
    let new =
        |stored: &Stored| if let Stored::Yes { new, .. } = stored { Some(*new) } else { None };
    stored.iter().map(new).collect()
}

fn count(store: &mut dyn Store, epoch: u32) -> usize {
    let mut count = 0;
    let read = store.read(epoch, 7, &mut |numbers, labels| {
        assert!(numbers.len() == 2 * labels.len() && labels.len() <= 7);
        count += labels.len();
        Ok(())
    });
    read.unwrap();
    count
}

/// What SQLite promises, with two provider processes' connections on one database, one of which is
/// killed under them.
#[test]
fn two_providers_share_one_store() {
    let Some(mut database) = Database::start() else {
        eprintln!("skipped: PostgreSQL is not installed");
        return;
    };
    let (mut one, mut other) = (database.store(), database.store());
    assert!(database.location().open(&[4; 32]).is_err(), "a store of another task is refused");
    let ada = new_token(one.as_mut(), "ada", 1000).unwrap();
    let bob = new_token(other.as_mut(), "bob", 3).unwrap();
    assert!(new_token(other.as_mut(), "ada", 4).is_err());
    // Both store the same frames at the same time: each release counts once.
    let frames: Vec<Contribution> =
        (0..20).map(|i| sent(&ada, 0, releases(i * 5..i * 5 + 10, 0.0))).collect();
    std::thread::scope(|scope| {
        for store in [&mut one, &mut other] {
            let frames = &frames;
            scope.spawn(move || {
                for frames in frames.chunks(3) {
                    let stored = store.store(frames, 1_000_000).unwrap();
                    assert!(new_of(&stored).iter().all(Option::is_some));
                }
            });
        }
    });
    assert_eq!(count(one.as_mut(), 0), 105);
    assert_eq!(other.counts().unwrap().of_epoch(0), 105);
    assert_eq!(other.owners().unwrap()[0].releases, 105);
    // Another release under an id, too many, and a revoked token.
    let forged = sent(&ada, 0, releases(4..6, 0.5));
    let many = sent(&bob, 0, releases(0..4, 0.0));
    let good = sent(&bob, 0, releases(0..3, 0.0));
    let stored = one.store(&[forged, many, good.clone()], 1_000_000).unwrap();
    assert_eq!(stored[..2], [Stored::Conflict, Stored::Full]);
    assert_eq!(new_of(&stored)[2], Some(3));
    assert!(other.revoke("bob").unwrap());
    assert_eq!(one.store(&[good], 1_000_000).unwrap(), [Stored::NotAllowed]);
    assert_eq!(one.owner_of(&token_hash(&bob)).unwrap(), None);
    // The database is away: nothing is acknowledged. It comes back: what was, is there.
    database.kill();
    let more = sent(&ada, 1, releases(0..4, 0.0));
    assert!(one.store(std::slice::from_ref(&more), 1_000_000).is_err());
    database.run();
    assert_eq!(new_of(&one.store(&[more], 1_000_000).unwrap()), [Some(4)]);
    assert_eq!((count(one.as_mut(), 0), count(one.as_mut(), 1)), (108, 4));
}
