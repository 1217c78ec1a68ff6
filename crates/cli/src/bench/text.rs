//! Times the work before the first training step: loading a model and tokenizing a file.

use crate::arguments::ModelArgument;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use undertone::data::{Dataset, Options, Task, Tokenizer};
use undertone::model::TaskHead;
use undertone::model::folder::{LoadOptions, load, locate};

/// Time model loading and tokenization
#[derive(Args)]
#[command(after_help = "Example:\n  undertone bench text --model models/all-MiniLM-L6-v2 --data \
     train.tsv --text sentence")]
pub struct Text {
    #[command(flatten)]
    base: ModelArgument,
    /// File to tokenize
    #[arg(long)]
    data: PathBuf,
    /// Text column
    #[arg(long, default_value = "text")]
    text: String,
    /// Maximum sequence length in tokens
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,
}

impl Text {
    pub fn run(self, output: Output) -> Outcome {
        let folder = locate(&self.base.model)?;
        let start = Instant::now();
        // Every architecture supports this head, and a bare encoder has none of its own.
        let task_head = Some(TaskHead::SequenceClassification);
        let model = load(&folder, &LoadOptions { task_head, ..LoadOptions::default() })?;
        let load_ms = 1e3 * start.elapsed().as_secs_f64();
        let start = Instant::now();
        let tokenizer = Tokenizer::load(&folder)?.with_max_tokens(self.max_tokens)?;
        let tokenizer_ms = 1e3 * start.elapsed().as_secs_f64();
        let task = Task::Classification { text: vec![self.text], label: None };
        let start = Instant::now();
        let data = Dataset::load(&self.data, &task, &tokenizer, None, &Options::default())?;
        let tokenize_s = start.elapsed().as_secs_f64();
        let (rows, parameters) = (data.examples.len(), model.parameters.count().1);
        let tokens: usize = data.examples.iter().map(|example| example.tokens.len()).sum();
        if output.json {
            output::json(&json!({
                "load_ms": load_ms, "parameters": parameters, "tokenizer_ms": tokenizer_ms,
                "tokenize_s": tokenize_s, "rows": rows, "tokens": tokens,
                "peak_memory_bytes": undertone::train::peak_memory(),
            }));
            return Ok(());
        }
        output::rows(&[
            ("load the model", format!("{load_ms:.0} ms ({parameters} parameters)")),
            ("load the tokenizer", format!("{tokenizer_ms:.0} ms")),
            ("tokenize", format!("{tokenize_s:.2} s ({rows} rows, {tokens} tokens)")),
        ]);
        Ok(())
    }
}
