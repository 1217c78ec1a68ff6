//! The ledger: an append-only file that records every release about the private data.
//!
//! # Promises
//!
//! - ε is a function of the ledger ([`Ledger::guarantee`]), never a number carried beside it.
//! - [`Ledger::append`] returns only when the entry is on disk, so a release is recorded before it
//!   is made. A crash between the two wastes budget but hides nothing.
//! - Each line carries the hash of the previous line, and a small file beside the ledger holds the
//!   number of entries and the last hash. Edited, removed or inserted lines and a truncated ledger
//!   are therefore detected. (Rewriting both files with new hashes is not detected: print or
//!   publish the last hash to rule that out.)
//! - A line torn by a crash counts as spent. Its content may be lost, so the first line announces
//!   the costliest entry of each kind that may follow. Costlier entries are refused, and a torn
//!   line counts as one of each kind.
//! - One writer at a time: the file is locked while it is open for writing, for other writers only.
//!
//! The file is UTF-8 with one JSON object per line. The first line has the terms; each other line
//! has `entry`, `event` and `count` (or `repair`), `previous` and `hash`. The hash is SHA-256 over
//! the line without its `hash` member.

mod line;
mod planned;
mod terms;
mod total;

pub use terms::{RunBinding, Terms, USERS_BY_COLUMN};

use crate::{Accountant, Composition, Error, Event, Guarantee, Part, Result, SystemError, epsilon};
use line::{Entry, Line};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A ledger, open for appending or read-only.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    /// `None` if it is read-only.
    file: Option<File>,
    length: u64,
    terms: Terms,
    spent: Composition,
    entries: u64,
    last_hash: String,
    torn_lines: u64,
}

impl Ledger {
    /// Creates a ledger. The file must not exist yet.
    ///
    /// The first line is written to a temporary file beside the ledger, so it is never torn. That
    /// file is locked before anything is inspected and linked to the ledger's name when it is
    /// complete: if two processes create the same ledger at the same time, one of them is refused.
    pub fn create(path: impl AsRef<Path>, terms: Terms) -> Result<Ledger> {
        let path = path.as_ref().to_path_buf();
        terms.validate()?;
        let first = Line::seal(Entry::Terms(terms.clone()), "");
        let aside = beside(&path, "new");
        let problem = |e: std::io::Error| io_failure(&path, "could not be created", e);
        let exists = || failure(&path, "already exists; resume from it, or choose another folder");
        // `symlink_metadata` also detects a dangling symbolic link, which is not written through
        // either.
        let is_there = || path.symlink_metadata().is_ok();
        if is_there() {
            return Err(exists());
        }
        let Some(mut file) = open_or_create(&aside, open_alone).map_err(problem)? else {
            return Err(in_use(&path));
        };
        // Check again, now that nobody else can create it.
        if is_there() {
            return Err(exists());
        }
        if read_head(&path).is_ok_and(|head| head.entries > 0) {
            return Err(failure(
                &path,
                "is missing although releases were recorded; restore it, or choose another folder",
            ));
        }
        file.set_len(0).map_err(problem)?;
        file.write_all(first.text().as_bytes()).map_err(problem)?;
        file.sync_all().map_err(problem)?;
        write_head(&path, 0, first.hash())?;
        match std::fs::hard_link(&aside, &path) {
            Ok(()) => std::fs::remove_file(&aside).map_err(problem)?,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(exists()),
            // Not every file system has hard links. The lock excludes other creators of the ledger.
            Err(_) => std::fs::rename(&aside, &path).map_err(problem)?,
        }
        sync_folder(&path);
        // The lock remains: it belongs to the ledger itself, whose name was temporary.
        Ok(Ledger {
            path,
            length: first.text().len() as u64,
            file: Some(file),
            spent: Composition::new(terms.adjacency),
            terms,
            entries: 0,
            last_hash: first.hash().to_owned(),
            torn_lines: 0,
        })
    }

    /// The ledger that a run will have after its last planned release, built before the first one.
    /// It has no file; `name` stands for its path in messages.
    pub fn of_plan(name: impl AsRef<Path>, terms: Terms, planned: Composition) -> Ledger {
        Ledger {
            path: name.as_ref().to_path_buf(),
            file: None,
            length: 0,
            terms,
            entries: planned.releases(),
            spent: planned,
            last_hash: String::new(),
            torn_lines: 0,
        }
    }

