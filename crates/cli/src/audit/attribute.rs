//! `undertone audit attribute`: attribute inference from perturbed embeddings.

use super::progress;
use super::released::{Cell, ReleasedArguments};
use crate::arguments::{ConfidenceArgument, up_to};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, share};
use crate::ranks::RankArguments;
use crate::use_model::ModelArguments;
use clap::Args;
use serde::Serialize;
use undertone::audit::attribute::{self, Inferred};
use undertone::collective::Ranks;
use undertone::data::Task;
use undertone::model::TaskHead;
use undertone::model::layer::sanitizer::{NoiseLayer, Rows};
use undertone_run::ReleasedRows;

/// Infer an attribute from perturbed embeddings (local DP), by layer and ε
///
/// Scales the embedding of each example to ℓ2 norm 1 and adds Gaussian noise calibrated exactly for
/// replace-one adjacency (sensitivity 2). The attacker knows the model, the noise, and the
/// attribute of other examples.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit attribute --model all-MiniLM-L6-v2 --data dev.tsv \
     --known train.tsv --text sentence --attribute label --after 0,3,6 --epsilon 2,8,32"
)]
pub struct Attribute {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    released: ReleasedArguments,
    /// Attribute column in both files
    #[arg(long, value_name = "COLUMN")]
    attribute: String,
    /// Embedding to release for each example
    #[arg(long, value_enum, default_value = "mean")]
    rows: ReleasedRows,
    /// Number of epochs over the attacker's examples
    #[arg(long, default_value_t = 20, value_parser = up_to(1_000))]
    epochs: usize,
    #[command(flatten)]
    intervals: ConfidenceArgument,
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
    inferred: Inferred,
}

impl Attribute {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        if self.epochs == 0 {
            return Err(Failure::arguments("--epochs must be at least 1"));
        }
        let loaded = self.model.load(Some(TaskHead::SequenceClassification))?;
        let task = Task::Classification {
            text: vec![self.released.text.clone()],
            label: Some(self.attribute.clone()),
        };
        let (victims, known) = self.released.read(&loaded, &task, None)?;
        let classes = known.labels.as_ref().map_or(0, |labels| labels.names().len());
        let cells = self.released.cells(&loaded.model)?;
        let bar = progress(cells.len(), "attacks");
        let guesses = ranks.divided(cells.len(), |i| -> Outcome<Inferred> {
            let Cell { after, noise, .. } = cells[i];
            let asked = attribute::Attribute {
                noise_layer: NoiseLayer::After(after),
                rows: match self.rows {
                    ReleasedRows::Tokens => Rows::Tokens(None),
                    ReleasedRows::First => Rows::First,
                    ReleasedRows::Last => Rows::Last,
                    ReleasedRows::Mean => Rows::Mean,
                },
                noise,
                classes,
                epochs: self.epochs,
                seed: self.released.random.seed,
                confidence: self.intervals.confidence,
            };
            let inferred =
                attribute::infer(&loaded.model, &victims.examples, &known.examples, &asked)?;
            bar.inc(ranks.size() as u64);
            Ok(inferred)
        })?;
        bar.finish_and_clear();
        let row = |(cell, inferred): (&Cell, Inferred)| {
            let Cell { after, epsilon, noise: noise_multiplier } = *cell;
            Row { after, epsilon, noise_multiplier, inferred }
        };
        let rows: Vec<Row> = cells.iter().zip(guesses).map(row).collect();
        if output.json {
            output::json(&rows);
            return Ok(());
        }
        let cells = |row: &Row| {
            let epsilon = row.epsilon.map_or("no noise".to_owned(), |e| format!("{e}"));
            let guessing = format!("{:.1} %", 100.0 * row.inferred.guessing);
            vec![row.after.to_string(), epsilon, share(&row.inferred.right), guessing]
        };
        let body: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::table(&["after block", "ε", "inferred correctly", "guessing"], &body);
        Ok(())
    }
}
