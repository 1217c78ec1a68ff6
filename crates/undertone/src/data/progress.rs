//! The progress bar of reading a file.

use super::read::Meter;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;

/// A progress bar, hidden unless it is wanted and standard error is a terminal.
pub(crate) fn bar(path: &Path, meter: &Meter, wanted: bool) -> ProgressBar {
    if !wanted || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(meter.total());
    if let Ok(style) =
        ProgressStyle::with_template("reading {msg} {bar:30} {percent:>3} %, {eta} left")
    {
        bar.set_style(style);
    }
    bar.with_message(path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned())
}
