//! The arguments of attacks on perturbed embeddings: of which examples, at which layer, with how
//! much noise.

use crate::arguments::{SeedArgument, up_to};
use crate::failure::{Failure, Outcome};
use crate::use_model::Loaded;
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::data::{Dataset, Labels, Options, Task};
use undertone::model::Model;
use undertone_accounting::gaussian;

/// Which embeddings are released, with which budgets.
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
    /// Budgets (ε) of one release; without noise too
    #[arg(long, value_delimiter = ',', default_values_t = [2.0, 8.0, 32.0])]
    epsilon: Vec<f64>,
    /// δ of each budget
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Texts that are attacked at most
    #[arg(long, alias = "records", default_value_t = 300)]
    examples: usize,
    /// Texts that the attacker learns from at most
    #[arg(long, alias = "known-records", default_value_t = 5000)]
    known_examples: usize,
    /// Longest sequence, in tokens
    #[arg(long, default_value_t = 64, value_parser = up_to(1_048_576))]
    max_tokens: usize,
    #[command(flatten)]
    pub random: SeedArgument,
}

/// A layer and a budget.
pub struct Cell {
    pub after: usize,
    /// `None` where the embeddings are not perturbed.
    pub epsilon: Option<f64>,
    /// Noise multiplier: standard deviation of the noise over the norm of an embedding.
    pub noise: f64,
}

impl ReleasedArguments {
    /// The examples that are attacked, and those that the attacker has.
    pub fn read(
        &self,
        loaded: &Loaded,
        task: &Task,
        labels: Option<Labels>,
    ) -> Outcome<(Dataset, Dataset)> {
        if self.examples == 0 || self.known_examples == 0 {
            return Err(Failure::arguments("--examples and --known-examples must be at least 1"));
        }
        let tokeniser = loaded.model.tokeniser(&loaded.folder, self.max_tokens)?;
        let read = |path: &Path, labels: Option<Labels>, most: usize| -> Outcome<Dataset> {
            let mut data = Dataset::load(path, task, &tokeniser, labels, &Options::default())?;
            data.examples.truncate(most);
            Ok(data)
        };
        let known = read(&self.known, labels, self.known_examples)?;
        let victims = read(&self.data, known.labels.clone(), self.examples)?;
        Ok((victims, known))
    }

    /// Every layer with every budget, and without noise.
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
                // Replacing an example of norm 1 moves the release by at most 2.
                let noise = 2.0 / gaussian::largest_mu(epsilon, self.delta)?;
                cells.push(Cell { after, epsilon: Some(epsilon), noise });
            }
        }
        Ok(cells)
    }
}
