//! The store in one file, with an exclusive lock and an fsync for each line.
//!
//! A line is written and synced before the file beside the register (`.head`: number of lines and
//! last hash) is replaced. So the head is at most one line behind, and the next writer decides,
//! under the lock, about anything after it:
//!
//! | found after the head | what happened | what is done |
//! |---|---|---|
//! | nothing | nothing | |
//! | a part of a line | killed while writing; nobody was told that it is there | removed |
//! | a whole line | killed before the head was replaced | kept: it counts |
//!
//! Fewer lines than the head states, or a different last hash, mean damage, and nothing is written.

use crate::chain;
use crate::error::{Error, Result};
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use undertone_settings::{real_path, write_atomically};

/// Maximum time to wait for other processes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Maximum size of a register, larger than any real one: a million lines.
const MOST_BYTES: u64 = 1 << 30;

/// A register's file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
}

/// The contents of the file beside the register.
#[derive(Serialize, Deserialize)]
struct Head {
    lines: u64,
    hash: String,
}

impl FileStore {
    /// Creates the file with its first line. It must not exist.
    pub fn create(path: &Path, first: &str) -> Result<Self> {
        let store = Self { path: path.to_owned() };
        if store.head_path().exists() && !path.exists() {
            return Err(store.damaged("is missing, but the file beside it says that it was begun"));
        }
        let problem = Error::io(path, "could not be created");
        let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Err(Error::refused(format!(
                    "{} exists already; a register is never overwritten",
                    path.display()
                )));
            }
            opened => opened.map_err(problem)?,
        };
        let write = |file: &mut File| -> Result<()> {
            store.lock(file, true)?;
            file.write_all(first.as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(Error::io(path, "could not be written"))?;
            store.write_head(first)
        };
        if let Err(error) = write(&mut file) {
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        drop(file);
        Ok(store)
    }

    /// Opens the file of a register.
    pub fn open(path: &Path) -> Result<Self> {
        match std::fs::metadata(path) {
            // Under its real name, after resolving links: the head is beside that file.
            Ok(metadata) if metadata.is_file() => {
                let path = real_path(path).map_err(Error::io(path, "could not be opened"))?;
                Ok(Self { path })
            }
            Ok(_) => Err(Error::refused(format!("{} is not a register", path.display()))),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(Error::refused(format!(
                "there is no register {}; make one with: undertone register init {}",
                path.display(),
                path.display()
            ))),
            Err(e) => Err(Error::io(path, "could not be opened")(e)),
        }
    }

    fn head_path(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".head");
        PathBuf::from(name)
    }

    fn damaged(&self, problem: &str) -> Error {
        Error::refused(format!(
            "register {} {problem}; restore it and {} from one backup",
            self.path.display(),
            self.head_path().display()
        ))
    }

    /// Waits for the lock, which is released with the file's handle.
    fn lock(&self, file: &File, exclusive: bool) -> Result<()> {
        let start = Instant::now();
        loop {
            let locked = if exclusive { file.try_lock() } else { file.try_lock_shared() };
            match locked {
                Ok(()) => return Ok(()),
                Err(std::fs::TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(Error::refused(format!(
                        "register {} has been in use by another process for two minutes; try again",
                        self.path.display()
                    )));
                }
                Err(std::fs::TryLockError::Error(e)) => {
                    return Err(Error::io(&self.path, "could not be locked")(e));
                }
            }
        }
    }

    /// The complete lines, checked against the head, and the length of the file.
    fn whole_lines(&self, file: &mut File) -> Result<(String, u64)> {
        let mut bytes = Vec::new();
        let problem = Error::io(&self.path, "could not be read");
        file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(problem)?;
        let length = bytes.len() as u64;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
        let text = String::from_utf8(bytes).map_err(|_| self.damaged("is not UTF-8 text"))?;
        let head = self.read_head()?;
        let lines = chain::parse(&text, &self.place())?;
        let count = lines.len() as u64;
        let at_head = head.lines.checked_sub(1).and_then(|last| lines.get(last as usize));
        match at_head {
            Some(line) if line.hash == head.hash && count <= head.lines + 1 => Ok((text, length)),
            Some(line) if line.hash == head.hash => {
                Err(self.damaged("has lines that the file beside it does not know"))
            }
            Some(_) => Err(self.damaged("was replaced by another one")),
            None => Err(self.damaged(&format!(
                "was cut off: {} lines were written, and {count} are left",
                head.lines
            ))),
        }
    }

    fn read_head(&self) -> Result<Head> {
        let path = self.head_path();
        let missing =
            |_| self.damaged("cannot be checked, because the file beside it is missing or damaged");
        let text = undertone_settings::read_settings(&path).map_err(missing)?;
        serde_json::from_str(&text).map_err(|e| missing(e.into()))
    }

    /// Writes the head for these lines.
    fn write_head(&self, text: &str) -> Result<()> {
        let hash = chain::last_hash(text).to_owned();
        let head = Head { lines: text.lines().count() as u64, hash };
        let json = serde_json::to_string(&head).expect("a number and a string");
        write_atomically(&self.head_path(), |out| out.write_all(json.as_bytes())).map_err(|e| {
            Error::Io {
                what: format!("register {} could not be completed", self.path.display()),
                source: std::io::Error::other(e.to_string()),
            }
        })
    }
}

impl Store for FileStore {
    fn read(&self) -> Result<String> {
        let mut file = File::open(&self.path).map_err(Error::io(&self.path, "is unreadable"))?;
        self.lock(&file, false)?;
        Ok(self.whole_lines(&mut file)?.0)
    }

    fn append(&self, decide: &mut dyn FnMut(&str) -> Result<Option<String>>) -> Result<()> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .map_err(Error::io(&self.path, "could not be opened for writing"))?;
        self.lock(&file, true)?;
        let (mut text, length) = self.whole_lines(&mut file)?;
        let whole = text.len() as u64;
        if whole < length {
            // Torn by a crash, and never acknowledged.
            file.set_len(whole).map_err(Error::io(&self.path, "could not be repaired"))?;
        }
        // The previous line may have been written by a process that died before it wrote the head.
        self.write_head_if_behind(&text)?;
        let Some(line) = decide(&text)? else { return Ok(()) };
        let written = file
            .seek(SeekFrom::Start(whole))
            .and_then(|_| file.write_all(line.as_bytes()))
            .and_then(|()| file.sync_data());
        if let Err(source) = written {
            // Remove the unacknowledged line, if possible, so that nobody finds it later.
            let _ = file.set_len(whole);
            return Err(Error::io(&self.path, "could not be written, and nothing was recorded")(
                source,
            ));
        }
        text.push_str(&line);
        self.write_head(&text)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl FileStore {
    fn write_head_if_behind(&self, text: &str) -> Result<()> {
        let behind = self.read_head()?.lines < text.lines().count() as u64;
        if behind { self.write_head(text) } else { Ok(()) }
    }
}
