//! TLS to the database.

use crate::error::{Error, Result};
use postgres::Socket;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

/// Creates connections that verify the server's certificate and name.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

impl Tls {
    /// Trusts the certificate authorities in a PEM file, or the usual ones.
    pub fn trusting(authorities: Option<&Path>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                let problem = |e: &dyn std::fmt::Display| {
                    let path = path.display();
                    Error::mistake(format!("{path} is not a file of certificate authorities: {e}"))
                };
                for certificate in CertificateDer::pem_file_iter(path).map_err(|e| problem(&e))? {
                    let certificate = certificate.map_err(|e| problem(&e))?;
                    roots.add(certificate).map_err(|e| problem(&e))?;
                }
                if roots.is_empty() {
                    return Err(problem(&"it contains no certificate"));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::Failed(format!("TLS cannot be used: {e}")))?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(
        &mut self,
        host: &str,
    ) -> std::result::Result<Connect, InvalidDnsNameError> {
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Connect { connector: TlsConnector::from(self.config.clone()), name })
    }
}

/// A connection to one host that is being established.
pub struct Connect {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Stream(self.connector.connect(self.name, socket).await?)) })
    }
}

/// An encrypted connection.
pub struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
