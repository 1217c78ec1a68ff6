//! The address of a database, and how to connect to it.

use super::tls::Tls;
use crate::error::{Error, Result, message_of};
use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Time limits for a connection and for a response.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(15);

/// The address of a database. `Debug` omits its password.
#[derive(Clone, Debug)]
pub struct Address {
    config: Config,
    /// Certificate authorities for the server; `None` for the default ones.
    authorities: Option<PathBuf>,
}

impl Address {
    /// Parses `postgres://user@host/database?sslmode=require&sslrootcert=FILE`. A server on another
    /// machine requires TLS.
    pub fn parse(url: &str) -> Result<Self> {
        let (url, authorities) = without_authorities(url);
        let mut config: Config = url.parse().map_err(|e: postgres::Error| {
            let why = std::error::Error::source(&e).map_or(e.to_string(), ToString::to_string);
            Error::mistake(format!(
                "the database's address is not like postgres://user@host/database: {why}"
            ))
        })?;
        if config.get_hosts().is_empty() {
            return Err(Error::mistake(
                "the database's address has no host: postgres://user@host/database, or \
                 postgres:///database?host=/run/postgresql",
            ));
        }
        let secure = config.get_ssl_mode() == SslMode::Require;
        let here = config.get_hosts().iter().all(is_here)
            && config.get_hostaddrs().iter().all(IpAddr::is_loopback);
        if !secure && !here {
            return Err(Error::mistake(
                "a database on another machine needs TLS: add ?sslmode=require to its address",
            ));
        }
        if !secure && authorities.is_some() {
            return Err(Error::mistake("sslrootcert has no effect without sslmode=require"));
        }
        config
            .ssl_mode(if secure { SslMode::Require } else { SslMode::Disable })
            .application_name("undertone")
            .connect_timeout(CONNECT)
            .tcp_user_timeout(ANSWER)
            .keepalives_idle(ANSWER);
        Ok(Self { config, authorities })
    }

    /// Whether the address contains a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Connects. A password that is not in the address is read from PGPASSWORD, where other users
    /// of the machine cannot see it.
    pub fn connect(&self) -> Result<Client> {
        let mut config = self.config.clone();
        if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        let connected = match config.get_ssl_mode() {
            SslMode::Require => config.connect(Tls::trusting(self.authorities.as_deref())?),
            _ => config.connect(NoTls),
        };
        connected.map_err(|e| {
            let message = message_of(&e);
            let sentence = format!("the database cannot be reached: PostgreSQL: {message}");
            // A wrong name, password or database does not fix itself.
            match e.code().map(postgres::error::SqlState::code) {
                Some(code) if code.starts_with("28") || code.starts_with("3D") => {
                    Error::mistake(sentence)
                }
                _ => Error::Failed(sentence),
            }
        })
    }
}

/// Removes `sslrootcert=FILE` from an address.
fn without_authorities(url: &str) -> (String, Option<PathBuf>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let (mut rest, mut authorities) = (Vec::new(), None);
    for part in query.split('&') {
        match part.strip_prefix("sslrootcert=") {
            Some(file) => authorities = Some(PathBuf::from(file)),
            None => rest.push(part),
        }
    }
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    (format!("{base}{query}"), authorities)
}

fn is_here(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_elsewhere_is_reached_by_tls() {
        let parse = |url: &str| Address::parse(url).map_err(|e| e.to_string());
        for right in [
            "postgres://ada@localhost/releases",
            "postgresql://ada:secret@127.0.0.1:5433/releases",
            "postgres://ada@%2Frun%2Fpostgresql/releases",
            "postgres:///releases?host=/run/postgresql&user=ada",
            "postgres://ada@db.example/releases?sslmode=require",
            "postgres://ada@db.example/releases?sslmode=require&sslrootcert=/etc/db.pem",
        ] {
            assert!(parse(right).is_ok(), "{right}: {:?}", parse(right));
        }
        for (wrong, why) in [
            ("postgres://ada@db.example/releases", "sslmode=require"),
            ("postgres://ada@db.example/releases?sslmode=prefer", "sslmode=require"),
            ("postgres://ada@localhost/releases?hostaddr=10.0.0.1", "sslmode=require"),
            ("postgres://ada@localhost,db.example/releases", "sslmode=require"),
            ("postgres://ada@localhost/releases?sslrootcert=a.pem", "no effect"),
            ("postgres://ada@localhost/releases?sslmod=require", "sslmod"),
            ("postgres://ada@localhost:port/releases", "port"),
            ("postgres://", "no host"),
        ] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let address = Address::parse("postgres://ada:hunter2@localhost/releases").unwrap();
        assert!(!format!("{address:?}").contains("hunter2"));
        let said = Address::parse("postgres://ada:hunter2@db.example/x").unwrap_err().to_string();
        assert!(!said.contains("hunter2"), "{said}");
    }
}