    /// Opens the ledger if it exists, and creates it otherwise.
    pub fn open_or_create(path: impl AsRef<Path>, terms: Terms) -> Result<Ledger> {
        let path = path.as_ref();
        if path.exists() {
            return Ledger::open(path);
        }
        // Another process may have created it in the meantime.
        Ledger::create(path, terms)
            .or_else(|e| if path.exists() { Ledger::open(path) } else { Err(e) })
    }

    /// Opens a ledger for appending. A torn last line is counted as spent and repaired.
    pub fn open(path: impl AsRef<Path>) -> Result<Ledger> {
        let path = path.as_ref().to_path_buf();
        let problem = |e: std::io::Error| io_failure(&path, "could not be opened", e);
        check_regular(&path)?;
        let opened = open_alone(OpenOptions::new().read(true).write(true), &path);
        let Some(mut file) = opened.map_err(problem)? else {
            return Err(in_use(&path));
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(problem)?;
        let (mut ledger, sound) = Ledger::from_bytes(path, &bytes, &mut |_| Ok(()))?;
        ledger.file = Some(file);
        ledger.length = sound as u64;
        if sound < bytes.len() || !bytes[..sound].ends_with(b"\n") {
            ledger.repair(&bytes[sound..])?;
        } else {
            write_head(&ledger.path, ledger.entries, &ledger.last_hash)?;
        }
        Ok(ledger)
    }

    /// Reads a ledger without changing it. A torn last line is counted as spent.
    pub fn read(path: impl AsRef<Path>) -> Result<Ledger> {
        let path = path.as_ref().to_path_buf();
        let bytes = read_bytes(&path)?;
        let (mut ledger, sound) = Ledger::from_bytes(path, &bytes, &mut |_| Ok(()))?;
        if sound < bytes.len() {
            ledger.count_torn_line();
        }
        Ok(ledger)
    }

    /// The guarantee after the first entry, after about `points` equally spaced entries and after
    /// the last entry, each with its number of entries.
    pub fn history(
        path: impl AsRef<Path>,
        delta: f64,
        points: u64,
    ) -> Result<Vec<(u64, Guarantee)>> {
        let whole = Ledger::read(&path)?;
        let every = whole.entries.div_ceil(points.max(1)).max(1);
        let path = path.as_ref().to_path_buf();
        let bytes = read_bytes(&path)?;
        let mut history = Vec::new();
        Ledger::from_bytes(path, &bytes, &mut |ledger| {
            let chosen = ledger.entries == 1 || ledger.entries % every == 0;
            if chosen && ledger.entries < whole.entries {
                history.push((ledger.entries, ledger.guarantee(delta)?));
            }
            Ok(())
        })?;
        history.push((whole.entries, whole.guarantee(delta)?));
        Ok(history)
    }

    /// Records `count` releases of `event`. Make them only after this has returned.
    pub fn append(&mut self, event: Event, count: u64) -> Result<()> {
        event.validate()?;
        if count == 0 {
            return Err(Error::invalid("count of a ledger entry", count, "at least 1"));
        }
        let announced = |part: &Part| event.no_worse_than(&part.event) && count <= part.count;
        if !self.terms.announced.iter().any(announced) {
            return Err(failure(
                &self.path,
                "a release costs more privacy than any that the ledger's first line announces; \
                 start a new ledger that announces it",
            ));
        }
        self.write(Entry::Spent(Part { event, count }))?;
        self.spent.push(event, count);
        Ok(())
    }

    /// The composition of everything released so far.
    pub fn spent(&self) -> &Composition {
        &self.spent
    }

    /// The terms in the first line.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Number of entries after the first line.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Number of torn lines that were counted as spent.
    pub fn torn_lines(&self) -> u64 {
        self.torn_lines
    }

    /// The warning about torn lines: what happened, why it matters and what to do.
    pub fn warning(&self) -> Option<String> {
        let path = self.path.display();
        let lines = match self.torn_lines {
            0 => return None,
            1 => format!("1 line of {path} was"),
            lines => format!("{lines} lines of {path} were"),
        };
        Some(format!(
            "warning: {lines} cut off, as by a crash or a full disk. Each counts as the costliest \
             release that the ledger allows, so ε is higher than the releases need. If the file \
             was damaged later, restore it from a backup."
        ))
    }

    /// The hash of the last line, which identifies the whole ledger.
    pub fn hash(&self) -> &str {
        &self.last_hash
    }

    /// The guarantee of everything released so far, at this δ. For a run with fewer releases than
    /// planned, it assumes that their number did not depend on the data.
    pub fn guarantee(&self, delta: f64) -> Result<Guarantee> {
        let answer = epsilon(&self.spent, delta, Accountant::Auto)?;
        let Terms { unit, threat, mode, .. } = self.terms.clone();
        let assumptions = self.assumptions();
        Ok(Guarantee {
            unit,
            adjacency: self.spent.adjacency,
            threat,
            epsilon: answer.epsilon,
            delta,
            mode,
            assumptions,
        })
    }

    /// Parses a ledger and returns it with the number of bytes in complete lines. Calls `seen` with
    /// the ledger after each entry.
    fn from_bytes(
        path: PathBuf,
        bytes: &[u8],
        seen: &mut dyn FnMut(&Ledger) -> Result<()>,
    ) -> Result<(Ledger, usize)> {
        let mut lines = bytes.split_inclusive(|&b| b == b'\n').peekable();
        let first = lines.next().and_then(|l| Line::parse(l, ""));
        let Some((Entry::Terms(terms), hash)) = first.map(Line::into_parts) else {
            return Err(failure(&path, "the first line is not that of an intact ledger"));
        };
        terms.validate()?;
        let spent = Composition::new(terms.adjacency);
        let head = read_head(&path)?;
        let mut ledger = Ledger {
            file: None,
            length: 0,
            spent,
            entries: 0,
            last_hash: hash,
            torn_lines: 0,
            terms,
            path,
        };
        let mut sound = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| i + 1);
        ledger.check_against(&head)?;
        while let Some(text) = lines.next() {
            let Some(line) = Line::parse(text, &ledger.last_hash) else {
                // Only the last line can be torn; a complete line with a wrong hash was modified.
                if lines.peek().is_none() && !text.ends_with(b"\n") {
                    break;
                }
                let number = ledger.entries + 2;
                return Err(failure(
                    &ledger.path,
                    format!(
                        "line {number} was changed after it was written; the ledger is invalid"
                    ),
                ));
            };
            sound += text.len();
            let (entry, hash) = line.into_parts();
            ledger.entries += 1;
            ledger.last_hash = hash;
            match entry {
                Entry::Spent(part) => ledger.spent.push(part.event, part.count),
                Entry::Repair(parts) => {
                    ledger.torn_lines += 1;
                    parts.iter().for_each(|p| ledger.spent.push(p.event, p.count));
                }
                Entry::Terms(_) => {
                    return Err(failure(&ledger.path, "contains its terms twice; it is invalid"));
                }
            }
            ledger.check_against(&head)?;
            seen(&ledger)?;
        }
        if ledger.entries < head.entries {
            return Err(failure(
                &ledger.path,
                format!(
                    "was cut off: {} entries were written and {} are left; it is invalid",
                    head.entries, ledger.entries
                ),
            ));
        }
        Ok((ledger, sound))
    }

