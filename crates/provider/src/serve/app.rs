//! State shared by all requests.

use super::Limits;
use super::limit::RateLimit;
use super::measure::Measured;
use super::predict::Predictor;
use super::problem::Problem;
use crate::error::Result;
use crate::hex::Hash;
use crate::receipt::SigningKey;
use crate::store::{Owner, Store, Writer, token_hash};
use crate::task::TaskFolder;
use axum::http::{HeaderMap, StatusCode, header};
use std::sync::{Arc, Mutex};
use tokio::time::timeout;

/// State shared by all requests.
pub struct App {
    pub folder: TaskFolder,
    pub key: SigningKey,
    pub writer: Writer,
    pub limits: Limits,
    pub measured: Measured,
    pub predictor: Predictor,
    reader: Mutex<Box<dyn Store>>,
    rate: RateLimit<Hash>,
}

impl App {
    pub fn new(
        folder: TaskFolder,
        reader: Box<dyn Store>,
        writer: Writer,
        limits: Limits,
    ) -> Result<Self> {
        Ok(Self {
            key: folder.key()?,
            predictor: Predictor::new(&folder),
            folder,
            writer,
            limits,
            measured: Measured::default(),
            reader: Mutex::new(reader),
            rate: RateLimit::new(limits.per_second, limits.burst),
        })
    }

    /// Reads from the store on a thread that may block.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&mut dyn Store) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, Problem> {
        let app = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let mut reader = match app.reader.lock() {
                Ok(reader) => reader,
                Err(poisoned) => poisoned.into_inner(),
            };
            ask(reader.as_mut())
        });
        match timeout(self.limits.store, asked).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(e))) => Err(self.away(&e.to_string())),
            Ok(Err(_)) => Err(self.away("a thread has ended")),
            Err(_) => Err(self.away("it does not answer in time")),
        }
    }

    /// A failure of the store. The reason is logged for the provider and not sent to owners.
    pub fn away(&self, why: &str) -> Problem {
        self.measured.store_failed();
        let why = undertone_run::printable_line(why);
        tracing::error!(%why, "the store does not answer");
        Problem::busy("the provider's store does not answer; nothing was stored, send it again")
    }

    /// The owner of a request's token and the token's hash, if the request is within the owner's
    /// rate limit.
    pub async fn owner(
        self: &Arc<Self>,
        headers: &HeaderMap,
    ) -> std::result::Result<(Owner, Hash), Problem> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = given.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Err(Problem::not_allowed());
        };
        let token = token_hash(token.trim());
        if !self.rate.allows(token) {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-fast",
                "too many requests with this token; wait a second",
            ));
        }
        match self.read(move |store| store.owner_of(&token)).await? {
            Some(owner) => Ok((owner, token)),
            None => Err(Problem::not_allowed()),
        }
    }
}
