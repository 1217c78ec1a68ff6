//! What the provider keeps: owners, their tokens' hashes, and releases.
//!
//! A contribution that was acknowledged is on disk, and counts once however often it is sent.

mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;
mod writer;

pub use self::postgres::{Address, Postgres};
pub use self::sqlite::Sqlite;
pub use writer::{Writer, WriterError};

use crate::error::{Error, Result};
use crate::frame::Release;
use crate::hex::{Hash, hash, hex, random};
use std::path::PathBuf;

/// An owner as the provider knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: i64,
    pub name: String,
    /// Seconds since 1970.
    pub since: u64,
    pub revoked: bool,
    /// The most releases of an epoch.
    pub limit: u64,
    /// Stored releases, of all epochs.
    pub releases: u64,
}

/// Releases of one frame, to be stored.
#[derive(Clone, Debug)]
pub struct Contribution {
    /// SHA-256 of the token that it came with.
    pub token: Hash,
    pub epoch: u32,
    pub releases: Vec<Release>,
}

/// What became of a contribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// All releases are on disk; this many are new.
    Yes { owner: Owner, new: u64 },
    /// The token is unknown or was revoked.
    NotAllowed,
    /// The owner, or the whole store, would have more releases than its limit.
    Full,
    /// A release is another one than was stored under its id: nothing was stored.
    Conflict,
}

/// Numbers of stored releases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Owners whose tokens are not revoked.
    pub owners: u64,
    /// By epoch and label: how many.
    pub releases: Vec<(u32, u32, u64)>,
    /// Releases of the first epoch by hour, as hours since 1970.
    pub by_hour: Vec<(u64, u64)>,
}

impl Counts {
    /// Releases of an epoch.
    pub fn of_epoch(&self, epoch: u32) -> u64 {
        self.releases.iter().filter(|(of, ..)| *of == epoch).map(|(.., count)| count).sum()
    }
}

/// Where releases are kept. Every method is one transaction.
pub trait Store: Send {
    /// Adds an owner; refuses a name that is in use.
    fn add_owner(&mut self, name: &str, token: &Hash, limit: u64) -> Result<()>;

    /// All owners, in the order in which they were added.
    fn owners(&mut self) -> Result<Vec<Owner>>;

    /// Revokes the token of an owner; whether there is one of this name.
    fn revoke(&mut self, name: &str) -> Result<bool>;

    /// Revokes the token of an owner and deletes the owner's releases; how many there were, or none
    /// if there is no owner of this name.
    fn forget(&mut self, name: &str) -> Result<Option<u64>>;

    /// The owner of a token, unless it is revoked.
    fn owner_of(&mut self, token: &Hash) -> Result<Option<Owner>>;

    /// Stores contributions, all of them in one transaction that is on disk when this returns.
    fn store(&mut self, contributions: &[Contribution], most: u64) -> Result<Vec<Stored>>;

    /// Numbers of stored releases.
    fn counts(&mut self) -> Result<Counts>;

    /// Releases of an epoch in chunks: calls `each` with numbers, one release after another, and
    /// labels.
    fn read(
        &mut self,
        epoch: u32,
        chunk: usize,
        each: &mut dyn FnMut(Vec<f32>, Vec<u32>) -> Result<()>,
    ) -> Result<()>;
}

/// Where a store is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Location {
    /// A file, for one machine.
    Sqlite(PathBuf),
    /// A database server, for several provider processes.
    Postgres(Box<Address>),
}

impl Location {
    /// Reads `sqlite:PATH` or `postgres://user@host/database`.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(Box::new(Address::parse(text)?)));
        }
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            _ => Err(Error::mistake(
                "--store must be sqlite:PATH, such as sqlite:task/store.db, or \
                 postgres://user@host/database",
            )),
        }
    }

    /// Opens the store of a task, and makes it if need be. A store of another task is refused.
    pub fn open(&self, task: &Hash) -> Result<Box<dyn Store>> {
        match self {
            Self::Sqlite(path) => Ok(Box::new(Sqlite::open(path, task)?)),
            Self::Postgres(address) => Ok(Box::new(Postgres::open(address, task)?)),
        }
    }
}

fn name_in_use(name: &str) -> Error {
    Error::mistake(format!(
        "an owner called {name} already exists, possibly revoked; choose another name"
    ))
}

/// Makes a token of 256 bits for an owner. It is returned once; the store has its hash.
pub fn new_token(store: &mut dyn Store, name: &str, limit: u64) -> Result<String> {
    let plain = |c: char| c.is_alphanumeric() || "._-@".contains(c);
    if name.is_empty() || name.chars().count() > 100 || !name.chars().all(plain) {
        return Err(Error::mistake(
            "an owner's name has 1 to 100 letters, digits or any of . _ - @",
        ));
    }
    let token = format!("{TOKEN}{}", hex(&random::<32>()?));
    store.add_owner(name, &token_hash(&token), limit)?;
    Ok(token)
}

/// What tokens begin with, so that one that leaks is found by those who look for leaks.
const TOKEN: &str = "undertone-";

/// What is kept of a token. It has 256 random bits, so that a plain hash cannot be searched.
pub fn token_hash(token: &str) -> Hash {
    hash(token.as_bytes())
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
