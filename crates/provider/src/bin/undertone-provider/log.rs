//! The server's log, on standard error.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// Log level. No line contains a token, a number of a release or any part of a text.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Log {
    /// Nothing
    Off,
    /// Failures of the store or the model
    Error,
    /// Also limits that were reached
    Warn,
    /// Also every request and contribution
    Info,
    /// Also failed connections
    Debug,
}

impl Log {
    /// Starts logging, from all threads.
    pub fn start(self) {
        let most = match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        };
        let lines = tracing_subscriber::fmt()
            .with_max_level(most)
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(false);
        // Fails only if called twice, in which case the first logger stays.
        let _ = tracing::subscriber::set_global_default(lines.finish());
    }
}
