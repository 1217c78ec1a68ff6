//! A classifier that is trained on synthetic rows and tested on real ones, and the same classifier
//! trained on the private rows.

use super::evaluation::Evaluated;
use super::scratch;
use crate::failure::{Failure, Outcome};
use crate::source::{key_of_model, list, quoted, quoted_path, resolve};
use crate::stop::Stop;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use undertone::tensor::Device;
use undertone_run::{DataSection, Metrics, RunPaths, WrittenRun};

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
pub struct Classifier<'a> {
    /// The part of the run file that does not depend on the rows.
    common: Vec<String>,
    synthetic: PathBuf,
    /// The private rows that steps may sample.
    training: &'a DataSection,
    budget: Option<(f64, f64)>,
    /// Folder for a run, removed afterward.
    folder: PathBuf,
    device: &'a Device,
    stop: &'a Stop,
}

impl<'a> Classifier<'a> {
    /// Folder of its runs, removed afterward.
    pub fn folder(run: &RunPaths) -> PathBuf {
        run.private().join("classifier")
    }

    /// A classifier of a control code, tested on `test`.
    pub fn new(
        of: &Evaluated<'a>,
        model: &str,
        target: Option<&str>,
        test: &Path,
    ) -> Outcome<Self> {
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
            training: data,
            budget: guarantee.map(|guarantee| (guarantee.epsilon.upper, guarantee.delta)),
            folder: Self::folder(of.run),
            device: of.device,
            stop: of.stop,
        })
    }

    /// The keys of the training file, without those of the privacy unit.
    fn private_rows(&self) -> Vec<String> {
        let DataSection { train, format, on_bad_row, hold_out, author, .. } = self.training;
        let mut changes = vec![format!("data.train={}", quoted_path(train))];
        let name = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        changes.extend(format.map(|format| format!("data.format={}", name(json!(format)))));
        changes.push(format!("data.on_bad_row={}", name(json!(on_bad_row))));
        // Units are held out by author; a run without privacy has none.
        let share = hold_out.filter(|_| author.is_none());
        changes.extend(share.map(|share| format!("data.hold_out={share:?}")));
        changes
    }

    /// The keys of the privacy unit.
    fn unit(&self) -> Vec<String> {
        let DataSection { author, most_per_author, hold_out, .. } = self.training;
        let Some(author) = author else { return Vec::new() };
        let mut changes = vec![
            format!("data.author={}", quoted(author)),
            format!("data.most_per_author={most_per_author}"),
        ];
        changes.extend(hold_out.map(|share| format!("data.hold_out={share:?}")));
        changes
    }

    /// Trains the classifier, and returns its accuracy on the test file.
    pub fn accuracy(&self, trained: Trained) -> Outcome<f64> {
        let mut changes = self.common.clone();
        match trained {
            Trained::OnSynthetic => {
                changes.push(format!("data.train={}", quoted_path(&self.synthetic)));
            }
            Trained::Privately | Trained::NonPrivately => changes.extend(self.private_rows()),
        }
        match (trained, self.budget) {
            (Trained::Privately, Some((epsilon, delta))) => {
                changes.push(format!("privacy.epsilon={epsilon:?}"));
                changes.push(format!("privacy.delta={delta:?}"));
                changes.extend(self.unit());
            }
            _ => changes.push("privacy.method=none".to_owned()),
        }
        let plan = resolve(&WrittenRun::parse("", &changes)?, None, self.device)?.plan;
        let folder = &self.folder;
        let summary =
            scratch::within(folder, || scratch::train(plan, folder, self.device, self.stop))?;
        match summary.metrics.validation {
            Some(Metrics::Classification(scores)) => Ok(scores.accuracy),
            _ => Err(Failure::arguments("the test file has no rows to classify")),
        }
    }
}
