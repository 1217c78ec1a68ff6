//! `undertone contribute`

use super::OwnerArguments;
use crate::device::DeviceArguments;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use std::path::PathBuf;
use undertone::data::Format;
use undertone_provider::owner::{Contribute as Asked, contribute};

/// Send perturbed embeddings and randomised labels of a file's rows to a provider, and nothing else
///
/// Each release is recorded in the owner's own ledger first, and kept. The same command sends what
/// was not acknowledged, and rows that are new; a row that was released is never released again.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone contribute --task https://provider.example:8443 \
     --token-file token --data my.csv --text text --label label --epsilon-at-most 8")]
pub struct Contribute {
    #[command(flatten)]
    owner: OwnerArguments,
    /// File with texts and labels: .tsv, .csv, .jsonl, .json or .parquet
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The file's format, where its extension does not say it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Column of the text; twice for a pair
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    text: Vec<String>,
    /// Column of the label
    #[arg(long, value_name = "COLUMN", default_value = "label")]
    label: String,
    /// Say what would be sent and what it costs; send nothing and spend nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Contribute {
    pub fn run(self, output: Output) -> Outcome {
        let asked = Asked {
            provider: self.owner.provider()?,
            home: self.owner.home()?,
            data: self.data,
            format: self.format,
            text: self.text,
            label: self.label,
            bound: self.owner.bound(),
            dry_run: self.dry_run,
        };
        let device = self.device.device()?;
        let done = contribute(&asked, &device, &mut |first| {
            if output.json {
                return;
            }
            output::line(format_args!("task {}: {}", first.task, first.promise));
            output::line(format_args!(
                "{} rows, {} of them new, in frames of {} bytes; ε of all that this folder has \
                 released is then at most {} at δ = {:e}",
                first.rows,
                first.new,
                first.frame_bytes,
                output::up(first.epsilon),
                first.delta
            ));
        })?;
        if output.json {
            output::json(&done);
            return Ok(());
        }
        if done.dry_run {
            output::line("nothing was sent, and nothing was spent");
            return Ok(());
        }
        super::warn_untokenized(done.untokenized);
        output::line(format_args!(
            "{} frames were sent and acknowledged; {} receipts are kept in {}",
            done.frames,
            done.receipts,
            asked.home.display()
        ));
        if let Some(guarantee) = &done.guarantee {
            output::line(format_args!("guarantee: {guarantee}"));
        }
        Ok(())
    }
}
