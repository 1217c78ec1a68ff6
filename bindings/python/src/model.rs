//! The model of a finished run: prediction, evaluation and generation.

use crate::audit::Argument;
use crate::errors::{naming_rows, raised, user_error};
use crate::process::check;
use crate::rows::Rows;
use crate::train::{columns_of, device_of};
use crate::values::{python_of, to_python};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyList;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::data::read::MemoryFile;
use undertone::data::{Labels, Masking, Options, Task, Tokenizer, stream};
use undertone::evaluate::{FileToEvaluate, Limits, evaluate_file, predict};
use undertone::model::TaskHead;
use undertone::model::generate::{Settings, generate};
use undertone_cli::failure::{Failure, Outcome};
use undertone_cli::use_model::{Loaded, drop_end, prediction_fields};
use undertone_run::RunPaths;

/// A loaded model with everything needed to read its texts.
struct Ready {
    loaded: Loaded,
    tokenizer: Tokenizer,
    labels: Labels,
}

/// The model of a finished run.
#[pyclass(frozen)]
pub struct TrainedModel {
    plan: Plan,
    /// Only one caller at a time computes with the model.
    ready: Mutex<Ready>,
}

/// A path that is used for nothing else.
fn own_path(name: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("in-memory/{number}/{name}.jsonl"))
}

/// Places rows under a path of their own; its name represents them in messages.
pub fn in_memory(rows: &Rows, name: &'static str) -> (MemoryFile, (String, &'static str)) {
    let file = rows.at(own_path(name));
    let shown = file.path().display().to_string();
    (file, (shown, name))
}

#[pymethods]
impl TrainedModel {
    /// Loads the model of the run in `folder`.
    #[new]
    fn open(py: Python, folder: PathBuf, device: &str, precision: Option<&str>) -> PyResult<Self> {
        check()?;
        let device = device_of(device, precision)?.device().map_err(raised)?;
        let (plan, ready) = py
            .detach(|| -> Outcome<(Plan, Ready)> {
                let paths = RunPaths::new(&folder);
                let plan = Plan::read(&paths.plan(), &[])?;
                let (whole, adapter) = (paths.model(), paths.adapter());
                let (model, adapter): (String, Option<&Path>) = match whole.is_dir() {
                    true => (whole.display().to_string(), None),
                    false => (plan.model.name(), Some(&adapter)),
                };
                let loaded = Loaded::open(&model, adapter, &device, Some(plan.task_head()))?;
                let tokenizer = loaded.model.tokenizer(&loaded.folder, plan.data.max_tokens)?;
                let labels = loaded.labels()?;
                Ok((plan, Ready { loaded, tokenizer, labels }))
            })
            .map_err(raised)?;
        Ok(Self { plan, ready: Mutex::new(ready) })
    }

    /// The text columns.
    fn text_columns(&self) -> Vec<String> {
        let task = self.plan.task().without_label();
        task.columns().into_iter().map(str::to_owned).collect()
    }

    /// The columns needed for evaluation.
    fn columns(&self) -> Vec<String> {
        let mut data = self.plan.data.clone();
        data.author = None;
        columns_of(&data)
    }

