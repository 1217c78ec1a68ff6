//! The files that grow by one record per step. Rank 0 writes them.

use crate::error::Result;
use undertone_run::{
    EventLog, MetricsWriter, Record, Resolved, RunFile, RunFolder, TensorboardWriter,
};

/// metrics.jsonl and, if requested, the TensorBoard event file and the log for trackers.
pub struct Journal {
    metrics: MetricsWriter,
    tensorboard: Option<TensorboardWriter>,
    events: Option<EventLog>,
}

impl Journal {
    /// Opens the files and keeps the records up to step `done`. `private` indicates whether the
    /// run's guarantee holds.
    pub fn open(
        folder: &RunFolder,
        plan: &RunFile,
        resolved: &Resolved,
        private: bool,
        done: u64,
    ) -> Result<Self> {
        let metrics = MetricsWriter::open(&folder.metrics(), done)?;
        let tensorboard = match plan.compute.tensorboard {
            true => Some(TensorboardWriter::open(&folder.tensorboard(), done)?),
            false => None,
        };
        let events = EventLog::open(folder, plan, resolved, private, done)?;
        Ok(Self { metrics, tensorboard, events })
    }

    pub fn add(&mut self, folder: &RunFolder, record: &Record) -> Result<()> {
        self.metrics.add(&folder.metrics(), record)?;
        if let Some(writer) = &mut self.tensorboard {
            writer.add(&folder.tensorboard(), record)?;
        }
        if let Some(log) = &mut self.events {
            log.add(record)?;
        }
        Ok(())
    }
}
