//! Verifies that the server is the one the owner means, by a pinned certificate or by trusted
//! authorities.

use super::client::Identity;
use crate::error::{Error, Result};
use crate::hex::{Hash, hash, hex};
use crate::serve::certificates;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// TLS configuration of the client. With a fingerprint, the server must present exactly that
/// certificate, and its names and dates do not matter; otherwise, trusted authorities must have
/// issued its certificate.
pub fn client_config(
    fingerprint: Option<Hash>,
    authorities: Option<&Path>,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |e: rustls::Error| Error::failed(format!("TLS cannot be used: {e}"));
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = match fingerprint {
        Some(fingerprint) => {
            let verifier = Arc::new(Pinned { fingerprint, provider });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        None => {
            let mut roots = RootCertStore::empty();
            match authorities {
                None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
                Some(path) => {
                    for certificate in certificates(path)? {
                        roots.add(certificate).map_err(|e| {
                            Error::mistake(format!(
                                "{} is not a certificate authority: \
                                                    {e}",
                                path.display()
                            ))
                        })?;
                    }
                }
            }
            builder.with_root_certificates(roots)
        }
    };
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|e| Error::mistake(format!("{} is not a key: {e}", key.display())))?;
            builder.with_client_auth_cert(certificates(certificate)?, secret).map_err(|e| {
                Error::mistake(format!("{} cannot be used: {e}", certificate.display()))
            })?
        }
    };
    Ok(Arc::new(config))
}

/// Accepts only one certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: Hash,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let fingerprint = hash(certificate);
        if fingerprint == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!(
            "its certificate has the fingerprint {}, but {} is pinned",
            hex(&fingerprint),
            hex(&self.fingerprint)
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
