//! Arguments that select the model.

use super::located::Located;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::data::Labels;
use undertone::model::folder::{LoadOptions, Reading};
use undertone::model::tuning::load_adapted;
use undertone::model::{Model, TaskHead};
use undertone::tensor::Device;
use undertone_run::private_labels;

/// A model, its adapter, and its device.
#[derive(Args)]
pub struct ModelArguments {
    /// Model folder, or model name on the Hugging Face Hub [default: the base model of `--adapter`
    /// or `--run`]
    #[arg(long, value_name = "DIR|NAME", required_unless_present_any = ["adapter", "run"])]
    model: Option<String>,
    /// Folder of an adapter to apply to the model, or of the run that trained it: LoRA, (IA)³,
    /// bottleneck adapter, BitFit or head
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Folder of a finished run, whose model or adapter is used
    #[arg(long, value_name = "DIR", conflicts_with = "adapter")]
    run: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArguments,
}

/// A loaded model with its adapter applied.
pub struct Loaded {
    pub model: Model,
    /// Folder of the whole model, or of the adapter's base model.
    pub folder: PathBuf,
    /// Folder of the adapter, if there is one.
    pub adapter: Option<PathBuf>,
    /// How texts were read in training, if the adapter or the model records it.
    pub reading: Option<Reading>,
    /// Class names kept private by the surrounding run folder.
    private_names: Option<Vec<String>>,
}

impl Loaded {
    /// The class names: those found in the training file if the model is in its run folder,
    /// otherwise those of the model.
    pub fn labels(&self) -> Outcome<Labels> {
        let labels = match &self.private_names {
            Some(names) => Labels::given(names.clone())?,
            None => self.model.label_set()?,
        };
        // Names kept in the run folder cannot be renamed elsewhere.
        let renamed = self.reading.iter().flat_map(|reading| &reading.rename_labels);
        let known = renamed.filter(|(_, name)| labels.names().contains(name));
        let known = known.map(|(value, name)| (value.clone(), name.clone())).collect();
        Ok(labels.with_renamed(&known)?)
    }

    /// Loads a model, by folder or name, and applies an adapter to it.
    pub fn open(
        model: &str,
        adapter: Option<&Path>,
        device: &Device,
        task_head: Option<TaskHead>,
    ) -> Outcome<Self> {
        Self::located(Located::of(Some(model), adapter, None)?, device, task_head)
    }

    /// Loads the trained model of a run.
    pub fn of_run(run: &Path, device: &Device, task_head: Option<TaskHead>) -> Outcome<Self> {
        Self::located(Located::of(None, None, Some(run))?, device, task_head)
    }

    /// Loads a model for the given task head, or for the one in its configuration.
    fn located(located: Located, device: &Device, task_head: Option<TaskHead>) -> Outcome<Self> {
        let Located { base: folder, adapter } = located;
        let options = LoadOptions { task_head, ..LoadOptions::default() };
        let mut model = load_adapted(&folder, adapter.as_deref(), options)?;
        if !model.fresh.is_empty() {
            let names = model.fresh.join(", ");
            crate::output::note(format_args!(
                "warning: the weights lack {names}, which now have random values: fine-tune the \
                 model or pass --adapter before you use its output"
            ));
        }
        model.to_device(device)?;
        let of_adapter = adapter.as_deref().map(Reading::of).transpose()?.flatten();
        let reading = match of_adapter {
            Some(reading) => Some(reading),
            None => Reading::of(&folder)?,
        };
        let trained = adapter.as_deref().unwrap_or(&folder);
        let classifies = model.network.head.task_head == TaskHead::SequenceClassification;
        let private_names = match classifies {
            true => private_labels(trained)?,
            false => None,
        };
        let classes = model.network.head.out.outputs;
        if let Some(names) = private_names.as_ref().filter(|names| names.len() != classes) {
            return Err(Failure::arguments(format!(
                "{} belongs to a run with {} classes, but the model has {classes}; restore the \
                 files of one run",
                trained.display(),
                names.len()
            )));
        }
        Ok(Self { model, folder, adapter, reading, private_names })
    }
}

impl ModelArguments {
    /// The folders of the model.
    pub fn located(&self) -> Outcome<Located> {
        Located::of(self.model.as_deref(), self.adapter.as_deref(), self.run.as_deref())
    }

    /// Loads the model for the given task head, or for the one in its configuration.
    pub fn load(&self, task_head: Option<TaskHead>) -> Outcome<Loaded> {
        Loaded::located(self.located()?, &self.device.device()?, task_head)
    }
}
