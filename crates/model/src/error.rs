//! Errors of models, adapters and their folders. Each message is one sentence that says what to do.

use std::path::PathBuf;

/// An error in a model folder, an adapter folder or a request to a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A required file is missing.
    #[error("{path} is missing: {what_to_do}", path = path.display())]
    MissingFile {
        /// Path of the missing file.
        path: PathBuf,
        /// What the user should do.
        what_to_do: String,
    },
    /// Weights in Python's pickle format, which can run code when loaded.
    #[error(
        "{path} is a pickle checkpoint, which can run code when loaded; convert it once in Python \
         with AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)",
        path = path.display()
    )]
    Pickle { path: PathBuf },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] undertone_settings::Error),
    /// A configuration is invalid or unsupported.
    #[error("{path}: {problem}", path = path.display())]
    Config {
        path: PathBuf,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// A weights file is invalid or unsupported.
    #[error("{path}: {problem}", path = path.display())]
    Weights {
        path: PathBuf,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// A tensor that the architecture needs is missing.
    #[error("{path} has no tensor {name}; are config.json and the weights of the same \
     model?", path = path.display())]
    MissingTensor {
        /// Name of the tensor.
        name: String,
        /// File or folder of the weights.
        path: PathBuf,
    },
    /// A tensor's shape differs from the configuration.
    #[error(
        "tensor {name} has shape {found:?} in the weights, but config.json requires {expected:?}"
    )]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Shape implied by the configuration.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A fine-tuning method or adapter is incompatible with the model.
    #[error("{0}")]
    Tuning(String),
    /// A request is incompatible with the model.
    #[error("{0}")]
    Request(String),
    /// The model could not be downloaded from the Hugging Face Hub.
    #[error(
        "{name} could not be downloaded from the Hugging Face hub ({problem}); give a folder, or \
         check the name and the network"
    )]
    Hub {
        /// Model name on the Hub.
        name: String,
        /// The error reported by the Hub.
        problem: String,
    },
    /// A tensor operation failed: the operands are incompatible, or the device failed.
    #[error(transparent)]
    Tensor(#[from] undertone_tensor::Error),
}

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;
