//! `undertone provider`: the side that receives releases.

mod init;
mod log;
mod serve;
mod tokens;
mod train;

use crate::failure::Outcome;
use crate::output::Output;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use undertone_provider::TaskFolder;
use undertone_provider::store::{Location, Store};

/// The provider of a task in local DP: makes it, receives releases, trains and predicts
#[derive(Subcommand)]
pub enum Provider {
    Init(init::Init),
    Serve(serve::Serve),
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    Train(train::Train),
}

impl Provider {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::Init(init) => init.run(output),
            Self::Serve(serve) => serve.run(output),
            Self::Tokens(tokens) => tokens.run(output),
            Self::Train(train) => train.run(output),
        }
    }
}

/// The folder of a task, and its store.
#[derive(Args)]
pub struct TaskArguments {
    /// Folder of the task, which provider init has made
    #[arg(value_name = "TASK")]
    task: PathBuf,
    /// Where releases are kept: sqlite:PATH or postgres://user@host/database [default: store.db in
    /// the task's folder]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

impl TaskArguments {
    fn folder(&self) -> Outcome<TaskFolder> {
        Ok(TaskFolder::open(&self.task)?)
    }

    fn location(&self, folder: &TaskFolder) -> Outcome<Location> {
        match &self.store {
            Some(text) => Ok(Location::parse(text)?),
            None => Ok(Location::Sqlite(folder.store())),
        }
    }

    fn open(&self) -> Outcome<(TaskFolder, Box<dyn Store>)> {
        let folder = self.folder()?;
        let store = self.location(&folder)?.open(&folder.hash)?;
        Ok((folder, store))
    }
}
