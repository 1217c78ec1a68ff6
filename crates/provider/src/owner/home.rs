//! The owner's folder.

use super::book::Book;
use crate::error::{Error, Result};
use crate::hex::{Hash, hex, random};
use crate::receipt::write_secret;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// The owner's folder, open in one process at a time.
#[derive(Debug)]
pub struct Home {
    folder: PathBuf,
    pub secret: [u8; 32],
    pub book: Book,
    /// Locked while the folder is open.
    _lock: File,
}

/// The default owner's folder: one for each user of the machine, so the ledgers of all tasks are in
/// one place.
pub fn default_home() -> Option<PathBuf> {
    let given = |path: &PathBuf| !path.as_os_str().is_empty();
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(given);
    let home = || Some(std::env::home_dir().filter(given)?.join(".local/share"));
    Some(data.or_else(home)?.join("undertone/owner"))
}

impl Home {
    /// Opens the folder, creating it if needed.
    pub fn open(folder: &Path) -> Result<Self> {
        let tasks = folder.join("tasks");
        make_private(folder)?;
        make_private(&tasks)?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(Error::io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::mistake(format!(
                    "{} is in use by another process; wait for it, or choose another folder with \
                     --owner",
                    folder.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(Error::io(&lock_path)(e)),
        }
        let secret = secret(folder, &tasks)?;
        let book = folder.join("owner.db");
        if !book.exists() {
            refuse_if_begun(&book, &tasks)?;
        }
        let book = Book::open(&book)?;
        Ok(Self { folder: folder.to_path_buf(), secret, book, _lock: lock })
    }

    /// The folder of a task.
    pub fn task(&self, task: &Hash) -> PathBuf {
        self.tasks().join(hex(task))
    }

    /// The folder of all tasks.
    pub fn tasks(&self) -> PathBuf {
        self.folder.join("tasks")
    }
}

/// Creates a folder that only its user can read.
pub fn make_private(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(Error::io(folder))
}

/// Refuses a folder that lacks a file used for earlier releases. Without the database, a label that
/// has changed since would be randomized with the same coin, and both responses together would
/// reveal both labels.
fn refuse_if_begun(missing: &Path, tasks: &Path) -> Result<()> {
    if tasks.read_dir().map_err(Error::io(tasks))?.next().is_none() {
        return Ok(());
    }
    Err(Error::mistake(format!(
        "{} is missing, but releases were made with it: restore it, or choose another folder with \
         --owner, whose ledger does not count them",
        missing.display()
    )))
}

/// The secret, created on first use. It is not recreated if releases have been made with an earlier
/// one: the same texts would get fresh noise.
fn secret(folder: &Path, tasks: &Path) -> Result<[u8; 32]> {
    let path = folder.join("secret.key");
    match undertone_run::read_bytes(&path, 32) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            Error::mistake(format!("{} is damaged; restore it from a backup", path.display()))
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            refuse_if_begun(&path, tasks)?;
            let secret = random::<32>()?;
            // Atomic: a process killed here has made no release.
            let beside = folder.join("secret.new");
            let _ = std::fs::remove_file(&beside);
            write_secret(&beside, &secret)?;
            std::fs::rename(&beside, &path).map_err(Error::io(&path))?;
            if let Ok(folder) = File::open(folder) {
                let _ = folder.sync_all();
            }
            Ok(secret)
        }
        Err(e) => Err(Error::io(&path)(e)),
    }
}
