//! `undertone-provider query`

use super::OwnerArguments;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use std::path::PathBuf;
use undertone::data::Format;
use undertone_provider::owner::{Query as Asked, query};

/// Ask a provider for the labels of texts by sending their perturbed embeddings (private inference)
///
/// Asking for the same text again sends the same release and costs nothing.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone-provider query --task https://provider.example:8443 --token-file \
     token --epsilon-at-most 8 --text \"a fine film\""
)]
pub struct Query {
    #[command(flatten)]
    owner: OwnerArguments,
    /// Text to label (repeatable); with `--data`, the text column of the file
    #[arg(long, value_name = "TEXT", required = true)]
    text: Vec<String>,
    /// File of texts to label
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Format of the data file [default: from its extension]
    #[arg(long, value_enum, requires = "data")]
    format: Option<Format>,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Query {
    pub fn run(self, output: Output) -> Outcome {
        if self.text.iter().any(String::is_empty) {
            return Err(Failure::arguments("--text is empty"));
        }
        let (texts, data) = match self.data {
            Some(file) => (Vec::new(), Some((file, self.format, self.text))),
            None => (self.text, None),
        };
        let asked = Asked {
            provider: self.owner.provider()?,
            home: self.owner.home()?,
            texts,
            data,
            bound: self.owner.bound(),
        };
        let answered = query(&asked, &self.device.device()?)?;
        if output.json {
            output::json(&answered);
            return Ok(());
        }
        super::warn_untokenized(answered.untokenized);
        for answer in &answered.answers {
            let shares = answered.labels.iter().zip(&answer.probabilities);
            let shares: Vec<String> = shares.map(|(name, p)| format!("{name} {p:.3}")).collect();
            output::line(format_args!("{}  ({})", answer.label, shares.join(", ")));
        }
        if let Some(guarantee) = &answered.guarantee {
            output::line(format_args!("guarantee: {guarantee}"));
        }
        Ok(())
    }
}
