//! Where the lines of a register are kept.

use crate::error::Result;

/// Keeps lines. Implementers promise:
///
/// - `append` is one transaction: no other process adds a line between the text that `decide` sees
///   and the line that it returns, and the line is durable when `append` returns.
/// - A process that dies inside of `append` leaves the line whole or not at all.
/// - Lines are never changed or removed, and missing ones are noticed.
pub trait Store: std::fmt::Debug + Send {
    /// All lines, each with its line break.
    fn read(&self) -> Result<String>;

    /// Appends the line that `decide` returns for the lines so far; nothing if it returns `None`.
    fn append(&self, decide: &mut dyn FnMut(&str) -> Result<Option<String>>) -> Result<()>;

    /// What the store is called in messages.
    fn place(&self) -> String;
}
