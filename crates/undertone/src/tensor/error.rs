//! What can go wrong in a tensor operation, with the operands that it happened to.

/// Rows and columns.
pub type Shape = [usize; 2];

/// A failed tensor operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands whose shapes do not go together.
    #[error("{operation} of {left:?} and {right:?}: {rule}")]
    Shapes {
        /// The operation.
        operation: &'static str,
        /// Of the first operand.
        left: Shape,
        /// Of the second operand.
        right: Shape,
        /// What must hold.
        rule: &'static str,
    },
    /// A list that does not fit its matrix.
    #[error("{operation} of {matrix:?}: there must be {expected} {what}, not {found}")]
    Count {
        /// The operation.
        operation: &'static str,
        /// Of the matrix.
        matrix: Shape,
        /// What is listed.
        what: &'static str,
        /// How many there must be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// Rows or columns beyond the end of a matrix.
    #[error("{operation} of {matrix:?}: there is no {what} {index}")]
    Index {
        /// The operation.
        operation: &'static str,
        /// Of the matrix.
        matrix: Shape,
        /// Row or column.
        what: &'static str,
        /// Its number, from 0.
        index: usize,
    },
    /// Sequences or heads that do not cover a matrix.
    #[error("{operation}: {problem}")]
    Layout {
        /// The operation.
        operation: &'static str,
        /// What must hold, and what does not.
        problem: String,
    },
    /// Operands on different devices.
    #[error(
        "{operation} of {left:?} on {left_device} and {right:?} on {right_device}: both must be on \
         one device"
    )]
    MixedDevices {
        /// The operation.
        operation: &'static str,
        /// Of the first operand.
        left: Shape,
        /// Where the first operand is.
        left_device: &'static str,
        /// Of the second operand.
        right: Shape,
        /// Where the second operand is.
        right_device: &'static str,
    },
    /// What was asked for is not defined for these operands.
    #[error("{0}")]
    Unsupported(String),
    /// There is no GPU, or a library that computing on it needs is missing: a sentence that says
    /// which, and how to get it.
    #[error("{0}")]
    NoGpu(String),
    /// The memory of a GPU is full.
    #[error(
        "the GPU's memory is full: {needed} MiB more are needed, and {free} of {all} MiB are free; \
         a smaller micro-batch needs less"
    )]
    OutOfMemory {
        /// MiB that were asked for.
        needed: usize,
        /// MiB that are free.
        free: usize,
        /// MiB that there are.
        all: usize,
    },
    /// The device is absent, or its driver failed.
    #[error("the device failed: {0}")]
    Device(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A list must be as long as the matrix asks for.
pub(crate) fn count(
    operation: &'static str,
    matrix: Shape,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Count { operation, matrix, what, expected, found })
}

/// A rule about the shapes of two operands must hold.
pub(crate) fn fits(
    holds: bool,
    operation: &'static str,
    left: Shape,
    right: Shape,
    rule: &'static str,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Shapes { operation, left, right, rule })
}
