//! What synthetic rows are made from, and the guarantee that covers them.

use crate::failure::Outcome;
use undertone_accounting::Guarantee;
use undertone_run::{DataSection, RunPaths, Statistics, Summary};

/// The data and the model behind synthetic rows.
pub struct Subject {
    pub data: DataSection,
    /// Folder of the base model, or its name on the Hugging Face Hub.
    pub model: String,
    pub private: bool,
    pub not_private_because: Option<String>,
    pub guarantee: Option<Guarantee>,
    /// The columns of the control codes.
    pub codes: Vec<String>,
    /// Their values in each class.
    pub classes: Vec<Vec<String>>,
}

impl Subject {
    /// Those of a trained run.
    pub fn of_run(paths: &RunPaths, summary: &Summary) -> Outcome<Self> {
        let statistics = Statistics::read(&paths.statistics())?;
        Ok(Self {
            data: summary.plan.data.clone(),
            model: summary.plan.model.name(),
            private: summary.private,
            not_private_because: summary.not_private_because.clone(),
            guarantee: summary.guarantee.clone(),
            codes: statistics.codes,
            classes: statistics.classes.into_iter().map(|class| class.values).collect(),
        })
    }
}
