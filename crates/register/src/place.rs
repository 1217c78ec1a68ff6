//! Where a register is: in a file, or in a database if the program can reach one.

use crate::error::{Error, Result};
use crate::file::FileStore;
use crate::store::Store;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Opens the register at an address of a database, or creates it with its first line.
pub type OpenDatabase = fn(address: &str, first: Option<&str>) -> Result<Box<dyn Store>>;

static DATABASE: OnceLock<OpenDatabase> = OnceLock::new();

/// What the addresses of databases begin with.
const SCHEMES: [&str; 2] = ["postgres:", "postgresql:"];

/// Makes registers in databases available to this process. Later calls have no effect.
pub fn provide_database(open: OpenDatabase) {
    let _ = DATABASE.set(open);
}

/// The address of the database, if this is one and not a file.
fn address(place: &Path) -> Option<&str> {
    place.to_str().filter(|text| SCHEMES.iter().any(|scheme| text.starts_with(scheme)))
}

/// The place by which a register is found from any folder: the absolute path of a file, or the
/// address of a database.
pub fn absolute_place(place: &Path) -> std::io::Result<PathBuf> {
    match address(place) {
        Some(address) => Ok(PathBuf::from(address)),
        None => std::path::absolute(place),
    }
}

/// Opens the store at a place.
pub fn open(place: &Path) -> Result<Box<dyn Store>> {
    match address(place) {
        Some(address) => database()?(address, None),
        None => Ok(Box::new(FileStore::open(place)?)),
    }
}

/// Creates a store with its first line at a place where there is none.
pub fn create(place: &Path, first: &str) -> Result<Box<dyn Store>> {
    match address(place) {
        Some(address) => database()?(address, Some(first)),
        None => Ok(Box::new(FileStore::create(place, first)?)),
    }
}

fn database() -> Result<OpenDatabase> {
    DATABASE.get().copied().ok_or_else(|| {
        Error::refused(
            "this program was built without PostgreSQL; build it with --features postgres, or keep \
             the register in a file",
        )
    })
}
