//! Rows of a file that were excluded or look like a mistake.

/// Row counts. They depend on private data: only the data curator may see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows whose author already has the maximum number of examples.
    pub beyond_most_per_author: u64,
    /// Rows of units outside the part of the file being read.
    pub in_other_part: u64,
    /// Rows that were read but contain no text, or only white space.
    pub without_text: u64,
}
