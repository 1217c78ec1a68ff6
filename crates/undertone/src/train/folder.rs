//! The folder of a run, which one process at a time may use.
//!
//! ```text
//! plan.toml               the run file with every default filled in, and what it came to on the data
//! ledger.jsonl            everything that was released, written before it was
//! metrics.jsonl           one line for each step (computed from the private data: keep it with them)
//! checkpoint.safetensors  weights and optimiser, to go on from
//! secret.key              what the noise is drawn from; only while the run lasts
//! identity.json           what it was begun with, to be the same when it is resumed; only while the run lasts
//! relevance.safetensors   the relevance map that the noise was allocated by, if the method has one
//! noise.svg               how much noise each trained parameter had (and relevance.svg), drawn by the command line
//! model/                  the trained model, or adapter/ if little of it was trained, with a card (README.md) that says what is guaranteed
//! audit.json              what attacks found, if any were made
//! summary.json            written last: a folder that has one is finished
//! ```

use super::error::{Error, Result};
use super::identity::Identity;
use crate::mechanism::Secret;
use crate::model::folder::write_json;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A run's folder, held until it is dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    // Locked while it is open.
    _lock: File,
}

impl RunFolder {
    /// A new run's folder, which may exist but must hold no run.
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let folder = Self::hold(path)?;
        if folder.plan().exists() || folder.ledger().exists() {
            return Err(Error::folder(
                path,
                "holds a run already; go on with it by --resume, or choose another folder",
            ));
        }
        Ok(folder)
    }

    /// The folder of a run that has begun.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join("plan.toml").is_file() {
            return Err(Error::folder(
                path,
                "holds no run that has begun; start one without --resume",
            ));
        }
        Self::hold(path)
    }

    fn hold(path: &Path) -> Result<Self> {
        let place = path.join("run.lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&place)
            .map_err(Error::io(&place))?;
        // Whoever watches the run asks for a moment whether anybody holds it.
        let wait = || std::thread::sleep(std::time::Duration::from_millis(30));
        if lock.try_lock().is_err() && (0..3).all(|_| (wait(), lock.try_lock().is_err()).1) {
            return Err(Error::folder(
                path,
                "is in use by another run; wait for it, or choose another folder",
            ));
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn plan(&self) -> PathBuf {
        self.path.join("plan.toml")
    }
    pub(super) fn ledger(&self) -> PathBuf {
        self.path.join("ledger.jsonl")
    }
    pub(super) fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }
    pub(super) fn relevance(&self) -> PathBuf {
        self.path.join("relevance.safetensors")
    }
    pub(super) fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }
    pub(super) fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// Whether something may have been released: then the run goes on with the secret it has, or
    /// not at all. One of these files may have been lost.
    pub(super) fn has_begun(&self) -> bool {
        let head = self.path.join("ledger.jsonl.head");
        [self.ledger(), head, self.metrics(), self.checkpoint()].iter().any(|path| path.exists())
    }

    fn secret_path(&self) -> PathBuf {
        self.path.join("secret.key")
    }

    /// Keeps the secret of a run that is not seeded, for its owner's eyes only.
    pub(super) fn keep_secret(&self, secret: &Secret) -> Result<()> {
        let path = self.secret_path();
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path).map_err(Error::io(&path))?;
        file.write_all(secret.bytes()).and_then(|()| file.sync_all()).map_err(Error::io(&path))
    }

    /// The secret of a run that is to go on.
    pub(super) fn secret(&self) -> Result<Secret> {
        let path = self.secret_path();
        let mut bytes = [0; 32];
        let whole = File::open(&path).and_then(|mut file| file.read_exact(&mut bytes));
        whole.map_err(|e| {
            Error::folder(
                &path,
                format!("the run's secret is gone ({e}), so it cannot go on; start a new run"),
            )
        })?;
        Ok(Secret::from_bytes(bytes))
    }

    fn identity_path(&self) -> PathBuf {
        self.path.join("identity.json")
    }

    /// Keeps what a run was begun with.
    pub(super) fn keep_identity(&self, identity: &Identity) -> Result<()> {
        Ok(write_json(&self.identity_path(), identity)?)
    }

    /// Refuses to go on with a run on other terms than it was begun with.
    pub(super) fn check_identity(&self, identity: &Identity) -> Result<()> {
        let path = self.identity_path();
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let begun: Identity = serde_json::from_str(&text)
            .map_err(|e| Error::folder(&path, format!("is damaged ({e}); start a new run")))?;
        if begun.run != identity.run {
            return Err(Error::folder(
                &self.path,
                "was begun with another plan, other data or another secret; resume with what it \
                 began with",
            ));
        }
        if begun.machine != identity.machine {
            let problem = format!(
                "was begun on \"{}\" and this is \"{}\": the numbers would differ; resume there, \
                 or with as many threads (RAYON_NUM_THREADS)",
                begun.machine, identity.machine
            );
            return Err(Error::folder(&self.path, problem));
        }
        Ok(())
    }

    /// Nothing is drawn any more: what only a run under way needs is removed.
    pub(super) fn forget_secrets(&self) -> Result<()> {
        for path in [self.secret_path(), self.identity_path()] {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(&path)(e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
