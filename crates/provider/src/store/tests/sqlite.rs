//! The store in one SQLite file.

use super::TASK;
use super::promises::{self, Open, new_of, sent};
use crate::frame::Release;
use crate::store::{Location, Sqlite, Store, TOKEN, new_token};

fn keeps(promise: fn(Open)) {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::Sqlite(folder.path().join("store.db"));
    promise(&|task| location.open(task));
}

#[test]
fn what_is_sent_again_counts_once_and_survives_the_process() {
    keeps(promises::what_is_sent_again_counts_once_and_survives_the_process);
}

#[test]
fn another_release_under_an_id_is_refused() {
    keeps(promises::another_release_under_an_id_is_refused);
}

#[test]
fn revoked_owners_and_limits_store_nothing() {
    keeps(promises::revoked_owners_and_limits_store_nothing);
}

#[test]
fn contributions_that_wait_are_stored_together() {
    keeps(promises::contributions_that_wait_are_stored_together);
}

#[test]
fn a_store_of_another_task_is_refused() {
    keeps(promises::a_store_of_another_task_is_refused);
}

#[test]
fn two_processes_agree() {
    keeps(promises::two_processes_agree);
}

#[test]
fn forgotten_releases_are_gone() {
    keeps(promises::forgotten_releases_are_gone);
}

fn open(folder: &tempfile::TempDir) -> Sqlite {
    Sqlite::open(&folder.path().join("store.db"), &TASK).unwrap()
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
fn what_is_not_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.db");
    std::fs::write(&other, "text\n".repeat(1000)).unwrap();
    let said = Sqlite::open(&other, &TASK).unwrap_err().to_string();
    assert!(said.contains("not a store"), "{said}");
    // A file without write permission.
    let _open = open(&folder);
    let read_only = format!("file:{}?mode=ro", folder.path().join("store.db").display());
    let error = Sqlite::open(read_only.as_ref(), &TASK).unwrap_err();
    assert!(error.to_string().contains("readonly database"), "{error}");
}

/// A full disk: nothing is acknowledged, nothing is partially stored, and once there is space the
/// same frame is stored.
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
