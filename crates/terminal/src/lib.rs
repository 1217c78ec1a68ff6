//! Shared by the programs `undertone` and `undertone-provider`: output, device selection, stopping
//! on Ctrl-C, and errors in the command line.

pub mod device;
pub mod output;
pub mod stop;

use clap::error::{ContextKind, ContextValue};
use std::process::ExitCode;

/// Exit code of a run stopped by a signal, as shells report for SIGINT.
pub const STOPPED: u8 = 130;

/// Prints help and version unchanged, and an error as one sentence, without the usage shown by
/// `--help`.
pub fn misread(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    if sentence.starts_with("error:") {
        let hint = match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) => format!("did you mean {flag}?"),
            _ => "see --help".to_owned(),
        };
        output::error(&format!("{sentence} ({hint})"));
    } else {
        // Called without a verb: clap shows the help.
        let _ = error.print();
    }
    ExitCode::from(2)
}
