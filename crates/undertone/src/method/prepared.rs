//! The loaded model and data of a run, as passed to methods.

use crate::data::Dataset;
use crate::model::Model;
use crate::synthesize::Classes;
use std::path::PathBuf;

/// The loaded model and data of a run.
pub struct Prepared {
    pub model: Model,
    pub data: Dataset,
    pub validation: Option<Dataset>,
    pub public: PublicData,
    /// The control codes of synthetic rows.
    pub classes: Option<Classes>,
    /// Folder of the base model.
    pub origin: PathBuf,
    /// Whether the class names were read from the private training file.
    pub labels_were_found: bool,
    /// Whether the class names must not be published.
    pub labels_are_private: bool,
}

/// Public data that the method uses.
#[derive(Default)]
pub struct PublicData {
    /// Examples for a public relevance map.
    pub relevance: Option<Dataset>,
    /// Examples whose gradients determine ANADP's importance or AdaClip's second moments.
    pub importance: Option<Dataset>,
    /// Texts on which an encoder is fitted.
    pub text: Option<Dataset>,
    /// Labeled examples on which the whole model is fine-tuned first.
    pub adaptation: Option<Dataset>,
}
