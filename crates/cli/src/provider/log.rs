//! What the server says of itself while it runs, on standard error.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// How much is said. No line has a token, a number of a release or anything of a text.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Log {
    Off,
    /// The store or the model fails
    Error,
    /// A limit was reached
    Warn,
    /// Each request and each contribution
    Info,
    /// Connections that came to nothing
    Debug,
}

impl Log {
    /// Begins to write lines, from all threads.
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
        // There is one already only if this is called twice, and then it goes on.
        let _ = tracing::subscriber::set_global_default(lines.finish());
    }
}
