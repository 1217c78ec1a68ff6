//! The folder of a task, at the provider's.

use super::{Task, TaskPlan};
use crate::error::{Error, Result};
use crate::hex::{Hash, hash};
use crate::receipt::SigningKey;
use std::path::{Path, PathBuf};

/// A task at the provider's, and the names of its files.
///
/// ```text
/// task.json      the public task          provider.key   signs receipts; secret
/// task.toml      what it was made from    tls/           certificate and key of the server
/// pre/           what owners download     store.db       releases and owners
/// model/         what training begins from
/// current.json   the model that predicts
/// ```
#[derive(Debug)]
pub struct TaskFolder {
    folder: PathBuf,
    pub task: Task,
    pub hash: Hash,
    /// The bytes of task.json, which the hash is of.
    pub bytes: Vec<u8>,
}

/// The largest task.json.
pub const MOST_OF_TASK: u64 = 4 << 20;

impl TaskFolder {
    /// Opens a folder that `provider init` has made.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = Self::task_path(folder);
        let bytes = undertone_run::read_bytes(&path, MOST_OF_TASK).map_err(|e| {
            if e.kind() == std::io::ErrorKind::NotFound {
                return Error::mistake(format!(
                    "{} is not the folder of a task; create one with undertone-provider init",
                    folder.display()
                ));
            }
            Error::io(&path)(e)
        })?;
        let task = Task::parse(&bytes)?;
        Ok(Self { folder: folder.to_path_buf(), task, hash: hash(&bytes), bytes })
    }

    pub(super) fn task_path(folder: &Path) -> PathBuf {
        folder.join("task.json")
    }

    pub(super) fn plan_path(folder: &Path) -> PathBuf {
        folder.join("task.toml")
    }

    pub(super) fn key_path(folder: &Path) -> PathBuf {
        folder.join("provider.key")
    }

    pub(super) fn pre_path(folder: &Path) -> PathBuf {
        folder.join("pre")
    }

    pub(super) fn model_path(folder: &Path) -> PathBuf {
        folder.join("model")
    }

    /// The folder of what owners download.
    pub fn pre(&self) -> PathBuf {
        Self::pre_path(&self.folder)
    }

    /// The model that training begins from.
    pub fn model(&self) -> PathBuf {
        Self::model_path(&self.folder)
    }

    /// The folder of the server's certificate and key.
    pub fn tls(&self) -> PathBuf {
        self.folder.join("tls")
    }

    /// The default store.
    pub fn store(&self) -> PathBuf {
        self.folder.join("store.db")
    }

    /// Names the model that predicts.
    pub fn current(&self) -> PathBuf {
        self.folder.join("current.json")
    }

    /// The key that signs receipts; refused if it is not the one that the task names.
    pub fn key(&self) -> Result<SigningKey> {
        let path = Self::key_path(&self.folder);
        let key = SigningKey::read(&path)?;
        if crate::hex::hex(&key.public()) != self.task.key {
            return Err(Error::mistake(format!(
                "{} is not the key that the task names",
                path.display()
            )));
        }
        Ok(key)
    }

    /// What the task was made from.
    pub fn plan(&self) -> Result<TaskPlan> {
        TaskPlan::read(&Self::plan_path(&self.folder))
    }
}
