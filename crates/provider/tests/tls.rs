//! Certificates created on first start are valid whatever the clock says.

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use undertone_provider::serve::{Certificate, certificates};

/// An owner whose clock is off by decades still accepts the certificate, if it verifies dates at
/// all; a client that pins a fingerprint does not.
#[test]
fn a_certificate_that_is_made_here_is_valid_whatever_the_clock_says() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["provider.example".to_owned(), "127.0.0.1".to_owned()];
    let made = Certificate::SelfSigned(folder.path().into());
    let first = made.server(&names, None).unwrap().fingerprint;
    let chain = certificates(&folder.path().join("certificate.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let verify = |name: &str, years: u64| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(years * 365 * 24 * 3600));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&chain[0], &[], &name, &[], at)
    };
    for years in [6, 30, 56, 80, 130] {
        assert!(verify("provider.example", years).is_ok(), "{years} years after 1970");
    }
    assert!(verify("127.0.0.1", 56).is_ok() && verify("other.example", 56).is_err());
    // The certificate is created once, so pins remain valid.
    assert_eq!(made.server(&names, None).unwrap().fingerprint, first);
}
