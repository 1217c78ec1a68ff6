//! Metrics of a model on a file of labeled rows, or of texts.

use super::{Limits, Meter, Metrics, OfClass, Ranking, by_class, predict_on_ranks};
use crate::collective::Ranks;
use crate::data::{Labels, Masking, Options, Task, Tokenizer, stream};
use crate::error::Result;
use crate::model::{Model, TaskHead};
use serde::Serialize;
use std::path::Path;

/// All metrics of a model on a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileMetrics {
    /// Accuracy, F1 and loss, or perplexity.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// ROC AUC of a classifier: of class 1 for two classes, otherwise the one-vs-rest mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auc: Option<f64>,
    /// Metrics of each class of a classifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_class: Vec<OfClass>,
}

/// A file to evaluate a model on.
#[derive(Debug)]
pub struct FileToEvaluate<'a> {
    /// The file.
    pub path: &'a Path,
    /// The task and its columns.
    pub task: &'a Task,
    /// The tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// The class names of a classifier.
    pub labels: &'a Labels,
    /// How the file is read.
    pub options: &'a Options,
}

/// Evaluates a model on a file; ranks share each chunk of rows. Masked language models are always
/// evaluated with the same masks.
pub fn evaluate_file(
    ranks: &Ranks,
    model: &Model,
    file: &FileToEvaluate,
    limits: Limits,
) -> Result<FileMetrics> {
    let FileToEvaluate { path, task, tokenizer, labels, options } = *file;
    let task_head = model.network.head.task_head;
    let given = (task_head == TaskHead::SequenceClassification).then_some(labels);
    let mut meter = Meter::new(task_head, model.network.head.out.outputs);
    let mut ranking = Ranking::default();
    let masking = Masking::of(task, tokenizer)?;
    let mut read = 0;
    for chunk in stream(path, task, tokenizer, given, options)? {
        let mut examples = chunk?;
        if let Some(masking) = &masking {
            examples = masking.for_evaluation(&examples, read);
        }
        read += examples.len() as u64;
        let predictions = predict_on_ranks(ranks, model, &examples, limits, false)?;
        for (example, prediction) in examples.iter().zip(&predictions) {
            meter.add(example, prediction);
            ranking.add(example, prediction);
        }
    }
    let metrics = meter.metrics();
    let by_class = match &metrics {
        Metrics::Classification(scores) => by_class(&scores.confusion, labels.names()),
        Metrics::Language(_) => Vec::new(),
    };
    Ok(FileMetrics { metrics, auc: ranking.auc(), by_class })
}
