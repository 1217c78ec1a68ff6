//! `undertone predict`: labels or losses of the rows of a file.

use super::arguments::{DataArguments, ModelArguments};
use super::private::PrivateArguments;
use crate::failure::{Failure, Outcome};
use crate::files::refuse_same;
use crate::output::{self, Output};
use clap::Args;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use undertone::data::{Example, stream};
use undertone::evaluate::{Prediction, likeliest, predict, predict_perturbed};
use undertone::model::TaskHead;

/// Predict each row of a file: label and probabilities, or loss and perplexity
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
        if self.out.is_dir() {
            return Err(Failure::arguments(format!(
                "--out {} is a folder; name a file",
                self.out.display()
            )));
        }
        refuse_same(&self.out, &self.data.data, "the file that is read")?;
        let ledger = self.private.ledger(&self.out);
        refuse_same(&self.out, &ledger, "the ledger")?;
        let loaded = self.model.load(self.data.task_head())?;
        let task_head = loaded.model.network.head.task_head;
        let task = self.data.resolve(task_head, false)?;
        let tokeniser = self.data.tokeniser(&loaded)?;
        let names = loaded.model.label_set()?;
        let limits = self.data.limits()?;
        if self
            .out
            .parent()
            .is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        {
            return Err(Failure::arguments(format!(
                "the folder of {} does not exist; make it first",
                self.out.display()
            )));
        }
        if self.private.private {
            // The whole file is read once before a release is recorded in the ledger.
            for chunk in stream(&self.data.data, &task, &tokeniser, None, &self.data.options())? {
                chunk?;
            }
        }
        let paid = self.private.pay(&self.model, &loaded, &self.out)?;
        // Written beside the file and renamed when whole, so that a half-written answer is never
        // mistaken for one.
        let mut beside = self.out.clone().into_os_string();
        beside.push(".part");
        let beside = PathBuf::from(beside);
        let write = || -> Outcome<u64> {
            let failed = |e: std::io::Error| Failure::write(&self.out, e);
            let mut out = BufWriter::new(File::create(&beside).map_err(failed)?);
            let mut rows = 0_u64;
            for chunk in stream(&self.data.data, &task, &tokeniser, None, &self.data.options())? {
                let mut examples = chunk?;
                if task_head != TaskHead::SequenceClassification {
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
                    write_row(&mut out, layout, rows == 0, &said).map_err(failed)?;
                    rows += 1;
                }
            }
            out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
            std::fs::rename(&beside, &self.out).map_err(failed)?;
            Ok(rows)
        };
        let rows = write().inspect_err(|_| drop(std::fs::remove_file(&beside)))?;
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
    said: &Map<String, Value>,
) -> std::io::Result<()> {
    let Layout::Delimited(separator) = layout else {
        return writeln!(out, "{}", Value::Object(said.clone()));
    };
    let mut cells: Vec<(String, String)> = Vec::new();
    for (name, value) in said {
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
