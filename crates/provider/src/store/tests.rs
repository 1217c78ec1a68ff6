//! What a store promises.

use super::*;
use crate::frame::Release;

const TASK: Hash = [3; 32];

fn open(folder: &tempfile::TempDir) -> Sqlite {
    Sqlite::open(&folder.path().join("store.db"), &TASK).unwrap()
}

fn releases(ids: std::ops::Range<u8>, add: f32) -> Vec<Release> {
    let one = |id: u8| Release {
        id: [id; 16],
        label: u32::from(id % 2),
        numbers: vec![f32::from(id) + add, -1.5],
    };
    ids.map(one).collect()
}

fn sent(token: &str, epoch: u32, releases: Vec<Release>) -> Contribution {
    Contribution { token: token_hash(token), epoch, releases }
}

fn new_of(stored: &Stored) -> Option<u64> {
    if let Stored::Yes { new, .. } = stored { Some(*new) } else { None }
}

fn all(store: &mut dyn Store, epoch: u32) -> Vec<(u32, Vec<f32>)> {
    let mut found = Vec::new();
    store
        .read(epoch, 3, &mut |numbers, labels| {
            assert!(labels.len() <= 3 && numbers.len() == 2 * labels.len());
            found.extend(labels.into_iter().zip(numbers.chunks(2).map(<[f32]>::to_vec)));
            Ok(())
        })
        .unwrap();
    found
}

#[test]
fn what_is_sent_again_counts_once_and_survives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let (ada, bob) =
        (new_token(&mut store, "ada", 100).unwrap(), new_token(&mut store, "bob", 100).unwrap());
    assert!(ada.len() > 64 && ada != bob);
    let first = sent(&ada, 0, releases(0..5, 0.0));
    let more = sent(&ada, 0, releases(3..8, 0.0));
    let of_bob = sent(&bob, 0, releases(0..2, 9.0));
    let stored = store.store(&[first.clone(), more, first.clone(), of_bob], 1000).unwrap();
    assert_eq!(stored.iter().map(new_of).collect::<Vec<_>>(), [5, 3, 0, 2].map(Some));
    drop(store);
    let mut store = open(&folder);
    assert_eq!(store.store(&[first], 1000).unwrap().iter().map(new_of).next(), Some(Some(0)));
    assert_eq!(all(&mut store, 0).len(), 10);
    assert!(all(&mut store, 1).is_empty());
    let counts = store.counts().unwrap();
    assert_eq!((counts.owners, counts.releases), (2, vec![(0, 0, 5), (0, 1, 5)]));
    let owners: Vec<(String, u64)> =
        store.owners().unwrap().into_iter().map(|owner| (owner.name, owner.releases)).collect();
    assert_eq!(owners, [("ada".to_owned(), 8), ("bob".to_owned(), 2)]);
}

/// A second release under one id would be one that its owner has not paid for: nothing of the
/// frame is stored, and what was stored stays. Others of the same transaction are stored.
#[test]
fn another_release_under_an_id_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let token = new_token(&mut store, "ada", 100).unwrap();
    store.store(&[sent(&token, 0, releases(0..3, 0.0))], 1000).unwrap();
    let forged = sent(&token, 0, releases(2..6, 0.25));
    let good = sent(&token, 0, releases(6..8, 0.0));
    let stored = store.store(&[forged, good], 1000).unwrap();
    assert_eq!((&stored[0], new_of(&stored[1])), (&Stored::Conflict, Some(2)));
    let found = all(&mut store, 0);
    assert_eq!(found.len(), 5);
    assert!(found.contains(&(0, vec![2.0, -1.5])));
    assert_eq!(store.counts().unwrap().of_epoch(0), 5);
    // In another epoch it is another release.
    let other = sent(&token, 1, releases(2..6, 0.25));
    assert_eq!(new_of(&store.store(&[other], 1000).unwrap()[0]), Some(4));
}

#[test]
fn revoked_owners_and_limits_store_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let ada = new_token(&mut store, "ada", 4).unwrap();
    let bob = new_token(&mut store, "bob", 100).unwrap();
    let five = |token: &str| sent(token, 0, releases(0..5, 0.0));
    assert_eq!(store.store(&[five(&ada)], 1000).unwrap(), [Stored::Full]);
    assert_eq!(store.store(&[five(&bob)], 4).unwrap(), [Stored::Full]);
    assert_eq!(store.counts().unwrap().of_epoch(0), 0);
    let four = sent(&ada, 0, releases(0..4, 0.0));
    assert_eq!(new_of(&store.store(std::slice::from_ref(&four), 4).unwrap()[0]), Some(4));
    // What is stored can be sent again at the limit.
    assert_eq!(new_of(&store.store(std::slice::from_ref(&four), 4).unwrap()[0]), Some(0));
    assert!(store.revoke("ada").unwrap() && !store.revoke("eve").unwrap());
    let stored = store.store(&[four, five("unknown")], 1000).unwrap();
    assert_eq!(stored, [Stored::NotAllowed, Stored::NotAllowed]);
    assert_eq!(store.owner_of(&token_hash(&ada)).unwrap(), None);
    assert!(new_token(&mut store, "ada", 4).is_err(), "a name is used once");
}

#[test]
fn tokens_are_not_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let token = new_token(&mut store, "ada", 4).unwrap();
    drop(store);
    for file in folder.path().read_dir().unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let secret = token.strip_prefix(TOKEN).unwrap().as_bytes();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
    }
}

#[test]
fn a_store_of_another_task_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(&folder);
    let path = folder.path().join("store.db");
    let said = Sqlite::open(&path, &[4; 32]).unwrap_err().to_string();
    assert!(said.contains("another task"), "{said}");
    let other = folder.path().join("other.db");
    std::fs::write(&other, "text\n".repeat(1000)).unwrap();
    let said = Sqlite::open(&other, &TASK).unwrap_err().to_string();
    assert!(said.contains("not a store"), "{said}");
}

/// A disk that is full: nothing is acknowledged, nothing is half stored, and when there is room
/// again the same frame is stored.
#[test]
fn a_full_disk_acknowledges_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let token = new_token(&mut store, "ada", 1_000_000).unwrap();
    let wide = |id: u8| Release { id: [id; 16], label: 0, numbers: vec![1.0; 4000] };
    let frame = sent(&token, 0, (0..64).map(wide).collect());
    store.most_pages(20);
    assert!(store.store(std::slice::from_ref(&frame), 1000).is_err());
    assert_eq!(store.counts().unwrap().of_epoch(0), 0);
    store.most_pages(1_000_000);
    assert_eq!(new_of(&store.store(&[frame], 1000).unwrap()[0]), Some(64));
}

/// Many wait for one thread; each gets its own answer when all of it is stored.
#[test]
fn contributions_that_wait_are_stored_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let token = new_token(&mut store, "ada", 1_000_000).unwrap();
    let writer = Writer::start(Box::new(store), 1000, 1_000_000);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut waiting = Vec::new();
        for id in 0..200 {
            waiting.push(Box::pin(writer.store(sent(&token, 0, releases(id..id + 1, 0.0)))));
        }
        for stored in waiting {
            assert_eq!(new_of(&stored.await.unwrap()), Some(1));
        }
        let unknown = writer.store(sent("unknown", 0, releases(0..1, 0.0))).await;
        assert_eq!(unknown, Ok(Stored::NotAllowed));
    });
    drop(writer);
    assert_eq!(all(&mut open(&folder), 0).len(), 200);
}
