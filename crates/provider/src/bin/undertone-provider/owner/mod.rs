//! `undertone-provider contribute` and `undertone-provider query`: the side that has texts.

mod contribute;
mod query;

pub use contribute::Contribute;
pub use query::Query;

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use undertone_provider::owner::{Bound, Endpoint, Identity, Provider, default_home};
use undertone_provider::{Hash, unhex};

/// The provider, and the owner's own folder and bound.
#[derive(Args)]
pub struct OwnerArguments {
    /// URL of the provider; its task is pinned on first use
    #[arg(long, value_name = "URL")]
    task: String,
    /// File with the token issued by the provider
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// SHA-256 fingerprint of the provider's certificate, as printed by `undertone-provider serve`;
    /// pinned on first use
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    fingerprint: Option<Hash>,
    /// Certificate authorities to trust for the provider's certificate (PEM) [default: Mozilla's
    /// root certificates]
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    ca: Option<PathBuf>,
    /// Client certificate to present to the provider (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Expected hash of the task, as published by the provider
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    task_hash: Option<Hash>,
    /// Maximum total ε of all releases of one text, over all tasks in the owner's folder
    #[arg(long, value_name = "EPSILON")]
    epsilon_at_most: f64,
    /// δ of `--epsilon-at-most`
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Owner's folder with secret, ledgers, releases and receipts [default: undertone/owner in
    /// $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR")]
    owner: Option<PathBuf>,
}

fn sha256(text: &str) -> Result<Hash, &'static str> {
    unhex(&text.replace(':', "").to_ascii_lowercase()).ok_or("it must have 64 hexadecimal digits")
}

impl OwnerArguments {
    fn provider(&self) -> Outcome<Provider> {
        let token = undertone_run::read_settings(&self.token_file)
            .map_err(undertone_run::Error::io(&self.token_file))?;
        let token = token.trim().to_owned();
        if token.is_empty() || token.contains(char::is_whitespace) {
            return Err(Failure::arguments(format!(
                "{} must contain exactly one token",
                self.token_file.display()
            )));
        }
        let identity = match (&self.client_cert, &self.client_key) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            _ => None,
        };
        Ok(Provider {
            endpoint: Endpoint::parse(&self.task)?,
            token: Some(token),
            fingerprint: self.fingerprint,
            authorities: self.ca.clone(),
            identity,
            task: self.task_hash,
        })
    }

    fn home(&self) -> Outcome<PathBuf> {
        self.owner.clone().or_else(default_home).ok_or_else(|| {
            Failure::arguments("pass the owner's folder with --owner: there is no home folder")
        })
    }

    fn bound(&self) -> Bound {
        Bound { epsilon: self.epsilon_at_most, delta: self.delta }
    }
}

/// Prints how many texts the provider's tokenizer could not read. Only the owner may see this.
fn warn_untokenized(rows: u64) {
    if rows > 0 {
        crate::output::note(format_args!(
            "warning: the task's tokenizer could not read {rows} of the new rows; a fixed token \
             was released for each of them, and the provider cannot tell which they are"
        ));
    }
}
