//! `undertone predict`: labels or losses of the rows of a file.

use super::arguments::ModelArguments;
use super::data::DataArguments;
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
use undertone::evaluate::{Limits, Prediction, likeliest, predict};
use undertone::method::local::predict_perturbed;
use undertone::model::TaskHead;
use undertone_run::{check_output, write_atomically};

/// Predict the label of each row of a file, or its loss and perplexity
///
/// For classifiers, writes the label and the probability of each class. For masked language models,
/// loss and perplexity are measured on masked tokens.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone predict --run runs/first --data new.jsonl --out \
     predictions.jsonl\n  undertone predict --model models/all-MiniLM-L6-v2-sst2 --data new.jsonl \
     --text text --out predictions.jsonl")]
pub struct Predict {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    data: DataArguments,
    /// Output file: .jsonl, .tsv or .csv
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    private: PrivateArguments,
    /// Also write the logits; for a causal language model, those of the next token after the text
    #[arg(long)]
    logits: bool,
    /// Copy a column of the data to the output as text (repeatable); renamed to input.COLUMN if the
    /// predictions have a column of that name
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
        let task = self.data.resolve(&loaded, false)?;
        let tokenizer = self.data.tokenizer(&loaded)?;
        let names = loaded.labels()?;
        let mut limits = self.data.limits()?;
        if self.private.private {
            // A release must depend on its own text only, not on its batch.
            if ![1, Limits::default().sequences].contains(&limits.sequences) {
                return Err(Failure::arguments(
                    "--batch has no effect with --private, which processes each text separately; \
                     omit it",
                ));
            }
            limits.sequences = 1;
            // Read the whole file once, so that errors surface before a release is recorded.
            for chunk in stream(&self.data.data, &task, &tokenizer, None, &self.data.options())? {
                chunk?;
            }
        }
        if self.logits && task_head == TaskHead::MaskedLanguageModel {
            return Err(Failure::arguments(
                "--logits needs a classifier or a causal language model",
            ));
        }
        let masking = Masking::of(&task, &tokenizer)?;
        let mut kept = Kept::open(&self.keep, &self.data)?;
        let paid = self.private.pay(&loaded, &self.out)?;
        let mut rows = 0_u64;
        let mut write = |out: &mut BufWriter<File>| -> Outcome {
            for chunk in stream(&self.data.data, &task, &tokenizer, None, &self.data.options())? {
                let mut examples = chunk?;
                if let Some(masking) = &masking {
                    examples = masking.for_evaluation(&examples, rows);
                } else if task_head != TaskHead::SequenceClassification {
                    examples.iter_mut().for_each(|example| drop_end(example, tokenizer.eos()));
                }
                let said_of = match &paid {
                    Some(paid) => {
                        predict_perturbed(&loaded.model, &examples, limits, &paid.noise, rows)?
                    }
                    None => predict(&loaded.model, &examples, limits, self.logits)?,
                };
                for prediction in said_of {
                    let said =
                        prediction_fields(task_head, names.names(), &prediction, self.logits);
                    let kept = kept.next_row(&said)?;
                    write_row(out, layout, rows == 0, said, kept)
                        .map_err(undertone_run::Error::io(&self.out))?;
                    rows += 1;
                }
            }
            Ok(())
        };
        // A failure while writing rows may come from the file, the data or the model.
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
}

/// A prediction as written to the output: the label and the probability of each class, or loss and
/// perplexity, with logits if requested.
pub fn prediction_fields(
    task_head: TaskHead,
    names: &[String],
    prediction: &Prediction,
    logits: bool,
) -> Map<String, Value> {
    let mut fields = Map::new();
    if task_head == TaskHead::SequenceClassification {
        let probabilities = prediction.probabilities();
        fields.insert("label".into(), json!(names.get(likeliest(&prediction.logits))));
        let named: Map<String, Value> =
            names.iter().zip(probabilities).map(|(name, p)| (name.clone(), json!(p))).collect();
        fields.insert("probabilities".into(), Value::Object(named));
    } else {
        fields.insert("loss".into(), json!(prediction.loss));
        fields
            .insert("perplexity".into(), json!(prediction.loss.map(|loss| f64::from(loss).exp())));
        fields.insert("tokens".into(), json!(prediction.predictions));
    }
    if logits {
        fields.insert("logits".into(), json!(prediction.logits));
    }
    fields
}

/// Whether a file contains predictions and may be overwritten.
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

/// Drops the end token, which is added for training only.
pub fn drop_end(example: &mut Example, eos: Option<u32>) {
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
