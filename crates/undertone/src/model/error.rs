//! What can go wrong with a model, in one sentence each that says what to do.

use std::path::PathBuf;

/// A mistake in a model folder, an adapter folder or what was asked of a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that the folder must have.
    #[error("{path} is missing: {what_to_do}", path = path.display())]
    MissingFile {
        /// The file that was looked for.
        path: PathBuf,
        /// The way out.
        what_to_do: String,
    },
    /// Weights in Python's pickle format, which can run code when it is read.
    #[error(
        "{path} is a pickle checkpoint, which can run code when read; convert it once in Python with \
         AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)", path = path.display()
    )]
    Pickle {
        /// The pickle file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A configuration that cannot be used.
    #[error("{path}: {problem}", path = path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A weights file that cannot be used.
    #[error("{path}: {problem}", path = path.display())]
    Weights {
        /// The weights file.
        path: PathBuf,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A tensor that the architecture needs.
    #[error("{path} has no tensor {name}; are config.json and the weights of the same \
     model?", path = path.display())]
    MissingTensor {
        /// Its name.
        name: String,
        /// The weights.
        path: PathBuf,
    },
    /// A tensor of another shape than the configuration says.
    #[error(
        "tensor {name} has shape {found:?} in the weights, but config.json asks for {expected:?}"
    )]
    Shape {
        /// Its name.
        name: String,
        /// By the configuration.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// Tuning that does not fit the model.
    #[error("{0}")]
    Tuning(String),
    /// A request that does not fit the model.
    #[error("{0}")]
    Request(String),
    /// The hub did not give the model.
    #[error(
        "{name} could not be fetched from the hub ({problem}); give a folder, or check the name \
         and the network"
    )]
    Hub {
        /// The model's name there.
        name: String,
        /// What the hub said.
        problem: String,
    },
    /// A tensor operation failed: operands do not go together, or the device failed.
    #[error(transparent)]
    Tensor(#[from] crate::tensor::Error),
}

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;
