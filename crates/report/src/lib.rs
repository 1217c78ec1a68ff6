//! Privacy reports on finished runs, from the files of their run folders.
//!
//! ```text
//! run folder ─ folder ─▶ Run ─ section ─▶ Document ─┬─ html ─────▶ one self-contained file
//!                 │                                 └─ markdown ─▶ the same facts as tables
//!              ledger ─▶ (ε, δ), trade-off curve
//! ```
//!
//! ```no_run
//! use undertone_report::{Options, Run, report};
//!
//! let runs = [Run::open("runs/epsilon-8".as_ref())?, Run::open("runs/epsilon-1".as_ref())?];
//! let page = report(&runs, Options { public: true })?.html();
//! std::fs::write("report.html", page)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`budgets`] is a different kind of page: the budgets of data sets, from a register.
//!
//! No model is loaded: everything is read from the run folder. Every ε is that of the ledger's
//! [`Guarantee`](undertone_accounting::Guarantee).

mod annex;
mod budgets;
mod chart;
mod document;
mod error;
mod folder;
mod hide;
mod html;
mod markdown;
pub mod plot;
mod section;
mod settings;
mod words;

pub use annex::Annex;
pub use budgets::budgets;
pub use document::{Block, Document, Section, Standing, Table};
pub use error::{Error, Result};
pub use folder::Run;

/// A comment in every report; a file with this mark may be overwritten.
pub const MARK: &str = "<!-- undertone report -->";

/// Part of the note in every report that was made with [`Options::public`].
pub const PUBLIC_NOTE: &str = "is left out of this report.";

/// Report options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Leave out figures that were computed from the private data without noise and that no
    /// guarantee covers (training losses, times, memory, attacks), and the folders of files.
    pub public: bool,
}

/// The report on one or several runs, to be rendered by [`Document::html`] or
/// [`Document::markdown`].
pub fn report(runs: &[Run], options: Options) -> Result<Document> {
    section::document(runs, options, &[])
}

/// The report on one run with annexes for reviewers.
pub fn report_with(run: &Run, options: Options, annexes: &[Annex]) -> Result<Document> {
    section::document(std::slice::from_ref(run), options, annexes)
}
