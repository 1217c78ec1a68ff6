//! `provider init`: creates a task from a task file.

use super::folder::TaskFolder;
use super::{BaseModel, FORMAT, PublicFile, SLOTS, Task};
use crate::error::{Error, Result};
use crate::hex::{hash_file, hex};
use crate::receipt::SigningKey;
use std::io::Write;
use std::path::Path;
use undertone::Plan;
use undertone::method::local::split::{OwnerHalf, Split};
use undertone::tensor::Device;
use undertone_run::{last_component, write_atomically};

/// A task file: a run file without training data.
#[derive(Debug)]
pub struct TaskPlan {
    /// The text of the file.
    text: String,
    pub plan: Plan,
}

/// Keys of `[data]` that name files of examples, which the provider does not have.
const OF_EXAMPLES: [&str; 6] =
    ["train", "validation", "validation_is_public", "hold_out", "author", "most_per_author"];

/// Placeholder in a plan for the training file of a run file.
const NOBODY_S: &str = "the owners' texts";

/// Files of the base model that are listed in the task.
const BASE_FILES: [&str; 4] =
    ["config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"];

impl TaskPlan {
    /// Reads a task file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = undertone_run::read_settings(path).map_err(Error::io(path))?;
        Self::parse(text).map_err(|e| Error::mistake(format!("{}: {e}", path.display())))
    }

    fn parse(text: String) -> Result<Self> {
        let mut file: toml::Table =
            toml::from_str(&text).map_err(|e| Error::mistake(e.message().to_owned()))?;
        let data = section(&mut file, "data")?;
        if let Some(key) = OF_EXAMPLES.iter().find(|key| data.contains_key(**key)) {
            return Err(Error::mistake(format!(
                "data.{key} is for run files: in a task the examples are the owners'"
            )));
        }
        data.insert("train".into(), NOBODY_S.into());
        data.entry("task").or_insert_with(|| "classification".into());
        let training = section(&mut file, "training")?;
        training.entry("epochs").or_insert(1.into());
        training.entry("batch").or_insert(1024.into());
        training.entry("learning_rate").or_insert(1e-3.into());
        let filled = toml::to_string(&file).map_err(|e| Error::mistake(e.to_string()))?;
        let plan = Plan::parse(&filled, &[])?;
        Ok(Self { text, plan })
    }
}

fn section<'a>(file: &'a mut toml::Table, name: &str) -> Result<&'a mut toml::Table> {
    let section = file.entry(name).or_insert_with(|| toml::Table::new().into());
    section.as_table_mut().ok_or_else(|| Error::mistake(format!("[{name}] must be a section")))
}

/// Creates the folder of a task: fits the encoder on public text, calibrates the noise and saves
/// pre(·). `examples` is the expected total number of examples.
pub fn init(file: &Path, out: &Path, device: &Device, examples: usize) -> Result<TaskFolder> {
    let TaskPlan { text, plan } = TaskPlan::read(file)?;
    let task_path = TaskFolder::task_path(out);
    if task_path.exists() {
        return Err(Error::mistake(format!(
            "{} already contains a task, which owners may have pinned; choose another folder",
            out.display()
        )));
    }
    let split = Split::make(&plan, device, examples, &mut |_| ())?;
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    let (model, pre) = (TaskFolder::model_path(out), TaskFolder::pre_path(out));
    split.save_whole(&model)?;
    split.save_below(&pre)?;
    let key_path = TaskFolder::key_path(out);
    // Left behind by an interrupted init; no task names it.
    let _ = std::fs::remove_file(&key_path);
    let key = SigningKey::create(&key_path)?;
    let half = OwnerHalf::load(&pre, device)?;
    let mut task = Task {
        format: FORMAT,
        name: file.file_stem().map_or("task".into(), |name| name.to_string_lossy().into_owned()),
        base: base_model(&plan, &split.origin)?,
        texts: plan.data.text.len(),
        labels: plan.data.labels.clone().unwrap_or_default(),
        max_tokens: split.max_tokens,
        sanitizer: split.config.clone(),
        releases: split.releases.clone(),
        label_epsilon: split.label_epsilon,
        epsilon: 0.0,
        delta: split.delta,
        learn: split.learn,
        width: half.width(),
        slots: SLOTS,
        key: hex(&key.public()),
        files: files_of(&pre)?,
    };
    task.epsilon = task.epsilon_at(task.delta)?;
    let mut bytes = serde_json::to_vec_pretty(&task)
        .map_err(|e| Error::mistake(format!("the task cannot be written: {e}")))?;
    bytes.push(b'\n');
    // Reject here what owners would reject.
    Task::parse(&bytes)?;
    write_atomically(&TaskFolder::plan_path(out), |out| out.write_all(text.as_bytes()))?;
    // Written last: a folder that contains it is complete.
    write_atomically(&task_path, |out| out.write_all(&bytes))?;
    TaskFolder::open(out)
}

fn public_file(path: &Path, name: &str) -> Result<PublicFile> {
    let (sha256, bytes) = hash_file(path)?;
    Ok(PublicFile { name: name.to_owned(), bytes, sha256: hex(&sha256) })
}

/// All files of a folder, by name.
fn files_of(folder: &Path) -> Result<Vec<PublicFile>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        names.push(entry.map_err(Error::io(folder))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    names.iter().map(|name| public_file(&folder.join(name), name)).collect()
}

fn base_model(plan: &Plan, origin: &Path) -> Result<BaseModel> {
    let name = match (&plan.model.hub, &plan.model.path) {
        (Some(hub), _) => hub.clone(),
        // The path on the provider's machine stays private.
        (None, Some(path)) => last_component(path).to_owned(),
        (None, None) => "model".to_owned(),
    };
    // The Hub's cache stores revision R in snapshots/R.
    let parent = origin.parent().and_then(Path::file_name);
    let revision = (plan.model.hub.is_some() && parent.is_some_and(|name| name == "snapshots"))
        .then(|| origin.file_name().map(|name| name.to_string_lossy().into_owned()))
        .flatten();
    let present = BASE_FILES.iter().filter(|name| origin.join(name).is_file());
    let files = present.map(|name| public_file(&origin.join(name), name));
    Ok(BaseModel { name, revision, files: files.collect::<Result<_>>()? })
}
