//! A classifier that is trained on synthetic rows and tested on real ones, and the same classifier
//! trained on the private rows.

use super::evaluation::Evaluated;
use super::scratch;
use crate::failure::{Failure, Outcome};
use crate::source::{key_of_model, list, quoted, quoted_path, resolve};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use undertone::tensor::Device;
use undertone_run::{Metrics, WrittenRun};

/// The rows on which a classifier is trained, and how.
#[derive(Clone, Copy)]
pub enum Trained {
    /// On the synthetic rows: post-processing.
    OnSynthetic,
    /// On the private rows, with the (ε, δ) of the run.
    Privately,
    /// On the private rows, without privacy.
    NonPrivately,
}

/// A classifier to be trained.
pub struct Classifier {
    /// The part of the run file that does not depend on the rows.
    common: Vec<String>,
    synthetic: PathBuf,
    training: PathBuf,
    author: Option<String>,
    budget: Option<(f64, f64)>,
    /// Folder for a run, removed afterward.
    folder: PathBuf,
    device: Device,
}

impl Classifier {
    /// A classifier of a control code, tested on `test`.
    pub fn new(of: &Evaluated, model: &str, target: Option<&str>, test: &Path) -> Outcome<Self> {
        let subject = of.subject;
        let target = match (target, subject.codes.as_slice()) {
            (Some(target), _) => target,
            (None, [only]) => only,
            (None, _) => {
                return Err(Failure::arguments(
                    "--classifier predicts a control code; name it with --target",
                ));
            }
        };
        let Some(at) = subject.codes.iter().position(|column| column == target) else {
            return Err(Failure::arguments(format!(
                "--target {target} is not a control code of the run"
            )));
        };
        let text = of.text_columns()?;
        if text.len() > 2 {
            return Err(Failure::arguments("--classifier reads one or two text columns"));
        }
        let values: BTreeSet<&String> = subject.classes.iter().map(|values| &values[at]).collect();
        let labels: Vec<String> = values.into_iter().cloned().collect();
        let data = &subject.data;
        let common = vec![
            format!("model.{}={}", key_of_model(model), quoted(model)),
            "data.task=classification".to_owned(),
            format!("data.text={}", list(&text)),
            format!("data.label={}", quoted(target)),
            format!("data.labels={}", list(&labels)),
            format!("data.validation={}", quoted_path(test)),
            format!("data.max_tokens={}", data.max_tokens),
        ];
        let guarantee = subject.guarantee.as_ref();
        Ok(Self {
            common,
            synthetic: of.run.synthetic().data(of.facts.data_format),
            training: data.train.clone(),
            author: data.author.clone(),
            budget: guarantee.map(|guarantee| (guarantee.epsilon.upper, guarantee.delta)),
            folder: of.run.private().join("classifier"),
            device: of.device.clone(),
        })
    }

    /// Trains the classifier, and returns its accuracy on the test file.
    pub fn accuracy(&self, trained: Trained) -> Outcome<f64> {
        let mut changes = self.common.clone();
        let rows = match trained {
            Trained::OnSynthetic => &self.synthetic,
            Trained::Privately | Trained::NonPrivately => &self.training,
        };
        changes.push(format!("data.train={}", quoted_path(rows)));
        match (trained, self.budget) {
            (Trained::Privately, Some((epsilon, delta))) => {
                changes.push(format!("privacy.epsilon={epsilon:?}"));
                changes.push(format!("privacy.delta={delta:?}"));
                let author = self.author.iter();
                changes.extend(author.map(|author| format!("data.author={}", quoted(author))));
            }
            _ => changes.push("privacy.method=none".to_owned()),
        }
        let plan = resolve(&WrittenRun::parse("", &changes)?, None, &self.device)?.plan;
        let folder = &self.folder;
        let summary = scratch::within(folder, || scratch::train(plan, folder, &self.device))?;
        match summary.metrics.validation {
            Some(Metrics::Classification(scores)) => Ok(scores.accuracy),
            _ => Err(Failure::arguments("the test file has no rows to classify")),
        }
    }
}
