//! Times text generation.

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

/// Time text generation
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone bench generate --model models/gpt2 --batch 16\n  undertone \
     bench generate --arch llama --layers 16 --hidden 2048 --heads 32 --device cuda\n  undertone \
     bench generate --model models/gpt2 --texts 1000 --batch 256 --temperature 1"
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
    /// Prompts per run [default: one batch]
    #[arg(long, value_name = "N", value_parser = up_to(10_000_000))]
    texts: Option<usize>,
    /// Sampling temperature; 0 is greedy decoding
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Total probability of the tokens to sample from
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    top_p: f32,
    /// Beams per prompt
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = up_to(1024))]
    beams: usize,
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
        let texts = self.texts.unwrap_or(self.batch);
        let counts =
            [self.batch, texts, self.beams, self.new_tokens, self.repeats, self.prompt_tokens];
        if counts.contains(&0) {
            return Err(Failure::arguments(
                "--batch, --texts, --beams, --max-new-tokens, --repeats and --prompt-tokens must be \
                 at least 1",
            ));
        }
        if self.beams > 1 && (self.temperature != 0.0 || self.top_p != 1.0) {
            return Err(Failure::arguments(
                "--beams has no effect with --temperature or --top-p; leave one of them out",
            ));
        }
        if self.top_p != 1.0 && self.temperature == 0.0 {
            return Err(Failure::arguments("--top-p has no effect without --temperature"));
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
            temperature: self.temperature,
            top_p: self.top_p,
            beams: self.beams,
            batch: self.batch,
            ..Settings::default()
        };
        let prompts = vec![(1..=self.prompt_tokens as u32).collect(); texts];
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
