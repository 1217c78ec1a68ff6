//! The provider's server: HTTPS for owners, and a page and metrics for the provider.

mod app;
mod connections;
mod contribute;
mod files;
mod limit;
mod measure;
mod page;
mod predict;
mod problem;
mod routes;
mod tls;

pub use predict::{Current, write_current};
pub use tls::{Certificate, ServerTls, certificates};

use crate::error::{Error, Result};
use crate::store::{Location, Writer};
use crate::task::TaskFolder;
use app::App;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

/// The server's address and limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address for owners.
    pub listen: SocketAddr,
    /// Address of the provider's page and metrics; `None` disables them.
    pub admin: Option<SocketAddr>,
    /// `None` for plain HTTP, which is only allowed on loopback.
    pub tls: Option<ServerTls>,
    pub store: Location,
    pub limits: Limits,
}

/// Limits of the server. Requests above a limit are refused, and nothing waits indefinitely.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of concurrent connections.
    pub connections: usize,
    /// Maximum number of contributions waiting to be stored.
    pub waiting: usize,
    /// Requests per owner and second on average, and at once.
    pub per_second: f64,
    pub burst: f64,
    /// Maximum number of releases per epoch, over all owners.
    pub releases: u64,
    /// Time limit for the header of a request and for a TLS handshake.
    pub header: Duration,
    /// Time limit for the body of a request.
    pub body: Duration,
    /// Time limit for the store.
    pub store: Duration,
    /// Time limit for a connection.
    pub connection: Duration,
    /// Time limit for requests in progress when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            waiting: 1024,
            per_second: 50.0,
            burst: 200.0,
            releases: 1_000_000_000,
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            store: Duration::from_secs(20),
            connection: Duration::from_secs(3600),
            drain: Duration::from_secs(20),
        }
    }
}

/// The addresses of a server that has started.
#[derive(Clone, Debug)]
pub struct Ready {
    /// URL for owners: `https://…`.
    pub url: String,
    /// URL of the provider's page.
    pub admin: Option<String>,
    /// SHA-256 of the certificate.
    pub fingerprint: Option<String>,
}

/// Serves a task until `stop` is set; requests in progress are finished first.
pub fn serve(
    folder: TaskFolder,
    options: &Options,
    stop: &Arc<AtomicBool>,
    ready: &mut dyn FnMut(&Ready),
) -> Result<()> {
    if options.tls.is_none() && !options.listen.ip().is_loopback() {
        return Err(Error::mistake(
            "--insecure works only on 127.0.0.1 and ::1; otherwise tokens would be visible on the \
             network",
        ));
    }
    if options.admin.is_some_and(|admin| !admin.ip().is_loopback()) {
        return Err(Error::mistake(
            "--admin works only on 127.0.0.1 and ::1, because the page has no login",
        ));
    }
    let limits = options.limits;
    let (reader, writer) = (options.store.open(&folder.hash)?, options.store.open(&folder.hash)?);
    let writer = Writer::start(writer, limits.waiting, limits.releases);
    let app = Arc::new(App::new(folder, reader, writer, limits)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::failed(format!("no threads for the server: {e}")))?;
    runtime.block_on(async {
        let listener = listen(options.listen).await?;
        let admin = match options.admin {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let at = |listener: &TcpListener| {
            listener.local_addr().map_err(|e| Error::failed(format!("no address: {e}")))
        };
        ready(&Ready {
            url: format!("{scheme}://{}", at(&listener)?),
            admin: admin
                .as_ref()
                .map(|l| Ok::<_, Error>(format!("http://{}", at(l)?)))
                .transpose()?,
            fingerprint: options.tls.as_ref().map(|tls| tls.fingerprint.clone()),
        });
        tracing::info!(address = %at(&listener)?, tls = options.tls.is_some(), "listening");
        let (stop_sender, stopping) = tokio::sync::watch::channel(false);
        let tls = options.tls.as_ref().map(|tls| tls.config.clone());
        let owners = routes::owners(app.clone());
        let serving = connections::serve(listener, tls, owners, limits, stopping.clone());
        let mut tasks = vec![tokio::spawn(serving)];
        if let Some(admin) = admin {
            let page = routes::admin(app.clone());
            tasks.push(tokio::spawn(connections::serve(admin, None, page, limits, stopping)));
        }
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tracing::info!("stopping: requests in progress are finished");
        let _ = stop_sender.send(true);
        for task in tasks {
            let _ = task.await;
        }
        Ok::<(), Error>(())
    })?;
    // Predictions in progress are not waited for; waiting contributions are stored when the writer
    // is dropped.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(app);
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|e| Error::mistake(format!("cannot listen on {address}: {e}")))
}
