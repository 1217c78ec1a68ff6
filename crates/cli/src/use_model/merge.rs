//! `undertone merge`: merges an adapter into the weights of its base model.

use super::arguments::ModelArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone::model::Model;
use undertone::model::folder::{SHARD_BYTES, save_like};
use undertone::model::tuning::merge;
use undertone::tensor::Device;
use undertone::train::card_of_merged;
use undertone_run::check_new_folder;

/// The model card.
const CARD: &str = "README.md";

/// Merge an adapter into its base model
///
/// Requires `--run` or `--adapter`, with LoRA, (IA)³, BitFit or a head. Writes an ordinary model
/// folder that transformers can load, with weights in the base model's data types, and with the
/// adapter's card and guarantee.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone merge --run runs/first --out models/gpt2-private\n  \
     undertone merge --model models/gpt2 --adapter adapters/letters --out models/gpt2-private"
)]
pub struct Merge {
    #[command(flatten)]
    model: ModelArguments,
    /// Folder for the merged model; must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Maximum size of a weights file in MB; larger models are split into shards with an index
    #[arg(long, value_name = "MB", default_value_t = SHARD_BYTES / 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    shard_size: u64,
}

impl Merge {
    pub fn run(self, output: Output) -> Outcome {
        let Some(adapter) = self.model.located()?.adapter else {
            return Err(Failure::arguments(
                "specify the adapter to merge with --adapter, or its run with --run",
            ));
        };
        check_new_folder(&self.out)?;
        let mut loaded = self.model.load(None)?;
        merge(&mut loaded.model)?;
        loaded.model.to_device(&Device::Cpu)?;
        std::fs::create_dir_all(&self.out).map_err(|e| Failure::write(&self.out, e))?;
        if let Some(reading) = loaded.reading {
            reading.save(&self.out)?;
        }
        save_like(&loaded.model, &self.out, &loaded.folder, self.shard_size * 1_000_000)?;
        let card = self.write_card(&adapter, &loaded.model)?;
        if output.json {
            output::json(&json!({ "model": self.out }));
            return Ok(());
        }
        output::line(format_args!("merged model written to {}", self.out.display()));
        if !card {
            output::note(
                "the adapter has no model card of Undertone, so the merged model has none: its \
                 guarantee is that of the adapter",
            );
        }
        Ok(())
    }

    /// Writes the adapter's card, with its guarantee, for the merged model. Returns whether there
    /// is one.
    fn write_card(&self, adapter: &Path, model: &Model) -> Outcome<bool> {
        let card = adapter.join(CARD);
        let Ok(card) = undertone_run::read_settings(&card) else { return Ok(false) };
        let head = model.network.head.task_head;
        let Some(card) = card_of_merged(&card, &self.out, head)? else { return Ok(false) };
        let path = self.out.join(CARD);
        undertone_run::write_atomically(&path, |out| out.write_all(card.as_bytes()))
            .map_err(|e| Failure::write(&path, e))?;
        Ok(true)
    }
}
