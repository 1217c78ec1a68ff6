//! `undertone-provider contribute`

use super::OwnerArguments;
use crate::device::DeviceArguments;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use std::path::PathBuf;
use undertone::data::Format;
use undertone_provider::owner::{Contribute as Asked, contribute};

/// Send perturbed embeddings and randomized labels of a file's rows to a provider, and nothing else
///
/// Records each release in the owner's ledger before sending it, and keeps it. Run the same command
/// again to send new rows and whatever was not acknowledged; a row is never released twice.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone-provider contribute --task https://provider.example:8443 \
     --token-file token --data my.csv --text text --label label --epsilon-at-most 8"
)]
pub struct Contribute {
    #[command(flatten)]
    owner: OwnerArguments,
    /// File of texts and labels: .tsv, .csv, .jsonl, .json or .parquet
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Format of the data file [default: from its extension]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Text column, or two comma-separated columns for a pair of texts
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', default_value = "text")]
    text: Vec<String>,
    /// Label column
    #[arg(long, value_name = "COLUMN", default_value = "label")]
    label: String,
    /// Print what would be sent and its privacy cost, without sending or spending anything
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
                "{} rows, {} of them new, in frames of {} bytes; everything released from this \
                 folder then costs at most ε = {} at δ = {:e}",
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
            output::line("nothing was sent or spent");
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
