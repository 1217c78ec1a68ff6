//! The folder of a task on the provider's machine.

use super::{Task, TaskPlan};
use crate::error::{Error, Result};
use crate::hex::{Hash, hash};
use crate::receipt::SigningKey;
use std::path::{Path, PathBuf};

/// A task on the provider's machine, and the names of its files.
///
/// ```text
/// task.json      the public task          provider.key   signs receipts; secret
/// task.toml      its task file            tls/           certificate and key of the server
/// pre/           what owners download     store.db       releases and owners
/// model/         the initial model for training
/// current.json   the current model
/// ```
#[derive(Debug)]
pub struct TaskFolder {
    folder: PathBuf,
    pub task: Task,
    pub hash: Hash,
    /// The bytes of task.json, which are hashed.
    pub bytes: Vec<u8>,
}

/// Maximum size of task.json.
pub const MOST_OF_TASK: u64 = 4 << 20;

impl TaskFolder {
    /// Opens a folder created by `provider init`.
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

    /// The folder of the files that owners download.
    pub fn pre(&self) -> PathBuf {
        Self::pre_path(&self.folder)
    }

    /// The initial model for training.
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

    /// The file that names the current model.
    pub fn current(&self) -> PathBuf {
        self.folder.join("current.json")
    }

    /// The key that signs receipts; rejected if the task names a different one.
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

    /// The task file that the task was created from.
    pub fn plan(&self) -> Result<TaskPlan> {
        TaskPlan::read(&Self::plan_path(&self.folder))
    }
}
