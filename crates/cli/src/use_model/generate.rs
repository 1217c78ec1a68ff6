//! `undertone generate`: generates completions of prompts.

use super::arguments::{Loaded, ModelArguments};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use undertone::data::{ChatPrompts, Format, Template, Tokenizer, format_of, read};
use undertone::model::TaskHead;
use undertone::model::folder::Reading;
use undertone::model::generate::{Settings, generate};
use undertone_run::TaskName;

/// Generate completions of prompts with a language model
///
/// A model trained on conversations gets each prompt as a question, in the format of its chat
/// template, and prints the answer alone.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone generate --model models/stories15M --prompt \"Once upon a \
     time\" --temperature 0\n  undertone generate --run runs/first --prompts prompts.txt --top-k \
     40 --samples 4"
)]
pub struct Generate {
    #[command(flatten)]
    model: ModelArguments,
    /// Prompt to complete (repeatable)
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// File of prompts: .txt with one prompt per line, or a data file with `--prompt-column`
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Prompt column of the data file, or a template such as 'Question: {question}' [default: as in
    /// training, or `text`]
    #[arg(long, value_name = "COLUMN", requires = "prompts")]
    prompt_column: Option<String>,
    /// Whether to format each prompt as a question with the model's chat template [default: true if
    /// the model was trained on conversations]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    chat: Option<bool>,
    /// Number of completions per prompt
    #[arg(long, default_value_t = 1)]
    samples: usize,
    /// Maximum number of tokens to generate
    #[arg(long, default_value_t = 100)]
    max_new_tokens: usize,
    /// Sampling temperature: 0 for greedy decoding, 1 for the model's own distribution
    #[arg(long, default_value_t = 0.8)]
    temperature: f32,
    /// Sample from the k most likely tokens only; 0 for all tokens
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Sample from the most likely tokens with this total probability (nucleus sampling)
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Number of beams for beam search; 1 to disable
    #[arg(long, default_value_t = 1)]
    beams: usize,
    /// Exponent of the length by which a beam's log-probability is divided
    #[arg(long, default_value_t = 1.0)]
    length_penalty: f32,
    /// Random seed; the same seed gives the same texts [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Batch size, in prompts
    #[arg(long, default_value_t = 16)]
    batch: usize,
}

impl Generate {
    pub fn run(self, output: Output) -> Outcome {
        let loaded = self.model.load(Some(TaskHead::CausalLanguageModel))?;
        let model = &loaded.model;
        let most = model.network.max_positions;
        let tokenizer = model.tokenizer(&loaded.folder, most)?;
        let prompts = self.texts(loaded.reading.as_ref())?;
        let chat = self.chat(&loaded)?;
        let mut ids = Vec::new();
        for prompt in &prompts {
            let tokens = tokens(&tokenizer, chat.as_ref(), prompt)?;
            ids.extend(std::iter::repeat_n(tokens, self.samples));
        }
        let mut end = model.end_tokens();
        end.extend(tokenizer.eos());
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
            let text = match chat {
                Some(_) => tokenizer.decode(tokens)?,
                None => {
                    let whole: Vec<u32> = ids[i].iter().chain(tokens).copied().collect();
                    tokenizer.decode(&whole)?
                }
            };
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

    /// The model's chat template, if prompts are questions.
    fn chat(&self, loaded: &Loaded) -> Outcome<Option<ChatPrompts>> {
        let trained_for = loaded.reading.as_ref().and_then(|reading| reading.task);
        match self.chat.unwrap_or(trained_for == Some(TaskName::Chat)) {
            true => Ok(Some(ChatPrompts::load(&loaded.folder)?)),
            false => Ok(None),
        }
    }

    fn texts(&self, reading: Option<&Reading>) -> Outcome<Vec<String>> {
        if !(1..=1_000_000).contains(&self.samples) {
            return Err(Failure::arguments("--samples must be from 1 to 1000000"));
        }
        let mut texts = self.prompt.clone();
        if let Some(file) = &self.prompts {
            let format = format_of(file, None)?;
            let of_training = || {
                let reading = reading.filter(|_| format != Format::Text)?;
                reading.prompt.clone().or_else(|| reading.text.first().cloned())
            };
            let column = self.prompt_column.clone().or_else(of_training);
            let column = column.unwrap_or_else(|| "text".to_owned());
            let template = Template::parse(&column)?;
            for row in read::rows(file, format, &template.clone().columns())? {
                texts.push(template.fill(&row?.values));
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

/// The tokens of a prompt, formatted as a question for a chat model.
fn tokens(tokenizer: &Tokenizer, chat: Option<&ChatPrompts>, prompt: &str) -> Outcome<Vec<u32>> {
    Ok(match chat {
        Some(chat) => tokenizer.chat_prompt(&chat.ask(prompt)?, 1)?,
        None => tokenizer.prompt(prompt, 1)?,
    })
}

/// A seed that differs between runs. It need not be secret, so the clock suffices.
fn by_chance() -> u64 {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32)
}

/// A progress bar, only on a terminal.
pub(super) fn progress(texts: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() || texts < 2 || output::is_hushed() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} texts, {eta} left");
    ProgressBar::new(texts).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
