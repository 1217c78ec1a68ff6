//! `undertone merge`: merges a LoRA into the weights of its base model.

use super::arguments::ModelArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use undertone::model::folder::{SHARD_BYTES, save_like};
use undertone::model::tuning::merge;
use undertone::tensor::Device;
use undertone_run::check_new_folder;

/// Merge a LoRA into the weights of its base model; the result is an ordinary model folder that
/// transformers loads, with numbers of the base model's types
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone merge --model models/gpt2 --adapter runs/first/adapter \
     --out models/gpt2-private"
)]
pub struct Merge {
    #[command(flatten)]
    model: ModelArguments,
    /// Folder of the merged model; it must not hold a model yet
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Largest weights file, in megabytes; a larger model is written in shards with an index
    #[arg(long, value_name = "MB", default_value_t = SHARD_BYTES / 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    shard_size: u64,
}

impl Merge {
    pub fn run(self, output: Output) -> Outcome {
        if self.model.adapter.is_none() {
            return Err(Failure::arguments("say which adapter to merge with --adapter"));
        }
        check_new_folder(&self.out)?;
        let mut loaded = self.model.load(None)?;
        merge(&mut loaded.model)?;
        loaded.model.to_device(&Device::Cpu)?;
        std::fs::create_dir_all(&self.out).map_err(|e| Failure::write(&self.out, e))?;
        if let Some(reading) = loaded.reading {
            reading.save(&self.out)?;
        }
        save_like(&loaded.model, &self.out, &loaded.folder, self.shard_size * 1_000_000)?;
        if output.json {
            output::json(&json!({ "model": self.out }));
            return Ok(());
        }
        output::line(format_args!("merged model written to {}", self.out.display()));
        Ok(())
    }
}
