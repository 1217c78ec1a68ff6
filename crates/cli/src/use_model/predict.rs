//! `undertone predict`: labels or losses of the rows of a file.

use super::arguments::{DataArguments, ModelArguments};
use super::keep::Kept;
use super::private::PrivateArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use undertone::data::{Example, Masking, stream};
use undertone::evaluate::{Prediction, likeliest, predict, predict_perturbed};
use undertone::model::TaskHead;
use undertone_run::{check_output, write_atomically};

/// Predict each row of a file: label and probabilities, or loss and perplexity (of a masked
/// language model: of masked tokens)
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone predict --model runs/first/model --data new.jsonl --text \
     text --out said.jsonl"
)]
pub struct Predict {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    data: DataArguments,
    /// File to write: .jsonl, .tsv or .csv
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    private: PrivateArguments,
    /// Write the logits too (of a language model: of the token after the last)
    #[arg(long)]
    logits: bool,
    /// Carry a column of the data over, as text (repeatable); one that is called like a column of
    /// the predictions becomes input.COLUMN
    #[arg(long, value_name = "COLUMN", conflicts_with = "private")]
    keep: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Layout {
    JsonLines,
    Delimited(char),
}

impl Predict {
    pub fn run(self, output: Output) -> Outcome {
        let layout = match self.out.extension().and_then(|e| e.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Layout::JsonLines,
            Some("tsv") => Layout::Delimited('\t'),
            Some("csv") => Layout::Delimited(','),
            _ => return Err(Failure::arguments("--out must end in .jsonl, .tsv or .csv")),
        };
        let ledger = self.private.ledger(&self.out);
        check_output(&self.out, &[&self.data.data, &ledger], is_prediction)?;
        let loaded = self.model.load(self.data.task_head())?;
        let task_head = loaded.model.network.head.task_head;
        let task = self.data.resolve(task_head, false)?;
        let tokeniser = self.data.tokeniser(&loaded)?;
        let names = loaded.labels()?;
        let limits = self.data.limits()?;
        if self.private.private {
            // The whole file is read once before a release is recorded in the ledger.
            for chunk in stream(&self.data.data, &task, &tokeniser, None, &self.data.options())? {
                chunk?;
            }
        }
        if self.logits && task_head == TaskHead::MaskedLanguageModel {
            return Err(Failure::arguments(
                "--logits is for classifiers and causal language models, which have one row of \
                 them for each row of the file",
            ));
        }
        let masking = Masking::of(&task, &tokeniser)?;
        let mut kept = Kept::open(&self.keep, &self.data)?;
        let paid = self.private.pay(&self.model, &loaded, &self.out)?;
        let mut rows = 0_u64;
        let mut write = |out: &mut BufWriter<File>| -> Outcome {
            for chunk in stream(&self.data.data, &task, &tokeniser, None, &self.data.options())? {
                let mut examples = chunk?;
                if let Some(masking) = &masking {
                    examples = masking.for_evaluation(&examples, rows);
                } else if task_head != TaskHead::SequenceClassification {
                    examples.iter_mut().for_each(|example| drop_end(example, tokeniser.eos()));
                }
                let said_of = match &paid {
                    Some(paid) => {
                        predict_perturbed(&loaded.model, &examples, limits, &paid.noise, rows)?
                    }
                    None => predict(&loaded.model, &examples, limits, self.logits)?,
                };
                for prediction in said_of {
                    let said = self.said(task_head, names.names(), &prediction);
                    let kept = kept.next_row(&said)?;
                    write_row(out, layout, rows == 0, said, kept)
                        .map_err(undertone_run::Error::io(&self.out))?;
                    rows += 1;
                }
            }
            Ok(())
        };
        // What fails while rows are written may be the file, the data or the model.
        let mut failed = Ok(());
        let written = write_atomically(&self.out, |out| {
            write(out).map_err(|failure| {
                failed = Err(failure);
                std::io::ErrorKind::Interrupted.into()
            })
        });
        failed?;
        written?;
        let guarantee = paid.map(|paid| paid.guarantee()).transpose()?;
        if output.json {
            let (out, ledger) = (&self.out, guarantee.as_ref().map(|_| ledger));
            output::json(&json!({
                "rows": rows, "predictions": out, "guarantee": guarantee, "ledger": ledger,
            }));
            return Ok(());
        }
        output::line(format_args!("{rows} rows written to {}", self.out.display()));
        if let Some(guarantee) = guarantee {
            output::line(format_args!("guarantee: {guarantee}"));
        }
        Ok(())
    }

    fn said(
        &self,
        task_head: TaskHead,
        names: &[String],
        prediction: &Prediction,
    ) -> Map<String, Value> {
        let mut said = Map::new();
        if task_head == TaskHead::SequenceClassification {
            let probabilities = prediction.probabilities();
            said.insert("label".into(), json!(names.get(likeliest(&prediction.logits))));
            let named: Map<String, Value> =
                names.iter().zip(probabilities).map(|(name, p)| (name.clone(), json!(p))).collect();
            said.insert("probabilities".into(), Value::Object(named));
        } else {
            said.insert("loss".into(), json!(prediction.loss));
            said.insert(
                "perplexity".into(),
                json!(prediction.loss.map(|loss| f64::from(loss).exp())),
            );
            said.insert("tokens".into(), json!(prediction.predictions));
        }
        if self.logits {
            said.insert("logits".into(), json!(prediction.logits));
        }
        said
    }
}

/// Whether a file is one of predictions, which may be made again.
fn is_prediction(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let is_object = serde_json::from_str::<Map<String, Value>>(first).is_ok_and(|row| {
        let has = |keys: [&str; 2]| keys.iter().all(|key| row.contains_key(*key));
        has(["label", "probabilities"]) || has(["loss", "perplexity"])
    });
    let heads =
        ["label\tprobabilities.", "label,probabilities.", "loss\tperplexity", "loss,perplexity"];
    is_object || heads.iter().any(|head| first.starts_with(head))
}

/// The end token was put there for training; a text is judged without it.
fn drop_end(example: &mut Example, eos: Option<u32>) {
    if example.tokens.len() > 2 && example.tokens.last().copied() == eos {
        example.tokens.pop();
        example.segments.truncate(example.tokens.len());
    }
}

fn write_row(
    out: &mut impl Write,
    layout: Layout,
    first: bool,
    mut said: Map<String, Value>,
    kept: Vec<(String, String)>,
) -> std::io::Result<()> {
    let Layout::Delimited(separator) = layout else {
        said.extend(kept.into_iter().map(|(name, value)| (name, Value::String(value))));
        return writeln!(out, "{}", Value::Object(said));
    };
    let mut cells: Vec<(String, String)> = Vec::new();
    for (name, value) in &said {
        match value {
            Value::Object(parts) => {
                cells.extend(
                    parts.iter().map(|(part, value)| (format!("{name}.{part}"), value.to_string())),
                );
            }
            Value::String(text) => cells.push((name.clone(), text.clone())),
            other => cells.push((name.clone(), other.to_string())),
        }
    }
    cells.extend(kept);
    let separator = separator.to_string();
    let guarded = |text: &str| {
        if separator == "," && text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.replace(['\t', '\n', '\r'], " ")
        }
    };
    if first {
        let head: Vec<String> = cells.iter().map(|(name, _)| guarded(name)).collect();
        writeln!(out, "{}", head.join(&separator))?;
    }
    let row: Vec<String> = cells.iter().map(|(_, value)| guarded(value)).collect();
    writeln!(out, "{}", row.join(&separator))
}
