//! `undertone audit inversion`: which tokens did a record have?

use crate::failure::{Failure, Outcome};
use crate::output;
use crate::use_model::ModelArguments;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::{Path, PathBuf};
use undertone::audit::inversion::{self, Recovered};
use undertone::data::{Dataset, Example, Options, Task};
use undertone::model::Purpose;
use undertone::model::layer::sanitiser::Spot;
use undertone_accounting::gaussian;

/// Guess the tokens of records from perturbed embeddings, by layer and budget
///
/// Each record's token rows are brought to norm 1 and perturbed with Gaussian noise that is calibrated exactly for replacing the record (sensitivity 2). The attacker knows the model, the noise
/// and other texts of the same kind.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit inversion --model all-MiniLM-L6-v2 --data dev.tsv --known train.tsv --text sentence --after 0,3,6 --epsilon 2,8,32"
)]
pub struct Inversion {
    #[command(flatten)]
    model: ModelArguments,
    /// File whose texts are attacked
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// File of other texts, which the attacker has
    #[arg(long, value_name = "FILE")]
    known: PathBuf,
    /// Column of the text in both files
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    text: String,
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
    /// Tokens that the attacker tells apart: the most frequent ones
    #[arg(long, default_value_t = 2000)]
    vocabulary: usize,
    /// Passes over the attacker's texts
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Longest sequence
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// Draws the noise; the attack is repeatable
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    after: usize,
    /// None without noise.
    epsilon: Option<f64>,
    noise_multiplier: f64,
    #[serde(flatten)]
    recovered: Recovered,
}

impl Inversion {
    pub fn run(self) -> Outcome {
        if self.vocabulary == 0 || self.epochs == 0 || self.records == 0 || self.known_records == 0 {
            return Err(Failure::arguments(
                "--vocabulary, --epochs, --records and --known-records must be at least 1",
            ));
        }
        let loaded = self.model.load(Some(Purpose::SequenceClassification))?;
        let blocks = loaded.model.network.blocks.len();
        if let Some(after) = self.after.iter().find(|&&after| after > blocks) {
            return Err(Failure::arguments(format!("--after {after}: the model has {blocks} blocks")));
        }
        let tokeniser = loaded.model.tokeniser(&loaded.folder, self.max_tokens)?;
        let read = |path: &Path, most: usize| -> Outcome<Vec<Example>> {
            let task = Task::Classification { text: vec![self.text.clone()], label: None };
            let mut examples = Dataset::load(path, &task, &tokeniser, None, &Options::default())?.examples;
            examples.truncate(most);
            Ok(examples)
        };
        let (victims, known) = (read(&self.data, self.records)?, read(&self.known, self.known_records)?);
        let cells: Vec<(usize, Option<f64>)> = self
            .after
            .iter()
            .flat_map(|&after| {
                std::iter::once(None).chain(self.epsilon.iter().copied().map(Some)).map(move |e| (after, e))
            })
            .collect();
        let bar = ProgressBar::new(cells.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} attacks, {eta} left") {
            bar.set_style(style);
        }
        let mut rows = Vec::new();
        for (after, epsilon) in cells {
            let noise = match epsilon {
                Some(epsilon) => 2.0 / gaussian::largest_mu(epsilon, self.delta)?,
                None => 0.0,
            };
            let asked = inversion::Inversion {
                spot: Spot::After(after),
                noise,
                vocabulary: self.vocabulary,
                epochs: self.epochs,
                seed: self.seed,
            };
            let recovered = inversion::invert(&loaded.model, &victims, &known, &asked)?;
            rows.push(Row { after, epsilon, noise_multiplier: noise, recovered });
            bar.inc(1);
        }
        bar.finish_and_clear();
        if self.json {
            output::json(&rows);
            return Ok(());
        }
        let share = |x: f64| format!("{:.1} %", 100.0 * x);
        let cells = |row: &Row| {
            let epsilon = row.epsilon.map_or("no noise".to_owned(), |e| format!("{e}"));
            let Recovered { nearest, decoder, guessing, .. } = row.recovered;
            vec![row.after.to_string(), epsilon, share(nearest), share(decoder), share(guessing)]
        };
        let body: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::table(&["after block", "ε", "nearest mean", "trained decoder", "guessing"], &body);
        Ok(())
    }
}
