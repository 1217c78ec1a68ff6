//! The folder of a task, and its store, as arguments.

use crate::failure::Outcome;
use clap::Args;
use std::path::PathBuf;
use undertone_provider::TaskFolder;
use undertone_provider::store::{Location, Store};

/// The folder of a task, and its store.
#[derive(Args)]
pub struct TaskArguments {
    /// Folder of the task, as created by `undertone-provider init`
    #[arg(value_name = "TASK")]
    task: PathBuf,
    /// Database of releases: sqlite:PATH or postgres://user@host/database [default: store.db in the
    /// task folder]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

impl TaskArguments {
    pub fn folder(&self) -> Outcome<TaskFolder> {
        Ok(TaskFolder::open(&self.task)?)
    }

    pub fn location(&self, folder: &TaskFolder) -> Outcome<Location> {
        match &self.store {
            Some(text) => Ok(Location::parse(text)?),
            None => Ok(Location::Sqlite(folder.store())),
        }
    }

    pub fn open(&self) -> Outcome<(TaskFolder, Box<dyn Store>)> {
        let folder = self.folder()?;
        let store = self.location(&folder)?.open(&folder.hash)?;
        Ok((folder, store))
    }
}
