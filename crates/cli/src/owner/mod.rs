//! `undertone contribute` and `undertone query`: the side that has texts.

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
    /// Address of the provider; its task is pinned on the first use
    #[arg(long, value_name = "URL")]
    task: String,
    /// File with the token that the provider gave
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// SHA-256 of the provider's certificate, as provider serve prints it; pinned on the first use
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    fingerprint: Option<Hash>,
    /// Authorities (PEM) that vouch for the provider's certificate [default: the usual ones]
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    ca: Option<PathBuf>,
    /// Certificate (PEM) by which the provider knows this client
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Hash that the task must have, as the provider told it
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    task_hash: Option<Hash>,
    /// The most that all releases of one text may cost, under all tasks of the owner's folder
    #[arg(long, value_name = "EPSILON")]
    epsilon_at_most: f64,
    /// δ that --epsilon-at-most is for
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// The owner's folder: secret, ledgers, releases and receipts [default: undertone/owner in the
    /// user's data folder]
    #[arg(long, value_name = "DIR")]
    owner: Option<PathBuf>,
}

fn sha256(text: &str) -> Result<Hash, &'static str> {
    unhex(&text.replace(':', "").to_ascii_lowercase()).ok_or("it is 64 hexadecimal digits")
}

impl OwnerArguments {
    fn provider(&self) -> Outcome<Provider> {
        let token = undertone_run::read_settings(&self.token_file)
            .map_err(undertone_run::Error::io(&self.token_file))?;
        let token = token.trim().to_owned();
        if token.is_empty() || token.contains(char::is_whitespace) {
            return Err(Failure::arguments(format!(
                "{} does not hold one token",
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
            Failure::arguments("name the owner's folder by --owner: there is no home folder")
        })
    }

    fn bound(&self) -> Bound {
        Bound { epsilon: self.epsilon_at_most, delta: self.delta }
    }
}

/// Says how many texts the provider's tokenizer could not read. This is for the owner alone.
fn warn_untokenized(rows: u64) {
    if rows > 0 {
        crate::output::note(format_args!(
            "warning: the task's tokenizer could not read {rows} of the new rows; a fixed token \
             was released for each of them, and the provider cannot tell which they are"
        ));
    }
}
