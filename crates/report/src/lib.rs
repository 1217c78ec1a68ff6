//! Reports about finished runs.
//!
//! ```text
//! run folder ─ folder ─▶ Run ─ section ─▶ Document ─┬─ html ─────▶ one file, nothing outside it
//!                 │                                 └─ markdown ─▶ the same facts as tables
//!              ledger ─▶ ε, δ, what an attacker can reach
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
//! There are no tensors here: everything is read from the files of the folder. Every ε is that of
//! the ledger's [`Guarantee`](undertone_accounting::Guarantee).

mod chart;
mod document;
mod error;
mod folder;
mod html;
mod markdown;
pub mod plot;
mod section;
mod words;

pub use document::{Block, Document, Section, Standing, Table};
pub use error::{Error, Result};
pub use folder::Run;

/// What is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Leave out what was computed from the private data without noise and no guarantee covers:
    /// training losses, times, memory, attacks.
    pub public: bool,
}

/// The report about one or several runs, to be written by [`Document::html`] or
/// [`Document::markdown`].
pub fn report(runs: &[Run], options: Options) -> Result<Document> {
    section::document(runs, options)
}
