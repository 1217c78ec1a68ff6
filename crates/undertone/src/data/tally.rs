//! Rows of a file that are left out or look like a mistake.

/// Numbers of rows. They depend on private data: the curator may see them, and nobody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows whose author has the maximum number of examples already.
    pub beyond_most_per_author: u64,
    /// Rows of units that are not in the part of the file that is read.
    pub in_other_part: u64,
    /// Rows that are read and have no text: white space at most.
    pub without_text: u64,
}
