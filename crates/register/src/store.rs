//! Storage of the lines of a register.

use crate::error::Result;

/// Stores lines. Implementations guarantee:
///
/// - `append` is one transaction: no other process adds a line between the text that `decide` sees
///   and the line that it returns, and the line is durable when `append` returns.
/// - A process that dies during `append` leaves either the whole line or nothing.
/// - Lines are never changed or removed, and missing lines are detected.
pub trait Store: std::fmt::Debug + Send {
    /// All lines, each with its line break.
    fn read(&self) -> Result<String>;

    /// Appends the line that `decide` returns for the lines so far; nothing if it returns `None`.
    fn append(&self, decide: &mut dyn FnMut(&str) -> Result<Option<String>>) -> Result<()>;

    /// The store's name in messages.
    fn place(&self) -> String;
}
