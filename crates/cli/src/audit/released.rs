//! Arguments of attacks on perturbed embeddings: examples, layers and noise.

use crate::arguments::{SeedArgument, up_to};
use crate::failure::{Failure, Outcome};
use crate::use_model::Loaded;
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::data::{Dataset, Labels, Options, Task};
use undertone::model::Model;
use undertone_accounting::gaussian;

/// The released embeddings and their budgets.
#[derive(Args)]
pub struct ReleasedArguments {
    /// File of texts to attack
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// File of other texts, known to the attacker
    #[arg(long, value_name = "FILE")]
    pub known: PathBuf,
    /// Text column in both files
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    pub text: String,
    /// Comma-separated numbers of blocks after which to add the noise; 0 for the embeddings
    #[arg(long, value_delimiter = ',', default_values_t = [0])]
    after: Vec<usize>,
    /// Comma-separated ε of one release; the attack without noise is always included
    #[arg(long, value_delimiter = ',', default_values_t = [2.0, 8.0, 32.0])]
    epsilon: Vec<f64>,
    /// δ of one release
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Maximum number of texts to attack
    #[arg(long, default_value_t = 300)]
    examples: usize,
    /// Maximum number of texts to train the attacker on
    #[arg(long, default_value_t = 5000)]
    known_examples: usize,
    /// Maximum sequence length in tokens
    #[arg(long, default_value_t = 64, value_parser = up_to(1_048_576))]
    max_tokens: usize,
    #[command(flatten)]
    pub random: SeedArgument,
}

/// A layer and a budget.
pub struct Cell {
    pub after: usize,
    /// `None` if the embeddings are not perturbed.
    pub epsilon: Option<f64>,
    /// Noise multiplier: standard deviation of the noise over the norm of an embedding.
    pub noise: f64,
}

impl ReleasedArguments {
    /// The examples to attack, and those known to the attacker.
    pub fn read(
        &self,
        loaded: &Loaded,
        task: &Task,
        labels: Option<Labels>,
    ) -> Outcome<(Dataset, Dataset)> {
        if self.examples == 0 || self.known_examples == 0 {
            return Err(Failure::arguments("--examples and --known-examples must be at least 1"));
        }
        let tokenizer = loaded.model.tokenizer(&loaded.folder, self.max_tokens)?;
        let read = |path: &Path, labels: Option<Labels>, most: usize| -> Outcome<Dataset> {
            let mut data = Dataset::load(path, task, &tokenizer, labels, &Options::default())?;
            data.examples.truncate(most);
            Ok(data)
        };
        let known = read(&self.known, labels, self.known_examples)?;
        let victims = read(&self.data, known.labels.clone(), self.examples)?;
        Ok((victims, known))
    }

    /// Each layer, without noise and with each budget.
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
                // Replacing an example of norm 1 changes the release by at most 2.
                let noise = 2.0 / gaussian::largest_mu(epsilon, self.delta)?;
                cells.push(Cell { after, epsilon: Some(epsilon), noise });
            }
        }
        Ok(cells)
    }
}
