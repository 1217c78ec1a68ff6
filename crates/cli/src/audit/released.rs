//! The arguments of attacks on released embeddings: whose, where, and under how much noise.

use crate::arguments::SeedArgument;
use crate::failure::{Failure, Outcome};
use crate::use_model::Loaded;
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::data::{Dataset, Labels, Options, Task};
use undertone::model::Model;
use undertone_accounting::gaussian;

/// What is released of which records.
#[derive(Args)]
pub struct ReleasedArguments {
    /// File whose texts are attacked
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// File of other texts, which the attacker has
    #[arg(long, value_name = "FILE")]
    pub known: PathBuf,
    /// Column of the text in both files
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    pub text: String,
    /// After how many blocks the noise is added; 0 for the embeddings
    #[arg(long, value_delimiter = ',', default_values_t = [0])]
    after: Vec<usize>,
    /// Budgets of one release; without noise too
    #[arg(long, value_delimiter = ',', default_values_t = [2.0, 8.0, 32.0])]
    epsilon: Vec<f64>,
    /// δ
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Texts that are attacked at most
    #[arg(long, default_value_t = 300)]
    records: usize,
    /// Texts that the attacker learns from at most
    #[arg(long, default_value_t = 5000)]
    known_records: usize,
    /// Longest sequence
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    #[command(flatten)]
    pub random: SeedArgument,
}

/// A place and a budget.
pub struct Cell {
    pub after: usize,
    /// None without noise.
    pub epsilon: Option<f64>,
    /// Deviation of the noise over the norm of a record.
    pub noise: f64,
}

impl ReleasedArguments {
    /// The records that are attacked, and those that the attacker has.
    pub fn read(
        &self,
        loaded: &Loaded,
        task: &Task,
        labels: Option<Labels>,
    ) -> Outcome<(Dataset, Dataset)> {
        if self.records == 0 || self.known_records == 0 {
            return Err(Failure::arguments("--records and --known-records must be at least 1"));
        }
        let tokeniser = loaded.model.tokeniser(&loaded.folder, self.max_tokens)?;
        let read = |path: &Path, labels: Option<Labels>, most: usize| -> Outcome<Dataset> {
            let mut data = Dataset::load(path, task, &tokeniser, labels, &Options::default())?;
            data.examples.truncate(most);
            Ok(data)
        };
        let known = read(&self.known, labels, self.known_records)?;
        let victims = read(&self.data, known.labels.clone(), self.records)?;
        Ok((victims, known))
    }

    /// Every place with every budget, and without noise.
    pub fn cells(&self, model: &Model) -> Outcome<Vec<Cell>> {
        let blocks = model.network.blocks.len();
        if let Some(after) = self.after.iter().find(|&&after| after > blocks) {
            return Err(Failure::arguments(format!(
                "--after {after}: the model has {blocks} blocks"
            )));
        }
        let mut cells = Vec::new();
        for &after in &self.after {
            cells.push(Cell { after, epsilon: None, noise: 0.0 });
            for &epsilon in &self.epsilon {
                // Replacing a record of norm 1 moves what is released by at most 2.
                let noise = 2.0 / gaussian::largest_mu(epsilon, self.delta)?;
                cells.push(Cell { after, epsilon: Some(epsilon), noise });
            }
        }
        Ok(cells)
    }
}
