//! The server's certificate: given, or a self-signed one created on first start.

use crate::error::{Error, Result};
use crate::hex::{hash, hex};
use crate::receipt::write_secret;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The certificate that the server presents.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Files in the PEM format.
    Files { certificate: PathBuf, key: PathBuf },
    /// A self-signed certificate and key in this folder.
    SelfSigned(PathBuf),
}

/// The TLS configuration of the server.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub config: Arc<ServerConfig>,
    /// SHA-256 of the certificate, which owners pin.
    pub fingerprint: String,
}

impl Certificate {
    /// Reads or creates the certificate. `names` are the server's host names. With `clients`, only
    /// clients certified by these authorities are admitted.
    pub fn server(&self, names: &[String], clients: Option<&Path>) -> Result<ServerTls> {
        let (certificate, key) = match self {
            Self::Files { certificate, key } => (certificate.clone(), key.clone()),
            Self::SelfSigned(folder) => self_signed(folder, names)?,
        };
        let chain = certificates(&certificate)?;
        let Some(first) = chain.first() else {
            return Err(Error::mistake(format!("{} has no certificate", certificate.display())));
        };
        let fingerprint = hex(&hash(first));
        let secret = PrivateKeyDer::from_pem_file(&key)
            .map_err(|e| Error::mistake(format!("{} is not a key: {e}", key.display())))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let wrong = |e: rustls::Error| {
            Error::mistake(format!("{} cannot be used: {e}", certificate.display()))
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(wrong)?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| {
                        Error::mistake(format!(
                            "{} is not a certificate authority: \
                                                {e}",
                            path.display()
                        ))
                    })?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|e| Error::mistake(format!("{}: {e}", path.display())))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, secret).map_err(wrong)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(ServerTls { config: Arc::new(config), fingerprint })
    }
}

/// The certificates in a PEM file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = |e: rustls::pki_types::pem::Error| {
        Error::mistake(format!("{} is not a certificate: {e}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(read)?;
    certificates.collect::<std::result::Result<_, _>>().map_err(read)
}

/// The paths of a self-signed certificate and its key, created if missing.
fn self_signed(folder: &Path, names: &[String]) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    if certificate.is_file() && key.is_file() {
        return Ok((certificate, key));
    }
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let failed = |e: rcgen::Error| Error::failed(format!("no certificate could be made: {e}"));
    let made = rcgen::generate_simple_self_signed(names.to_vec()).map_err(failed)?;
    // A key without its certificate, left by an interrupted start, is useless.
    let _ = std::fs::remove_file(&key);
    write_secret(&key, made.signing_key.serialize_pem().as_bytes())?;
    let text = made.cert.pem();
    undertone_run::write_atomically(&certificate, |out| {
        std::io::Write::write_all(out, text.as_bytes())
    })?;
    Ok((certificate, key))
}
