//! Errors of tensor operations, with the operands involved.

/// Rows and columns.
pub type Shape = [usize; 2];

/// Error of a tensor operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands with incompatible shapes.
    #[error("{operation} of {left:?} and {right:?}: {rule}")]
    Shapes {
        /// The operation.
        operation: &'static str,
        /// Shape of the first operand.
        left: Shape,
        /// Shape of the second operand.
        right: Shape,
        /// The rule that the shapes must satisfy.
        rule: &'static str,
    },
    /// A list whose length does not match its matrix.
    #[error("{operation} of {matrix:?}: there must be {expected} {what}, not {found}")]
    Count {
        /// The operation.
        operation: &'static str,
        /// Shape of the matrix.
        matrix: Shape,
        /// The kind of list.
        what: &'static str,
        /// Expected length.
        expected: usize,
        /// Actual length.
        found: usize,
    },
    /// A row or column index out of bounds.
    #[error("{operation} of {matrix:?}: there is no {what} {index}")]
    Index {
        /// The operation.
        operation: &'static str,
        /// Shape of the matrix.
        matrix: Shape,
        /// Kind of index, such as `row` or `column`.
        what: &'static str,
        /// The index, starting at 0.
        index: usize,
    },
    /// Sequences or heads that do not cover a matrix.
    #[error("{operation}: {problem}")]
    Layout {
        /// The operation.
        operation: &'static str,
        /// The requirement and how it is violated.
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
        /// Shape of the first operand.
        left: Shape,
        /// Device of the first operand.
        left_device: &'static str,
        /// Shape of the second operand.
        right: Shape,
        /// Device of the second operand.
        right_device: &'static str,
    },
    /// The request is not supported for these operands.
    #[error("{0}")]
    Unsupported(String),
    /// There is no GPU, or a required library is missing: one sentence that says which, and how to
    /// get it.
    #[error("{0}")]
    NoGpu(String),
    /// The memory of a GPU is full.
    #[error(
        "the GPU is out of memory: {needed} MiB more are needed, but {free} of {all} MiB are free; \
         use a smaller micro-batch"
    )]
    OutOfMemory {
        /// MiB requested.
        needed: usize,
        /// MiB free.
        free: usize,
        /// MiB in total.
        all: usize,
    },
    /// The device is absent, or its driver failed.
    #[error("the device failed: {0}")]
    Device(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Result of a tensor operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Checks the length of a list that belongs to a matrix.
pub(crate) fn count(
    operation: &'static str,
    matrix: Shape,
    what: &'static str,
    actual: usize,
    expected: usize,
) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(Error::Count { operation, matrix, what, expected, found: actual })
}

/// Checks a rule about the shapes of two operands.
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
