//! `undertone generate`: continues prompts.

use super::arguments::ModelArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use undertone::data::{format_of, read};
use undertone::model::TaskHead;
use undertone::model::generate::{Settings, generate};

/// Continue prompts with a language model
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone generate --model models/stories15M --prompt \"Once upon a \
     time\" --temperature 0\n  undertone generate --model models/gpt2 --adapter \
     runs/first/adapter --prompts prompts.txt --top-k 40 --samples 4"
)]
pub struct Generate {
    #[command(flatten)]
    model: ModelArguments,
    /// Prompt to continue; may be given several times
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// File of prompts: .txt with one per line, or any data file with --prompt-column
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Column of the prompt in that file
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    prompt_column: String,
    /// Continuations of each prompt
    #[arg(long, default_value_t = 1)]
    samples: usize,
    /// Most tokens to add
    #[arg(long, default_value_t = 100)]
    max_new_tokens: usize,
    /// Sampling temperature: 0 takes the likeliest token, 1 samples as the model says
    #[arg(long, default_value_t = 0.8)]
    temperature: f32,
    /// Sample from the likeliest so many tokens; 0 means all
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Nucleus sampling: from the likeliest tokens with this much probability together
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Beams of beam search; 1 means none
    #[arg(long, default_value_t = 1)]
    beams: usize,
    /// Beams are ranked by log-probability over length to this power
    #[arg(long, default_value_t = 1.0)]
    length_penalty: f32,
    /// The same seed gives the same texts [default: by chance]
    #[arg(long)]
    seed: Option<u64>,
    /// Batch size: prompts continued together
    #[arg(long, default_value_t = 16)]
    batch: usize,
}

impl Generate {
    pub fn run(self, output: Output) -> Outcome {
        let loaded = self.model.load(Some(TaskHead::CausalLanguageModel))?;
        let model = &loaded.model;
        let most = model.network.max_positions;
        let tokeniser = model.tokeniser(&loaded.folder, most)?;
        let prompts = self.texts()?;
        let mut ids = Vec::new();
        for prompt in &prompts {
            let tokens = tokeniser.prompt(prompt, 1)?;
            ids.extend(std::iter::repeat_n(tokens, self.samples));
        }
        let mut end = model.end_tokens();
        end.extend(tokeniser.eos());
        let settings = Settings {
            max_new_tokens: self.max_new_tokens,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            beams: self.beams,
            length_penalty: self.length_penalty,
            seed: self.seed.unwrap_or_else(by_chance),
            first: 0,
            end_tokens: end,
            batch: self.batch,
        };
        let bar = progress(ids.len() as u64);
        let texts = generate(model, &ids, &settings, |finished| bar.inc(finished as u64))?;
        bar.finish_and_clear();
        let mut completions = Vec::new();
        for (i, tokens) in texts.iter().enumerate() {
            let prompt = &prompts[i / self.samples];
            let whole: Vec<u32> = ids[i].iter().chain(tokens).copied().collect();
            let text = tokeniser.decode(&whole)?;
            if output.json {
                completions.push(json!({ "prompt": prompt, "tokens": tokens, "text": text }));
            } else {
                if i > 0 {
                    output::line("");
                }
                output::line(text);
            }
        }
        if output.json {
            output::json(&json!({ "completions": completions, "seed": settings.seed }));
        }
        Ok(())
    }

    fn texts(&self) -> Outcome<Vec<String>> {
        if !(1..=1_000_000).contains(&self.samples) {
            return Err(Failure::arguments("--samples must be from 1 to 1000000"));
        }
        let mut texts = self.prompt.clone();
        if let Some(file) = &self.prompts {
            for row in read::rows(file, format_of(file, None)?, &[&self.prompt_column])? {
                texts.extend(row?.values);
            }
        }
        if texts.is_empty() {
            return Err(Failure::arguments(
                "give a prompt with --prompt, or a file of prompts with --prompts",
            ));
        }
        Ok(texts)
    }
}

/// A seed that differs from run to run; texts are no secrets, so the clock will do.
fn by_chance() -> u64 {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32)
}

/// A bar on a terminal.
pub(super) fn progress(texts: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() || texts < 2 || output::is_hushed() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} texts, {eta} left");
    ProgressBar::new(texts).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
