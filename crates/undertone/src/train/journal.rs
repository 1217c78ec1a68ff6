//! The files that grow by a record a step. Rank 0 writes them.

use crate::error::Result;
use undertone_run::{MetricsWriter, Record, RunFolder, TensorboardWriter};

/// metrics.jsonl and, if asked for, the event file of TensorBoard.
pub struct Journal {
    metrics: MetricsWriter,
    tensorboard: Option<TensorboardWriter>,
}

impl Journal {
    /// Opens both, and keeps the records up to step `done`.
    pub fn open(folder: &RunFolder, done: u64, tensorboard: bool) -> Result<Self> {
        let metrics = MetricsWriter::open(&folder.metrics(), done)?;
        let tensorboard = match tensorboard {
            true => Some(TensorboardWriter::open(&folder.tensorboard(), done)?),
            false => None,
        };
        Ok(Self { metrics, tensorboard })
    }

    pub fn add(&mut self, folder: &RunFolder, record: &Record) -> Result<()> {
        self.metrics.add(&folder.metrics(), record)?;
        if let Some(writer) = &mut self.tensorboard {
            writer.add(&folder.tensorboard(), record)?;
        }
        Ok(())
    }
}
