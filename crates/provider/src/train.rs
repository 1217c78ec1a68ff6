//! `provider train`: trains on the store, repeatedly as more releases arrive.

use crate::error::{Error, Result};
use crate::hex::hex;
use crate::serve::{Current, write_current};
use crate::store::{Store, now};
use crate::task::TaskFolder;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use undertone::data::{Dataset, Labels, Options, Task as DataTask};
use undertone::method::local::split::{ProviderHalf, Received};
use undertone::tensor::Device;
use undertone_run::{LearnerKind, Metrics, escape_markdown, write_atomically, write_json};

/// Number of releases read at a time.
const CHUNK: usize = 8192;

/// The result of training, as in `training.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    /// Hash of the task.
    pub task: String,
    /// Folder of the model.
    pub model: PathBuf,
    /// Number of releases per epoch it was trained on.
    pub releases: u64,
    /// Number of owners of these releases.
    pub owners: u64,
    /// Number of texts by the label that was sent.
    pub by_label: Vec<(String, u64)>,
    /// Metrics on the texts of a public file, without noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// The promise to each text's owner.
    pub promise: String,
    pub epsilon: f64,
    pub delta: f64,
    /// Seconds since 1970.
    pub at: u64,
}

/// A public file on which the model is evaluated.
#[derive(Clone, Debug)]
pub struct PublicTest {
    pub file: PathBuf,
    pub text: Vec<String>,
    pub label: String,
}

/// Trains on everything in the store, saves the model in `out` and makes it the current one.
pub fn train(
    folder: &TaskFolder,
    mut store: Box<dyn Store>,
    out: &Path,
    device: &Device,
    test: Option<&PublicTest>,
) -> Result<Trained> {
    let task = &folder.task;
    undertone_run::check_new_folder(out)?;
    let plan = folder.plan()?.plan;
    let half =
        ProviderHalf::load(&folder.model(), task.releases.clone(), task.label_epsilon, device)?;
    if half.width() != task.width {
        return Err(Error::mistake("the model of the task has another width than its frames"));
    }
    let counts = store.counts()?;
    let owners = store.owners()?.iter().filter(|owner| owner.releases > 0).count() as u64;
    let last = task.epochs() as u32 - 1;
    if counts.of_epoch(last) < 2 {
        return Err(Error::mistake(
            "the store has fewer than two releases; wait for owners to contribute",
        ));
    }
    let (half, releases) = match task.learn {
        LearnerKind::Discriminant => fit(half, store)?,
        _ => half.learn_by_gradients(&plan, &mut |epoch| {
            let epoch = epoch.min(task.epochs() - 1) as u32;
            let mut all = Received::default();
            let read = store.read(epoch, CHUNK, &mut |numbers, labels| {
                all.numbers.extend(numbers);
                all.labels.extend(labels);
                Ok(())
            });
            read.map_err(as_plan_error)?;
            Ok(all)
        })?,
    };
    let metrics = test.map(|test| measure(folder, &half, test)).transpose()?;
    let model = out.join("model");
    half.save(&model, &folder.model())?;
    let first = counts.releases.iter().filter(|(epoch, ..)| *epoch == 0);
    let name = |label: u32| task.labels.get(label as usize).cloned().unwrap_or_default();
    let trained = Trained {
        task: hex(&folder.hash),
        model: std::path::absolute(&model).map_err(Error::io(&model))?,
        releases,
        owners,
        by_label: first.map(|(_, label, count)| (name(*label), *count)).collect(),
        metrics,
        promise: task.promise(),
        epsilon: task.epsilon,
        delta: task.delta,
        at: now(),
    };
    let card = card(folder, &trained);
    write_atomically(&model.join("README.md"), |out| out.write_all(card.as_bytes()))?;
    write_json(&out.join("training.json"), &trained)?;
    let accuracy = trained.metrics.as_ref().and_then(|metrics| match metrics {
        Metrics::Classification(scores) => Some(scores.accuracy),
        Metrics::Language(_) => None,
    });
    let current =
        Current { model: trained.model.clone(), releases, owners, accuracy, at: trained.at };
    write_current(folder, &current)?;
    Ok(trained)
}

fn as_plan_error(error: Error) -> undertone::Error {
    match error {
        Error::Train(error) => error,
        other => undertone::Error::Run(undertone_run::Error::run_file(other.to_string())),
    }
}

/// Fits in closed form. A thread reads the store while the previous chunk is being summed, so at
/// most two chunks are in memory, whatever the size of the store.
fn fit(mut half: ProviderHalf, mut store: Box<dyn Store>) -> Result<(ProviderHalf, u64)> {
    let (sender, chunks) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let read = store.read(0, CHUNK, &mut |numbers, labels| {
                let sent = sender.send(Ok(Received { numbers, labels }));
                sent.map_err(|_| Error::failed("nobody learns any more"))
            });
            if let Err(e) = read {
                let _ = sender.send(Err(as_plan_error(e)));
            }
        });
        let count = half.fit(&mut chunks.into_iter())?;
        Ok((half, count))
    })
}

/// Metrics on a public file.
fn measure(folder: &TaskFolder, half: &ProviderHalf, test: &PublicTest) -> Result<Metrics> {
    let task = &folder.task;
    if test.text.len() != task.texts {
        return Err(Error::mistake(format!("the task's texts have {} columns", task.texts)));
    }
    let tokenizer =
        half.model().tokenizer(&folder.model(), task.max_tokens).map_err(undertone::Error::from)?;
    let columns =
        DataTask::Classification { text: test.text.clone(), label: Some(test.label.clone()) };
    let labels = Labels::given(task.labels.clone())?;
    let data = Dataset::load(&test.file, &columns, &tokenizer, Some(labels), &Options::default())?;
    Ok(half.evaluate(&data.examples)?)
}

/// The model card: the promise to owners, and what the provider has seen.
fn card(folder: &TaskFolder, trained: &Trained) -> String {
    let task = &folder.task;
    let base = escape_markdown(&task.base.name);
    let quality = match &trained.metrics {
        Some(Metrics::Classification(scores)) => format!(
            "\n## Metrics\n\nOn a public file of {} texts, without noise: accuracy {:.2} %, F1 \
             {:.4}.\n",
            scores.examples,
            100.0 * scores.accuracy,
            scores.f1
        ),
        _ => String::new(),
    };
    format!(
        "# {base}, trained on perturbed embeddings\n\n## What owners were promised\n\nEach owner \
         ran pre(·) at home, and {}. Each owner's own ledger holds that release; the provider has \
         none, and needs none.\n\n## What the provider saw\n\nReleases only: {} of them, from {} \
         owners, under the task `{}`. It never had a text, an embedding without noise or a label \
         without randomized response{}. Everything in this model is a function of those releases, \
         of the public base model and of public text: post-processing, which costs no \
         privacy.\n\nThis holds if each owner's undertone added the noise that it states, and an \
         owner's text stands for one person.\n{quality}\n## What is not guaranteed\n\n- That the \
         model reveals nothing about the data as a whole: it learns what many texts have in \
         common.\n- Anything about other releases of the same texts, such as under other tasks: \
         their budgets add up in the owner's own ledger.\n- That contributions are honest: an \
         owner can send any numbers.\n- That the model is accurate, fair or safe.\n",
        trained.promise,
        trained.releases,
        trained.owners,
        trained.task,
        if task.label_epsilon.is_some() { "" } else { " (labels of this task are public)" },
    )
}
