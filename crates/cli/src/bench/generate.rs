//! Times greedy generation.

use super::median;
use crate::arguments::{ModelArgument, up_to};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::time::Instant;
use undertone::model::TaskHead;
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::model::generate::{Settings, generate};

/// Time greedy generation from short prompts
#[derive(Args)]
#[command(after_help = "Example:\n  undertone bench generate --model models/gpt2 --batch 16")]
pub struct Generate {
    #[command(flatten)]
    base: ModelArgument,
    /// Prompts that are continued together
    #[arg(long, default_value_t = 16, value_parser = up_to(65_536))]
    batch: usize,
    /// New tokens for each prompt
    #[arg(long, default_value_t = 200, value_parser = up_to(1_000_000))]
    new_tokens: usize,
    /// Runs that are timed, after one that is not
    #[arg(long, default_value_t = 3, value_parser = up_to(1_000_000))]
    repeats: usize,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Generate {
    pub fn run(self, output: Output) -> Outcome {
        if self.batch == 0 || self.new_tokens == 0 || self.repeats == 0 {
            return Err(Failure::arguments(
                "--batch, --new-tokens and --repeats must be at least 1",
            ));
        }
        let options = LoadOptions {
            task_head: Some(TaskHead::CausalLanguageModel),
            ..LoadOptions::default()
        };
        let mut model = load(&locate(&self.base.model)?, &options)?;
        model.to_device(&self.device.device()?)?;
        let settings = Settings {
            max_new_tokens: self.new_tokens,
            temperature: 0.0,
            batch: self.batch,
            ..Settings::default()
        };
        let prompts = vec![vec![1, 2, 3, 4]; self.batch];
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
