//! One thread writes to the store. Contributions that wait are stored together in one transaction,
//! so that many owners share one sync of the disk.

use super::{Contribution, Store, Stored};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The most contributions of a transaction.
const TOGETHER: usize = 64;

type Job = (Contribution, oneshot::Sender<Result<Stored, WriterError>>);

/// Why a contribution was not stored, though nothing is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterError {
    /// Too many contributions wait.
    Busy,
    /// The store fails: its disk is full, or it is away.
    Away(String),
}

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread; at most `waiting` contributions wait, and the store has at most `most`
    /// releases of an epoch.
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

/// What waits is stored before the thread ends.
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
            // Whoever does not wait any more will send it again.
            Ok(done) => answers.into_iter().zip(done).for_each(|(answer, stored)| {
                let _ = answer.send(Ok(stored));
            }),
            Err(e) => answers.into_iter().for_each(|answer| {
                let _ = answer.send(Err(WriterError::Away(e.to_string())));
            }),
        }
    }
}
