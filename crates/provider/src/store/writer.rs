//! A single thread writes to the store. Waiting contributions are stored together in one
//! transaction, so that many owners share one sync to disk.

use super::{Contribution, Store, Stored};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Maximum number of contributions per transaction.
const TOGETHER: usize = 64;

type Job = (Contribution, oneshot::Sender<Result<Stored, WriterError>>);

/// The reason why a valid contribution was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterError {
    /// Too many contributions are waiting.
    Busy,
    /// The store fails: its disk is full, or it cannot be reached.
    Away(String),
}

/// The writing thread.
#[derive(Debug)]
pub struct Writer {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. At most `waiting` contributions may wait, and the store may have at most
    /// `most` releases per epoch.
    pub fn start(store: Box<dyn Store>, waiting: usize, most: u64) -> Self {
        let (queue, jobs) = sync_channel(waiting.max(1));
        let thread = std::thread::spawn(move || write(store, &jobs, most));
        Self { queue: Some(queue), thread: Some(thread) }
    }

    /// Stores a contribution; returns when it is on disk.
    pub async fn store(&self, contribution: Contribution) -> Result<Stored, WriterError> {
        let (answer, answered) = oneshot::channel();
        let Some(queue) = &self.queue else {
            return Err(WriterError::Away("the provider is shutting down".into()));
        };
        match queue.try_send((contribution, answer)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(WriterError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                return Err(WriterError::Away("the thread that writes has ended".into()));
            }
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(WriterError::Away("the thread that writes has ended".into())),
        }
    }
}

/// Stores waiting contributions before the thread ends.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(mut store: Box<dyn Store>, jobs: &Receiver<Job>, most: u64) {
    while let Ok(first) = jobs.recv() {
        let mut together = vec![first];
        together.extend(jobs.try_iter().take(TOGETHER - 1));
        let (contributions, answers): (Vec<_>, Vec<_>) = together.into_iter().unzip();
        let done = store.store(&contributions, most);
        match done {
            // A client that no longer waits will resend.
            Ok(done) => answers.into_iter().zip(done).for_each(|(answer, stored)| {
                let _ = answer.send(Ok(stored));
            }),
            Err(e) => answers.into_iter().for_each(|answer| {
                let _ = answer.send(Err(WriterError::Away(e.to_string())));
            }),
        }
    }
}
