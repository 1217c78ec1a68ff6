//! `undertone-provider init`

use crate::device::DeviceArguments;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use undertone_provider::{hex, init};

/// Create a public task: fit the encoder on public text, calibrate the noise and split the model
///
/// A task file is a run file without training data. Its sections are model, data (with text, labels
/// and max_tokens), and privacy (with a local DP method).
#[derive(Args)]
#[command(after_help = "Example:\n  undertone-provider init task.toml --out task/")]
pub struct Init {
    /// Task file (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder to create for the task
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Expected total number of texts; affects noise schedules over several epochs
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    expected_texts: u64,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Init {
    pub fn run(self, output: Output) -> Outcome {
        let device = self.device.device()?;
        let folder = init(&self.file, &self.out, &device, self.expected_texts as usize)?;
        let (task, hash) = (&folder.task, hex(&folder.hash));
        let bytes: u64 = task.files.iter().map(|file| file.bytes).sum();
        if output.json {
            output::json(&json!({
                "task": hash, "folder": self.out, "epsilon": task.epsilon, "delta": task.delta,
                "width": task.width, "epochs": task.epochs(), "pre_bytes": bytes,
                "frame_bytes": undertone_provider::frame_length(task),
            }));
            return Ok(());
        }
        output::line(format_args!("{} is made", self.out.display()));
        output::rows(&[
            ("task", hash),
            ("promise", task.promise()),
            ("a release", format!("{} numbers and a label", task.width)),
            ("pre(·)", format!("{:.1} MB in {} files", bytes as f64 / 1e6, task.files.len())),
        ]);
        output::line(
            "Next: undertone-provider tokens new and serve; owners then run \
                      undertone-provider contribute.",
        );
        Ok(())
    }
}
