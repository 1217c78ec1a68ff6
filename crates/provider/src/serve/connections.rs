//! Accepts connections with time limits, and drains them on shutdown.

use super::Limits;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Serves until `stopping` is true, and then finishes requests in progress.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.changed() => break,
        };
        // For example, no file descriptors are left; other connections will close.
        let Ok((socket, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // A connection above the limit is closed immediately instead of waiting silently.
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(most = limits.connections, "a connection above the limit is closed");
            continue;
        };
        let _ = socket.set_nodelay(true);
        let (router, acceptor, stopping) = (router.clone(), acceptor.clone(), stopping.clone());
        open.spawn(async move {
            let _place = place;
            match acceptor {
                None => connection(socket, router, limits, stopping).await,
                Some(acceptor) => {
                    let accepted = acceptor.accept(socket).into_fallible();
                    match timeout(limits.header, accepted).await {
                        Ok(Ok(socket)) => connection(socket, router, limits, stopping).await,
                        Ok(Err((why, socket))) => {
                            tracing::debug!(%why, "no TLS");
                            close(socket).await;
                        }
                        Err(_) => tracing::debug!("a TLS handshake was too slow"),
                    }
                }
            }
        });
    }
    drop(listener);
    let drained = async { while open.join_next().await.is_some() {} };
    let _ = timeout(limits.drain, drained).await;
}

/// Closes a connection after an alert that states the reason. Data that the client has sent in the
/// meantime is read: closing with unread bytes would reset the connection, and the alert might be
/// lost.
async fn close(mut socket: TcpStream) {
    let _ = socket.shutdown().await;
    let mut unread = socket.take(64 << 10);
    let mut nowhere = tokio::io::sink();
    let reading = tokio::io::copy(&mut unread, &mut nowhere);
    let _ = timeout(Duration::from_secs(1), reading).await;
}

async fn connection(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(router);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        // This also limits the idle time of a connection that is kept open.
        .header_read_timeout(limits.header)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(serving);
    let ended = async {
        if *stopping.borrow() {
            serving.as_mut().graceful_shutdown();
            return serving.await;
        }
        tokio::select! {
            ended = serving.as_mut() => ended,
            _ = stopping.changed() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    };
    let _ = timeout(limits.connection, ended).await;
}
