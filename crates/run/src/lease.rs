//! The lease file, which shows other machines that a run folder is in use.
//!
//! The lock on `run.lock` works between processes on one machine, and between machines if the file
//! system propagates locks, which not every NFS or Lustre mount does. The process that holds the
//! lock therefore also writes a lease with a counter that it increments while it is alive. A
//! process on another machine that encounters a lease watches the counter and takes over the lease
//! only if the counter stops changing. Clocks of different machines are never compared. On the same
//! machine the lock has already decided: a lease left there belongs to a process that has ended.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which the counter is incremented.
const BEAT: Duration = Duration::from_secs(5);
/// How long another machine's lease is watched before it is taken over.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// Identifies the machine until its next boot.
    machine: String,
    /// The machine's name, for messages.
    host: String,
    process: u32,
    /// Distinguishes two leases of the same process.
    begun: u64,
    beats: u64,
}

impl Written {
    fn own() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let host = crate::host_name().unwrap_or_else(|| "localhost".to_owned());
        let machine = read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|| host.clone());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let begun = now.map_or(0, |now| now.as_nanos() as u64);
        Self { machine, host, process: std::process::id(), begun, beats: 0 }
    }

    /// Whether both leases belong to the same process.
    fn is_of(&self, other: &Self) -> bool {
        let who = |lease: &Self| (lease.machine.clone(), lease.process, lease.begun);
        who(self) == who(other)
    }

    /// Reads the lease; `None` if the file is missing or being written.
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn write(&self, path: &Path) -> Result<()> {
        crate::write_json(path, self)
    }
}

/// A lease whose counter is incremented until it is dropped.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    /// Whether the lease has been released; the mutex is held while the file is written.
    ended: Arc<Mutex<bool>>,
    lost: Arc<AtomicBool>,
}

impl Lease {
    /// Takes the lease of a folder whose lock this process already holds.
    pub fn take(path: &Path, folder: &Path) -> Result<Self> {
        Self::take_after(path, folder, PATIENCE, BEAT)
    }

    fn take_after(path: &Path, folder: &Path, patience: Duration, beat: Duration) -> Result<Self> {
        let mut own = Written::own();
        if let Some(holder) = Written::read(path).filter(|holder| holder.machine != own.machine) {
            let begun = Instant::now();
            while begun.elapsed() < patience {
                std::thread::sleep(patience / 20);
                match Written::read(path) {
                    Some(now) if now != holder => return Err(in_use(folder, &now)),
                    _ => {}
                }
            }
        }
        own.write(path)?;
        let (ended, lost) = (Arc::new(Mutex::new(false)), Arc::new(AtomicBool::new(false)));
        let lease = Self { path: path.to_owned(), ended: ended.clone(), lost: lost.clone() };
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut beaten = Instant::now();
            loop {
                std::thread::sleep(beat / 20);
                let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                if *ended {
                    return;
                }
                if beaten.elapsed() < beat {
                    continue;
                }
                beaten = Instant::now();
                // Two machines may have taken over the same lease: the last writer wins.
                if Written::read(&path).is_some_and(|written| !written.is_of(&own)) {
                    lost.store(true, Ordering::SeqCst);
                    return;
                }
                own.beats += 1;
                let _ = own.write(&path);
            }
        });
        Ok(lease)
    }

    /// Fails if another machine has taken over the lease, which happens if it saw no heartbeat from
    /// this machine for too long.
    pub fn check(&self, folder: &Path) -> Result<()> {
        match self.lost.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Error::folder(
                folder,
                "was taken over by a run on another machine, so this one stops",
            )),
        }
    }
}

fn in_use(folder: &Path, by: &Written) -> Error {
    Error::folder(
        folder,
        format!(
            "is in use by another run, on {}; wait for it, or choose another folder",
            crate::printable(&by.host)
        ),
    )
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended = true;
        if !self.lost.load(Ordering::SeqCst) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(40));

    fn put(written: &Written, path: &Path) {
        fs::write(path, serde_json::to_vec(written).unwrap()).unwrap();
    }

    fn elsewhere() -> Written {
        Written { machine: "another".into(), host: "node7".into(), ..Written::own() }
    }

    #[test]
    fn a_folder_in_use_on_another_machine_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.lease");
        let mut theirs = elsewhere();
        put(&theirs, &path);
        let taken = std::thread::scope(|scope| {
            let taking = scope.spawn(|| Lease::take_after(&path, folder.path(), QUICK.0, QUICK.1));
            while !taking.is_finished() {
                std::thread::sleep(QUICK.1);
                theirs.beats += 1;
                put(&theirs, &path);
            }
            taking.join().unwrap()
        });
        let message = taken.unwrap_err().to_string();
        assert!(message.contains("in use by another run, on node7"), "{message}");
    }

    #[test]
    fn a_lease_of_a_process_that_has_ended_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.lease");
        put(&elsewhere(), &path);
        let lease = Lease::take_after(&path, folder.path(), QUICK.0, QUICK.1).unwrap();
        lease.check(folder.path()).unwrap();
        // The counter increases.
        let first = Written::read(&path).unwrap();
        let begun = Instant::now();
        while Written::read(&path).is_none_or(|now| now.beats == first.beats) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(QUICK.1);
        }
        // A takeover by another machine is detected.
        let theirs = elsewhere();
        let begun = Instant::now();
        while lease.check(folder.path()).is_ok() {
            put(&theirs, &path);
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(QUICK.1);
        }
        drop(lease);
        assert!(Written::read(&path).is_some_and(|written| written.is_of(&theirs)));
        // A lease from this machine belongs to a process that has ended, since the lock is free; no
        // waiting.
        put(&Written::own(), &path);
        let begun = Instant::now();
        drop(Lease::take_after(&path, folder.path(), Duration::from_secs(600), BEAT).unwrap());
        assert!(begun.elapsed() < Duration::from_secs(300) && !path.exists());
    }
}
