//! Promises of every kind of store.

use super::TASK;
use crate::error::Result;
use crate::frame::Release;
use crate::hex::Hash;
use crate::store::{Contribution, Store, Stored, Writer, new_token, token_hash};

/// Opens a store of a task, as another process would.
pub type Open<'a> = &'a dyn Fn(&Hash) -> Result<Box<dyn Store>>;

fn open(place: Open) -> Box<dyn Store> {
    place(&TASK).unwrap()
}

pub fn releases(ids: std::ops::Range<u8>, add: f32) -> Vec<Release> {
    let release = |id: u8| Release {
        id: [id; 16],
        label: u32::from(id % 2),
        numbers: vec![f32::from(id) + add, -1.5],
    };
    ids.map(release).collect()
}

pub fn sent(token: &str, epoch: u32, releases: Vec<Release>) -> Contribution {
    Contribution { token: token_hash(token), epoch, releases }
}

pub fn new_of(stored: &Stored) -> Option<u64> {
    if let Stored::Yes { new, .. } = stored { Some(*new) } else { None }
}

pub fn all(store: &mut dyn Store, epoch: u32) -> Vec<(u32, Vec<f32>)> {
    let mut releases = Vec::new();
    store
        .read(epoch, 3, &mut |numbers, labels| {
            assert!(labels.len() <= 3 && numbers.len() == 2 * labels.len());
            releases.extend(labels.into_iter().zip(numbers.chunks(2).map(<[f32]>::to_vec)));
            Ok(())
        })
        .unwrap();
    releases
}

pub fn what_is_sent_again_counts_once_and_survives_the_process(place: Open) {
    let mut store = open(place);
    let (ada, bob) = (
        new_token(store.as_mut(), "ada", 100).unwrap(),
        new_token(store.as_mut(), "bob", 100).unwrap(),
    );
    assert!(ada.len() > 64 && ada != bob);
    let first = sent(&ada, 0, releases(0..5, 0.0));
    let more = sent(&ada, 0, releases(3..8, 0.0));
    let of_bob = sent(&bob, 0, releases(0..2, 9.0));
    let stored = store.store(&[first.clone(), more, first.clone(), of_bob], 1000).unwrap();
    assert_eq!(stored.iter().map(new_of).collect::<Vec<_>>(), [5, 3, 0, 2].map(Some));
    drop(store);
    let mut store = open(place);
    assert_eq!(store.store(&[first], 1000).unwrap().iter().map(new_of).next(), Some(Some(0)));
    assert_eq!(all(store.as_mut(), 0).len(), 10);
    assert!(all(store.as_mut(), 1).is_empty());
    let counts = store.counts().unwrap();
    assert_eq!((counts.owners, counts.releases), (2, vec![(0, 0, 5), (0, 1, 5)]));
    let owners: Vec<(String, u64)> =
        store.owners().unwrap().into_iter().map(|owner| (owner.name, owner.releases)).collect();
    assert_eq!(owners, [("ada".to_owned(), 8), ("bob".to_owned(), 2)]);
}

/// A second release under one id would be one that its owner has not accounted for: nothing of its
/// frame is stored, and what was stored remains. Other frames of the same transaction are stored.
pub fn another_release_under_an_id_is_refused(place: Open) {
    let mut store = open(place);
    let token = new_token(store.as_mut(), "ada", 100).unwrap();
    store.store(&[sent(&token, 0, releases(0..3, 0.0))], 1000).unwrap();
    let forged = sent(&token, 0, releases(2..6, 0.25));
    let good = sent(&token, 0, releases(6..8, 0.0));
    let stored = store.store(&[forged, good], 1000).unwrap();
    assert_eq!((&stored[0], new_of(&stored[1])), (&Stored::Conflict, Some(2)));
    let all_stored = all(store.as_mut(), 0);
    assert_eq!(all_stored.len(), 5);
    assert!(all_stored.contains(&(0, vec![2.0, -1.5])));
    assert_eq!(store.counts().unwrap().of_epoch(0), 5);
    // In another epoch it is a different release.
    let other = sent(&token, 1, releases(2..6, 0.25));
    assert_eq!(new_of(&store.store(&[other], 1000).unwrap()[0]), Some(4));
}

pub fn revoked_owners_and_limits_store_nothing(place: Open) {
    let mut store = open(place);
    let ada = new_token(store.as_mut(), "ada", 4).unwrap();
    let bob = new_token(store.as_mut(), "bob", 100).unwrap();
    let five = |token: &str| sent(token, 0, releases(0..5, 0.0));
    assert_eq!(store.store(&[five(&ada)], 1000).unwrap(), [Stored::Full]);
    assert_eq!(store.store(&[five(&bob)], 4).unwrap(), [Stored::Full]);
    assert_eq!(store.counts().unwrap().of_epoch(0), 0);
    let four = sent(&ada, 0, releases(0..4, 0.0));
    assert_eq!(new_of(&store.store(std::slice::from_ref(&four), 4).unwrap()[0]), Some(4));
    // Stored releases can be resent at the limit.
    assert_eq!(new_of(&store.store(std::slice::from_ref(&four), 4).unwrap()[0]), Some(0));
    assert!(store.revoke("ada").unwrap() && !store.revoke("eve").unwrap());
    let stored = store.store(&[four, five("unknown")], 1000).unwrap();
    assert_eq!(stored, [Stored::NotAllowed, Stored::NotAllowed]);
    assert_eq!(store.owner_of(&token_hash(&ada)).unwrap(), None);
    assert!(new_token(store.as_mut(), "ada", 4).is_err(), "a name is used once");
}

