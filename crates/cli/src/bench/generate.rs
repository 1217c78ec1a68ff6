//! Times greedy generation.

use super::median;
use super::shape::Shape;
use crate::arguments::up_to;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::time::Instant;
use undertone::model::TaskHead;
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::model::generate::{Settings, generate};

/// Time greedy text generation
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone bench generate --model models/gpt2 --batch 16\n  undertone \
     bench generate --arch llama --layers 16 --hidden 2048 --heads 32 --device cuda"
)]
pub struct Generate {
    /// Model folder, or model name on the Hugging Face Hub [default: random weights; choose a
    /// causal language model with `--arch`]
    #[arg(long, value_name = "DIR|NAME", conflicts_with_all = ["arch", "layers", "hidden", "heads",
        "key_heads", "inner", "vocabulary"])]
    model: Option<String>,
    #[command(flatten)]
    shape: Shape,
    /// Tokens per prompt
    #[arg(long, default_value_t = 4, value_parser = up_to(65_536))]
    prompt_tokens: usize,
    /// Batch size, in prompts
    #[arg(long, default_value_t = 16, value_parser = up_to(65_536))]
    batch: usize,
    /// Tokens to generate per prompt
    #[arg(
        long = "max-new-tokens",
        alias = "new-tokens",
        default_value_t = 200,
        value_parser = up_to(1_000_000)
    )]
    new_tokens: usize,
    /// Number of timed runs, after one warm-up run
    #[arg(long, default_value_t = 3, value_parser = up_to(1_000_000))]
    repeats: usize,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Generate {
    pub fn run(self, output: Output) -> Outcome {
        let counts = [self.batch, self.new_tokens, self.repeats, self.prompt_tokens];
        if counts.contains(&0) {
            return Err(Failure::arguments(
                "--batch, --max-new-tokens, --repeats and --prompt-tokens must be at least 1",
            ));
        }
        let mut model = match &self.model {
            Some(name) => {
                let task_head = Some(TaskHead::CausalLanguageModel);
                load(&locate(name)?, &LoadOptions { task_head, ..LoadOptions::default() })?
            }
            None => {
                self.shape.check()?;
                if self.shape.task_head() != TaskHead::CausalLanguageModel {
                    return Err(Failure::arguments(
                        "generation needs --model, or --arch gpt2 or llama",
                    ));
                }
                self.shape.model(self.prompt_tokens + self.new_tokens)?
            }
        };
        model.to_device(&self.device.device()?)?;
        let settings = Settings {
            max_new_tokens: self.new_tokens,
            temperature: 0.0,
            batch: self.batch,
            ..Settings::default()
        };
        let prompts = vec![(1..=self.prompt_tokens as u32).collect(); self.batch];
        let mut speeds = Vec::new();
        for repeat in 0..=self.repeats {
            let start = Instant::now();
            let texts = generate(&model, &prompts, &settings, |_| {})?;
            let tokens: usize = texts.iter().map(Vec::len).sum();
            if repeat > 0 {
                speeds.push(tokens as f64 / start.elapsed().as_secs_f64());
            }
        }
        let speed = median(speeds);
        if output.json {
            output::json(&json!({ "tokens_per_second": speed }));
        } else {
            output::rows(&[("speed", format!("{speed:.0} tokens/s"))]);
        }
        Ok(())
    }
}
