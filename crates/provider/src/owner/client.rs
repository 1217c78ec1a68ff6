//! Requests to the provider. Their headers are functions of the address, the token and the task.

use crate::error::{Error, Result};
use crate::hex::Hash;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const CONNECT: Duration = Duration::from_secs(10);
/// Time limit for a response, including the server's own waiting.
const ANSWER: Duration = Duration::from_secs(60);

/// A client certificate and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The provider's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub secure: bool,
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    /// Parses `https://host:port`; `http://` is accepted only for this machine.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = || {
            Error::mistake(format!(
                "--task must be an address such as https://host:8443, not \
                                       {url}"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (rest, if secure { 443 } else { 80 }),
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong());
        }
        let local = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !secure && !local {
            return Err(Error::mistake(
                "http:// works only with a provider on this machine; otherwise the token would be \
                 visible on the network",
            ));
        }
        Ok(Self { secure, host: host.to_owned(), port })
    }

    /// The normalized address, under which a task is pinned.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Response {
    /// The detail of a problem+json response.
    pub fn problem(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Problem {
            detail: String,
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => undertone_run::printable_line(&problem.detail).into_owned(),
            Err(_) => format!("it answers with status {}", self.status),
        }
    }
}

/// A connection to the provider, opened when needed.
pub struct Client {
    endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    pinned: bool,
    token: Option<String>,
    runtime: Runtime,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client {{ {:?} }}", self.endpoint)
    }
}

impl Client {
    /// A client that uses TLS if the address requires it.
    pub fn new(
        endpoint: Endpoint,
        tls: Arc<ClientConfig>,
        fingerprint: Option<&Hash>,
        token: Option<String>,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::failed(format!("no thread for the network: {e}")))?;
        let tls = endpoint.secure.then_some(tls);
        Ok(Self { endpoint, tls, pinned: fingerprint.is_some(), token, runtime, open: None })
    }

    /// Requests at most `most` bytes.
    pub fn get(&mut self, path: &str, part: Option<Range<u64>>, most: usize) -> Result<Response> {
        let range = part.map(|part| format!("bytes={}-{}", part.start, part.end.max(1) - 1));
        self.request(Method::GET, path, None, range, most)
    }

    /// Sends a body with the token.
    pub fn post(&mut self, path: &str, body: Vec<u8>) -> Result<Response> {
        self.request(Method::POST, path, Some(body), None, 4 << 20)
    }

    fn request(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        range: Option<String>,
        most: usize,
    ) -> Result<Response> {
        let posts = body.is_some();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.authority());
        if let Some(range) = range {
            request = request.header(header::RANGE, range);
        }
        if let Some(token) = self.token.as_ref().filter(|_| posts) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            request = request.header(header::CONTENT_TYPE, "application/octet-stream");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request
            .body(body)
            .map_err(|_| Error::mistake("the token contains invalid characters"))?;
        let Self { endpoint, tls, pinned, runtime, open, .. } = self;
        let pinned = *pinned;
        let answered = runtime.block_on(async {
            let mut sender = match open.take().filter(SendRequest::is_ready) {
                Some(sender) => sender,
                None => connect(endpoint, tls.as_ref(), pinned).await?,
            };
            let gone = |e: hyper::Error| match refused_certificate(&e) {
                true => Error::mistake(format!(
                    "{} requires a client certificate: pass --client-cert and --client-key",
                    endpoint.url()
                )),
                false => Error::failed(format!("the connection to {} broke: {e}", endpoint.url())),
            };
            let slow = |_| Error::failed(format!("{} does not answer", endpoint.url()));
            let response =
                timeout(ANSWER, sender.send_request(request)).await.map_err(slow)?.map_err(gone)?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), most).collect();
            let body = timeout(ANSWER, body).await.map_err(slow)?.map_err(|_| {
                Error::failed(format!(
                    "the answer from {} is truncated or too \
                                       long",
                    endpoint.url()
                ))
            })?;
            Ok::<_, Error>((sender, Response { status, body: body.to_bytes().to_vec() }))
        });
        let (sender, response) = answered?;
        self.open = Some(sender);
        Ok(response)
    }

    /// Closes the connection; the next request opens a new one.
    pub fn close(&mut self) {
        self.open = None;
    }
}

/// Whether the server closed a connection because of the client's certificate. In TLS 1.3 the
/// client learns this only after its own handshake.
fn refused_certificate(error: &hyper::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(rustls::Error::AlertReceived(alert)) = inner.and_then(|e| e.downcast_ref()) {
            return matches!(
                alert,
                Alert::CertificateRequired
                    | Alert::BadCertificate
                    | Alert::UnsupportedCertificate
                    | Alert::CertificateRevoked
                    | Alert::CertificateExpired
                    | Alert::CertificateUnknown
                    | Alert::UnknownCA
                    | Alert::AccessDenied
                    | Alert::DecryptError
            );
        }
        next = error.source();
    }
    false
}

async fn connect(
    endpoint: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
    pinned: bool,
) -> Result<SendRequest<Full<Bytes>>> {
    let away =
        |e: std::io::Error| Error::failed(format!("{} cannot be reached: {e}", endpoint.url()));
    let slow = |_| Error::failed(format!("{} does not answer", endpoint.url()));
    let address = (endpoint.host.as_str(), endpoint.port);
    let socket =
        timeout(CONNECT, TcpStream::connect(address)).await.map_err(slow)?.map_err(away)?;
    let _ = socket.set_nodelay(true);
    let Some(config) = tls else { return handshake(socket, endpoint).await };
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|_| Error::mistake(format!("{} is not a server name", endpoint.host)))?;
    let connector = TlsConnector::from(config.clone());
    let shaken = timeout(CONNECT, connector.connect(name, socket)).await.map_err(slow)?;
    let socket = shaken.map_err(|e| {
        // Errors from rustls concern certificates; all others are network errors.
        if !e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
            return away(e);
        }
        let hint = match pinned {
            true => "",
            false => {
                "; if the provider's certificate is self-signed, pass its fingerprint with \
                      --fingerprint"
            }
        };
        Error::mistake(format!("{} is not trusted: {e}{hint}", endpoint.url()))
    })?;
    handshake(socket, endpoint).await
}

async fn handshake(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    endpoint: &Endpoint,
) -> Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|e| Error::failed(format!("{} does not speak HTTP: {e}", endpoint.url())))?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_plain_http_stays_at_home() {
        let url = |text: &str| Endpoint::parse(text).map(|endpoint| endpoint.url());
        assert_eq!(url("https://a.example:8443/").unwrap(), "https://a.example:8443");
        assert_eq!(url("https://a.example").unwrap(), "https://a.example:443");
        assert_eq!(url("http://127.0.0.1:80").unwrap(), "http://127.0.0.1:80");
        assert_eq!(url("http://localhost:1").unwrap(), "http://localhost:1");
        assert_eq!(url("https://[::1]:9").unwrap(), "https://[::1]:9");
        assert_eq!(url("https://[::1]").unwrap(), "https://[::1]:443");
        for wrong in [
            "",
            "a.example",
            "ftp://a",
            "https://",
            "https://a b",
            "https://a:b",
            "https://a/b",
            "http://a.example",
            "http://10.0.0.1:80",
            "https://a:99999",
        ] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
