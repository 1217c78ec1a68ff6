//! The provider's store: owners, hashes of their tokens, and releases.
//!
//! An acknowledged contribution is on disk, and counts once however often it is sent.

mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;
mod writer;

pub use self::postgres::Postgres;
pub use self::sqlite::Sqlite;
pub use writer::{Writer, WriterError};

use crate::error::{Error, Result};
use crate::frame::Release;
use crate::hex::{Hash, hash, hex, random};
use std::path::PathBuf;
use undertone_postgres::Address;

/// An owner's record at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: i64,
    pub name: String,
    /// Seconds since 1970.
    pub since: u64,
    pub revoked: bool,
    /// Maximum number of releases per epoch.
    pub limit: u64,
    /// Number of stored releases over all epochs.
    pub releases: u64,
}

/// Releases of one frame, to be stored.
#[derive(Clone, Debug)]
pub struct Contribution {
    /// SHA-256 of the token sent with it.
    pub token: Hash,
    pub epoch: u32,
    pub releases: Vec<Release>,
}

/// The outcome of a contribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// All releases are on disk; `new` of them are new.
    Yes { owner: Owner, new: u64 },
    /// The token is unknown or was revoked.
    NotAllowed,
    /// The owner or the whole store would exceed its maximum number of releases.
    Full,
    /// A release differs from the one stored under its id: nothing was stored.
    Conflict,
}

/// Counts of stored releases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Owners whose tokens are not revoked.
    pub owners: u64,
    /// (epoch, label, count).
    pub releases: Vec<(u32, u32, u64)>,
    /// (hour, count) for releases of the first epoch, as hours since 1970.
    pub by_hour: Vec<(u64, u64)>,
}

impl Counts {
    /// Number of releases in an epoch.
    pub fn of_epoch(&self, epoch: u32) -> u64 {
        self.releases.iter().filter(|(of, ..)| *of == epoch).map(|(.., count)| count).sum()
    }
}

/// A store of releases. Every method is one transaction.
pub trait Store: Send {
    /// Adds an owner; rejects a name that is in use.
    fn add_owner(&mut self, name: &str, token: &Hash, limit: u64) -> Result<()>;

    /// All owners, in the order of their creation.
    fn owners(&mut self) -> Result<Vec<Owner>>;

    /// Revokes the token of an owner. Returns whether an owner of this name exists.
    fn revoke(&mut self, name: &str) -> Result<bool>;

    /// Revokes the token of an owner and deletes the owner's releases. Returns their number, or
    /// `None` if no owner of this name exists.
    fn forget(&mut self, name: &str) -> Result<Option<u64>>;

    /// The owner of a token, unless it is revoked.
    fn owner_of(&mut self, token: &Hash) -> Result<Option<Owner>>;

    /// Stores contributions in one transaction, which is on disk when this returns.
    fn store(&mut self, contributions: &[Contribution], most: u64) -> Result<Vec<Stored>>;

    /// Counts of stored releases.
    fn counts(&mut self) -> Result<Counts>;

    /// Reads the releases of an epoch in chunks: calls `each` with the concatenated values of the
    /// releases and their labels.
    fn read(
        &mut self,
        epoch: u32,
        chunk: usize,
        each: &mut dyn FnMut(Vec<f32>, Vec<u32>) -> Result<()>,
    ) -> Result<()>;
}

/// The location of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Location {
    /// A file, for one machine.
    Sqlite(PathBuf),
    /// A database server, for several provider processes.
    Postgres(Box<Address>),
}

impl Location {
    /// Parses `sqlite:PATH` or `postgres://user@host/database`.
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

    /// Opens the store of a task, creating it if necessary. Rejects a store of another task.
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

/// Creates a token of 256 bits for an owner. It is returned once; the store keeps only its hash.
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

/// Prefix of tokens, so that leak scanners recognize them.
const TOKEN: &str = "undertone-";

/// The stored form of a token. A token has 256 random bits, so a plain hash cannot be searched.
pub fn token_hash(token: &str) -> Hash {
    hash(token.as_bytes())
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
