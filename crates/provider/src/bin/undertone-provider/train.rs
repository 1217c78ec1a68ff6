//! `undertone-provider train`

use crate::device::DeviceArguments;
use crate::failure::Outcome;
use crate::output::{self, Output};
use crate::task::TaskArguments;
use clap::Args;
use std::path::PathBuf;
use undertone_provider::{PublicTest, train};
use undertone_run::Metrics;

/// Train on all releases in the store and serve predictions from the new model
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone-provider train task/ --out runs/monday --public dev.tsv \
     --text sentence"
)]
pub struct Train {
    #[command(flatten)]
    task: TaskArguments,
    /// Folder to create for the model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Labeled public file to evaluate the model on
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    /// Text column of the public file, or two comma-separated columns for a pair of texts
    #[arg(
        long,
        value_name = "COLUMN",
        value_delimiter = ',',
        default_value = "text",
        requires = "public"
    )]
    text: Vec<String>,
    /// Label column of the public file
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
            "{} was trained on {} texts from {} owners",
            trained.model.display(),
            trained.releases,
            trained.owners
        ));
        if let Some(Metrics::Classification(scores)) = &trained.metrics {
            let accuracy = 100.0 * scores.accuracy;
            output::line(format_args!("accuracy on the public file: {accuracy:.1} %"));
        }
        output::line(format_args!("promised to owners: {}", trained.promise));
        Ok(())
    }
}