    /// The prediction for each row.
    fn predict<'py>(&self, py: Python<'py>, rows: &Rows) -> PyResult<Bound<'py, PyList>> {
        check()?;
        let (file, name) = in_memory(rows, "data");
        let task = self.plan.task().without_label();
        let predictions = PyList::empty(py);
        let predicted = self.predict_file(py, file.path(), &task, |piece| {
            piece.into_iter().try_for_each(|row| predictions.append(to_python(py, &row)?))
        });
        predicted.map_err(|error| naming_rows(py, error, &[name]))?;
        Ok(predictions)
    }

    /// Metrics on labeled rows, or on texts.
    fn evaluate<'py>(&self, py: Python<'py>, data: Argument<'py>) -> PyResult<Bound<'py, PyAny>> {
        check()?;
        let in_memory = match &data {
            Argument::Word(_) => None,
            Argument::Rows(rows) => Some(in_memory(rows.get(), "data")),
        };
        let path = match (&data, &in_memory) {
            (Argument::Word(path), _) => Path::new(path),
            (_, Some((file, _))) => file.path(),
            (Argument::Rows(_), None) => unreachable!("rows were put in memory above"),
        };
        let measured = py.detach(|| {
            let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            let (task, options) = (self.plan.task(), Options::default());
            let file = FileToEvaluate {
                path,
                task: &task,
                tokenizer: &ready.tokenizer,
                labels: &ready.labels,
                options: &options,
            };
            evaluate_file(&Ranks::alone(), &ready.loaded.model, &file, Limits::default())
        });
        let measured = measured.map_err(raised).map_err(|error| match in_memory {
            Some((_, name)) => naming_rows(py, error, &[name]),
            None => error,
        })?;
        python_of(py, &measured)
    }

    /// Completions of prompts.
    #[allow(clippy::too_many_arguments)]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompts: Vec<String>,
        samples: usize,
        max_new_tokens: usize,
        temperature: f32,
        top_k: usize,
        top_p: f32,
        beams: usize,
        seed: u64,
        batch: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        check()?;
        if self.plan.task_head() != TaskHead::CausalLanguageModel {
            return Err(user_error(
                "the run trained a model that does not generate; generate() is for \
                 language-modeling, completion and chat runs",
            ));
        }
        let mut completions = Vec::new();
        // In chunks, between which Ctrl-C is checked; the texts equal those of a single call.
        for (number, chunk) in prompts.chunks(batch.max(1)).enumerate() {
            py.check_signals()?;
            let first = number * batch.max(1) * samples;
            let generated = py.detach(|| -> Outcome<Vec<Value>> {
                let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
                let model = &ready.loaded.model;
                let most = model.network.max_positions;
                let tokenizer = model.tokenizer(&ready.loaded.folder, most)?;
                let mut ids = Vec::new();
                for prompt in chunk {
                    ids.extend(std::iter::repeat_n(tokenizer.prompt(prompt, 1)?, samples));
                }
                let mut end_tokens = model.end_tokens();
                end_tokens.extend(tokenizer.eos());
                let settings = Settings {
                    max_new_tokens,
                    temperature,
                    top_k,
                    top_p,
                    beams,
                    seed,
                    first: first as _,
                    end_tokens: end_tokens.clone(),
                    batch,
                    ..Settings::default()
                };
                let texts = generate(model, &ids, &settings, |_| ())?;
                let mut completed = Vec::new();
                for (i, mut tokens) in texts.into_iter().enumerate() {
                    tokens.pop_if(|last| end_tokens.contains(last));
                    let whole: Vec<u32> = ids[i].iter().chain(&tokens).copied().collect();
                    completed.push(json!({
                        "prompt": chunk[i / samples],
                        "completion": tokenizer.decode(&tokens)?,
                        "text": tokenizer.decode(&whole)?,
                    }));
                }
                Ok(completed)
            });
            completions.extend(generated.map_err(raised)?);
        }
        python_of(py, &completions)
    }
}

impl TrainedModel {
    /// Predicts the rows of a file in chunks, between which Ctrl-C is checked.
    fn predict_file(
        &self,
        py: Python,
        path: &Path,
        task: &Task,
        mut take: impl FnMut(Vec<Value>) -> PyResult<()>,
    ) -> PyResult<()> {
        let ready = self.ready.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let Ready { loaded, tokenizer, labels } = &*ready;
        let task_head = loaded.model.network.head.task_head;
        let masking = Masking::of(task, tokenizer).map_err(raised)?;
        let options = Options::default();
        let mut chunks = stream(path, task, tokenizer, None, &options).map_err(raised)?;
        let mut done = 0;
        loop {
            py.check_signals()?;
            let predicted = py.detach(|| -> Outcome<Option<Vec<Value>>> {
                let Some(chunk) = chunks.next() else { return Ok(None) };
                let mut examples = chunk?;
                if let Some(masking) = &masking {
                    examples = masking.for_evaluation(&examples, done);
                } else if task_head != TaskHead::SequenceClassification {
                    examples.iter_mut().for_each(|e| drop_end(e, tokenizer.eos()));
                }
                done += examples.len() as u64;
                let predictions = predict(&loaded.model, &examples, Limits::default(), false)?;
                let value = |prediction| {
                    let fields: Map<String, Value> =
                        prediction_fields(task_head, labels.names(), &prediction, false);
                    Value::Object(fields)
                };
                Ok::<_, Failure>(Some(predictions.into_iter().map(value).collect()))
            });
            match predicted.map_err(raised)? {
                Some(rows) => take(rows)?,
                None => return Ok(()),
            }
        }
    }
}