/// Many callers wait for one thread; each gets its own result once everything is stored.
pub fn contributions_that_wait_are_stored_together(place: Open) {
    let mut store = open(place);
    let token = new_token(store.as_mut(), "ada", 1_000_000).unwrap();
    let writer = Writer::start(store, 1000, 1_000_000);
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
    assert_eq!(all(open(place).as_mut(), 0).len(), 200);
}

pub fn a_store_of_another_task_is_refused(place: Open) {
    open(place);
    let said = place(&[4; 32]).map(drop).unwrap_err().to_string();
    assert!(said.contains("another task"), "{said}");
    open(place);
}

/// Two processes store the same frames at the same time, in opposite orders: each release counts
/// once, limits apply to both together, and a revocation by one also affects the other.
pub fn two_processes_agree(place: Open) {
    let (mut first, mut second) = (open(place), open(place));
    let ada = new_token(first.as_mut(), "ada", 1000).unwrap();
    let bob = new_token(second.as_mut(), "bob", 3).unwrap();
    let said = new_token(second.as_mut(), "ada", 4).unwrap_err().to_string();
    assert!(said.contains("already"), "{said}");
    let frames: Vec<Contribution> =
        (0..20).map(|i| sent(&ada, 0, releases(i * 5..i * 5 + 10, 0.0))).collect();
    let backwards: Vec<Contribution> = frames.iter().rev().cloned().collect();
    let new: Vec<u64> = std::thread::scope(|scope| {
        let storing = [(&mut first, &frames), (&mut second, &backwards)].map(|(store, frames)| {
            scope.spawn(move || {
                let stored = frames.chunks(3).flat_map(|few| store.store(few, 1_000_000).unwrap());
                stored.map(|stored| new_of(&stored).unwrap()).sum::<u64>()
            })
        });
        storing.map(|thread| thread.join().unwrap()).into()
    });
    assert_eq!(new.iter().sum::<u64>(), 105);
    assert_eq!(all(first.as_mut(), 0).len(), 105);
    assert_eq!(second.counts().unwrap().of_epoch(0), 105);
    assert_eq!(second.owners().unwrap()[0].releases, 105);
    // A limit of the owner, and one for all owners.
    let of_bob = |ids| sent(&bob, 0, releases(ids, 0.0));
    assert_eq!(new_of(&first.store(&[of_bob(0..2)], 1000).unwrap()[0]), Some(2));
    assert_eq!(second.store(&[of_bob(2..4)], 1000).unwrap(), [Stored::Full]);
    assert_eq!(second.store(&[of_bob(2..3)], 107).unwrap(), [Stored::Full]);
    assert_eq!(new_of(&second.store(&[of_bob(2..3)], 108).unwrap()[0]), Some(1));
    assert!(second.revoke("bob").unwrap());
    assert_eq!(first.store(&[of_bob(0..2)], 1000).unwrap(), [Stored::NotAllowed]);
    assert_eq!(first.owner_of(&token_hash(&bob)).unwrap(), None);
    assert_eq!(first.counts().unwrap().owners, 1);
}

/// A deleted owner's releases are neither used for training nor counted toward limits; those of
/// other owners are unchanged.
pub fn forgotten_releases_are_gone(place: Open) {
    let (mut store, mut other) = (open(place), open(place));
    let ada = new_token(store.as_mut(), "ada", 100).unwrap();
    let bob = new_token(store.as_mut(), "bob", 100).unwrap();
    let frames = [
        sent(&ada, 0, releases(0..5, 0.0)),
        sent(&ada, 1, releases(0..3, 0.0)),
        sent(&bob, 0, releases(0..2, 9.0)),
    ];
    store.store(&frames, 1000).unwrap();
    assert_eq!(store.forget("eve").unwrap(), None);
    assert_eq!(store.forget("ada").unwrap(), Some(8));
    assert_eq!(all(other.as_mut(), 0), [(0, vec![9.0, -1.5]), (1, vec![10.0, -1.5])]);
    assert!(all(other.as_mut(), 1).is_empty());
    let counts = other.counts().unwrap();
    assert_eq!((counts.owners, counts.releases), (1, vec![(0, 0, 1), (0, 1, 1)]));
    assert_eq!(counts.by_hour.iter().map(|(_, count)| count).sum::<u64>(), 2);
    let owners: Vec<(bool, u64)> =
        other.owners().unwrap().iter().map(|owner| (owner.revoked, owner.releases)).collect();
    assert_eq!(owners, [(true, 0), (false, 2)]);
    // Deleted releases cannot be sent again, and make room for others.
    assert_eq!(other.store(&frames[..1], 1000).unwrap(), [Stored::NotAllowed]);
    let more = sent(&bob, 0, releases(2..4, 0.0));
    assert_eq!(new_of(&other.store(&[more], 4).unwrap()[0]), Some(2));
    // An owner who has already been revoked can be deleted too.
    assert!(store.revoke("bob").unwrap());
    assert_eq!((store.forget("bob").unwrap(), store.forget("bob").unwrap()), (Some(4), Some(0)));
    assert_eq!(store.counts().unwrap().of_epoch(0), 0);
}
