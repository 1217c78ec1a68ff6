//! `undertone-provider serve`

use super::log::Log;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::stop::Stop;
use crate::task::TaskArguments;
use clap::Args;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use undertone_provider::serve::{Certificate, Limits, Options, serve};

/// Serve a task to owners over HTTPS
///
/// Uses a self-signed certificate unless `--tls-cert` is given.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone-provider serve task/ --listen 0.0.0.0:8443 --name \
     provider.example --admin 127.0.0.1:8444")]
pub struct Serve {
    #[command(flatten)]
    task: TaskArguments,
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Address of the provider's page and metrics; must be a loopback address [default: disabled]
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<SocketAddr>,
    /// Certificate chain (PEM) [default: self-signed, created on first start]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Host name in the self-signed certificate (repeatable) [default: localhost and the IP address
    /// of `--listen`]
    #[arg(long, value_name = "HOST", conflicts_with = "tls_cert")]
    name: Vec<String>,
    /// Require client certificates that are in this file, or issued by an authority in it (PEM)
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Serve plain HTTP, on 127.0.0.1 or ::1 only
    #[arg(long, conflicts_with_all = ["tls_cert", "client_ca", "name"])]
    insecure: bool,
    /// Maximum number of concurrent connections
    #[arg(long, value_name = "N", default_value_t = 4096)]
    most_connections: usize,
    /// Maximum number of texts of all owners together
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    most_texts: u64,
    /// Maximum number of requests per owner and second, on average; bursts may be larger
    #[arg(long, value_name = "N", default_value_t = 50.0)]
    most_per_second: f64,
    /// Log level, on standard error
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Log::Warn)]
    log: Log,
}

impl Serve {
    pub fn run(self, output: Output) -> Outcome {
        self.log.start();
        let folder = self.task.folder()?;
        if self.most_connections == 0 || !matches!(self.most_per_second, rate if rate > 0.0) {
            return Err(Failure::arguments("limits of the server must be above 0"));
        }
        let certificate = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Certificate::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ => Certificate::SelfSigned(folder.tls()),
        };
        let mut names = self.name.clone();
        if names.is_empty() {
            names = vec!["localhost".to_owned(), self.listen.ip().to_string()];
        }
        let tls = match self.insecure {
            true => None,
            false => Some(certificate.server(&names, self.client_ca.as_deref())?),
        };
        let limits = Limits {
            connections: self.most_connections,
            releases: self.most_texts,
            per_second: self.most_per_second,
            burst: 4.0 * self.most_per_second,
            ..Limits::default()
        };
        let store = self.task.location(&folder)?;
        let options = Options { listen: self.listen, admin: self.admin, tls, store, limits };
        let stop = Stop::listen();
        stop.steps_begin();
        serve(folder, &options, &stop.asked, &mut |ready| {
            if output.json {
                output::json(&json!({
                    "url": ready.url, "admin": ready.admin, "fingerprint": ready.fingerprint,
                }));
                return;
            }
            output::line(format_args!("listening on {}", ready.url));
            if let Some(admin) = &ready.admin {
                output::line(format_args!("page and metrics on {admin}"));
            }
            if let Some(fingerprint) = &ready.fingerprint {
                output::line(format_args!("certificate fingerprint (SHA-256): {fingerprint}"));
            }
        })?;
        output::note("stopped; everything that was acknowledged is stored");
        Ok(())
    }
}
