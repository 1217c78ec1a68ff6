//! `undertone audit inversion`: which tokens did an example have?

use super::progress;
use super::released::{Cell, ReleasedArguments};
use crate::arguments::up_to;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use crate::use_model::ModelArguments;
use clap::Args;
use serde::Serialize;
use undertone::audit::inversion::{self, Recovered};
use undertone::collective::Ranks;
use undertone::data::Task;
use undertone::model::TaskHead;
use undertone::model::layer::sanitizer::NoiseLayer;

/// Recover tokens from perturbed embeddings (local DP), by layer and ε
///
/// Scales the token embeddings of each example to a joint ℓ2 norm of 1 and adds Gaussian noise
/// calibrated exactly for replace-one adjacency (sensitivity 2). The attacker knows the model, the
/// noise and other texts of the same kind.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit inversion --model all-MiniLM-L6-v2 --data dev.tsv \
     --known train.tsv --text sentence --after 0,3,6 --epsilon 2,8,32"
)]
pub struct Inversion {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    released: ReleasedArguments,
    /// Number of tokens that the attacker distinguishes, the most frequent first
    #[arg(long, default_value_t = 2000, value_parser = up_to(1_000_000))]
    vocabulary: usize,
    /// Number of epochs over the attacker's texts
    #[arg(long, default_value_t = 3, value_parser = up_to(1_000))]
    epochs: usize,
    #[command(flatten)]
    together: RankArguments,
}

#[derive(Serialize)]
struct Row {
    after: usize,
    /// `None` if the embeddings are not perturbed.
    epsilon: Option<f64>,
    noise_multiplier: f64,
    #[serde(flatten)]
    recovered: Recovered,
}

impl Inversion {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        if self.vocabulary == 0 || self.epochs == 0 {
            return Err(Failure::arguments("--vocabulary and --epochs must be at least 1"));
        }
        let loaded = self.model.load(Some(TaskHead::SequenceClassification))?;
        let task = Task::Classification { text: vec![self.released.text.clone()], label: None };
        let (victims, known) = self.released.read(&loaded, &task, None)?;
        let cells = self.released.cells(&loaded.model)?;
        let bar = progress(cells.len(), "attacks");
        let results = ranks.divided(cells.len(), |i| -> Outcome<Recovered> {
            let Cell { after, noise, .. } = cells[i];
            let asked = inversion::Inversion {
                noise_layer: NoiseLayer::After(after),
                noise,
                vocabulary: self.vocabulary,
                epochs: self.epochs,
                seed: self.released.random.seed,
            };
            let recovered =
                inversion::invert(&loaded.model, &victims.examples, &known.examples, &asked)?;
            bar.inc(ranks.size() as u64);
            Ok(recovered)
        })?;
        bar.finish_and_clear();
        let row = |(cell, recovered): (&Cell, Recovered)| {
            let Cell { after, epsilon, noise: noise_multiplier } = *cell;
            Row { after, epsilon, noise_multiplier, recovered }
        };
        let rows: Vec<Row> = cells.iter().zip(results).map(row).collect();
        if output.json {
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
