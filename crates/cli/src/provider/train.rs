//! `undertone provider train`

use super::TaskArguments;
use crate::device::DeviceArguments;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use std::path::PathBuf;
use undertone_provider::{PublicTest, train};
use undertone_run::Metrics;

/// Learn from everything in the store; the model is then the one that predicts
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone provider train task/ --out runs/monday --public dev.tsv \
     --text sentence"
)]
pub struct Train {
    #[command(flatten)]
    task: TaskArguments,
    /// Folder to make, with the model in it
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A public file with labels that the model is measured on
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    /// Column of its text; twice for a pair
    #[arg(long, value_name = "COLUMN", default_value = "text", requires = "public")]
    text: Vec<String>,
    /// Column of its label
    #[arg(long, value_name = "COLUMN", default_value = "label", requires = "public")]
    label: String,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Train {
    pub fn run(self, output: Output) -> Outcome {
        let device = self.device.device()?;
        let (folder, store) = self.task.open()?;
        let test = self.public.map(|file| PublicTest { file, text: self.text, label: self.label });
        let trained = train(&folder, store, &self.out, &device, test.as_ref())?;
        if output.json {
            output::json(&trained);
            return Ok(());
        }
        output::line(format_args!(
            "{} has learnt from {} texts of {} owners",
            trained.model.display(),
            trained.releases,
            trained.owners
        ));
        if let Some(Metrics::Classification(found)) = &trained.metrics {
            let accuracy = 100.0 * found.accuracy;
            output::line(format_args!("accuracy on the public file: {accuracy:.1} %"));
        }
        output::line(format_args!("promised to owners: {}", trained.promise));
        Ok(())
    }
}