    fn check_against(&self, head: &Head) -> Result<()> {
        if self.entries == head.entries && self.last_hash != head.hash {
            return Err(failure(&self.path, "was replaced by another ledger; it is invalid"));
        }
        Ok(())
    }

    /// Replaces a torn last line with an entry that counts it as spent.
    fn repair(&mut self, torn: &[u8]) -> Result<()> {
        if torn.is_empty() {
            // Only the line break is missing.
            return self.put(b"\n").map(|()| self.length += 1);
        }
        let parts = self.terms.announced.clone();
        self.write(Entry::Repair(parts))?;
        self.count_torn_line();
        Ok(())
    }

    fn count_torn_line(&mut self) {
        self.torn_lines += 1;
        for part in self.terms.announced.clone() {
            self.spent.push(part.event, part.count);
        }
    }

    fn write(&mut self, entry: Entry) -> Result<()> {
        let line = Line::seal(entry, &self.last_hash);
        self.put(line.text().as_bytes())?;
        self.length += line.text().len() as u64;
        self.entries += 1;
        self.last_hash = line.hash().to_owned();
        write_head(&self.path, self.entries, &self.last_hash)
    }

    /// Appends after the valid bytes, and syncs to disk.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let path = &self.path;
        let Some(file) = &mut self.file else {
            return Err(failure(path, "was opened for reading only"));
        };
        let length = self.length;
        let written = file
            .set_len(length)
            .and_then(|()| file.seek(SeekFrom::Start(length)))
            .and_then(|_| file.write_all(bytes))
            .and_then(|()| file.sync_data());
        written.map_err(|e| {
            // A half-written line would count as spent: remove it if possible.
            let _ = file.set_len(length);
            io_failure(path, "could not be written, and nothing was released", e)
        })
    }
}

/// Number of entries and hash of the last line, kept in a file beside the ledger.
#[derive(serde::Serialize, serde::Deserialize)]
struct Head {
    entries: u64,
    hash: String,
}

/// Refuses anything but a regular file: opening a FIFO would block forever.
fn check_regular(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(failure(path, "is not a regular file")),
        _ => Ok(()),
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    check_regular(path)?;
    std::fs::read(path).map_err(|e| io_failure(path, "could not be read", e))
}

/// Opens a file for writing with `open`, creating it if necessary, and never follows a symbolic
/// link.
fn open_or_create<T>(
    path: &Path,
    open: impl Fn(&mut OpenOptions, &Path) -> std::io::Result<T>,
) -> std::io::Result<T> {
    match open(OpenOptions::new().write(true).create_new(true), path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            if !path.symlink_metadata()?.is_file() {
                let message = format!("{} is not a regular file; remove it", path.display());
                return Err(std::io::Error::new(e.kind(), message));
            }
            open(OpenOptions::new().write(true), path)
        }
        opened => opened,
    }
}

/// Opens a file for writing, and excludes other writers until it is closed; `None` if there is
/// another writer. Readers are not affected.
#[cfg(not(windows))]
fn open_alone(options: &mut OpenOptions, path: &Path) -> std::io::Result<Option<File>> {
    let file = options.open(path)?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// The same on Windows, where a lock would also exclude readers, unlike the sharing mode.
#[cfg(windows)]
fn open_alone(options: &mut OpenOptions, path: &Path) -> std::io::Result<Option<File>> {
    use std::os::windows::fs::OpenOptionsExt;
    const SHARE_READING_AND_DELETING: u32 = 1 | 4;
    const SHARING_VIOLATION: i32 = 32;
    match options.share_mode(SHARE_READING_AND_DELETING).open(path) {
        Err(e) if e.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        opened => opened.map(Some),
    }
}

fn in_use(path: &Path) -> Error {
    failure(path, "is in use by another run; wait for it, or choose another folder")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn write_head(path: &Path, entries: u64, hash: &str) -> Result<()> {
    let head = Head { entries, hash: hash.to_owned() };
    let (aside, target) = (beside(path, "head.new"), beside(path, "head"));
    let text = serde_json::to_string(&head).expect("a number and a string");
    let write = || -> std::io::Result<()> {
        let mut file = open_or_create(&aside, |options, path| options.open(path))?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&aside, &target)
    };
    write().map_err(|e| io_failure(&target, "could not be written", e))
}

fn read_head(path: &Path) -> Result<Head> {
    let target = beside(path, "head");
    let missing = || {
        failure(
            &target,
            "is missing or damaged, so a truncated ledger could not be detected; restore it and \
             the ledger from one backup",
        )
    };
    check_regular(&target)?;
    let text = std::fs::read_to_string(&target).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidData => missing(),
        _ => io_failure(&target, "could not be read", e),
    })?;
    serde_json::from_str(&text).map_err(|_| missing())
}

/// Makes a rename durable across a power failure, where the system supports it.
fn sync_folder(path: &Path) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// Classifies an I/O error as a wrong path or an operating system failure.
fn io_failure(path: &Path, doing: &str, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::AlreadyExists
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory => failure(path, format!("{doing}: {error}")),
        _ => {
            let (path, doing) = (path.to_path_buf(), doing.to_owned());
            Error::LedgerIo { path, doing, source: SystemError::new(&error) }
        }
    }
}

fn failure(path: &Path, problem: impl Into<String>) -> Error {
    Error::Ledger { path: path.to_path_buf(), problem: problem.into() }
}
