//! Turns a run file into a plan, or into a one-sentence error.

use super::{Method, Plan};
use crate::data::Task;
use crate::data::read;
use crate::error::{Error, Result};
use crate::method::central::CentralPlan;
use crate::method::local::LocalPlan;
use crate::synthesize;
use std::path::{Path, PathBuf};
use undertone_run::{DataSection, LearnerKind, MethodName, RunFile, TaskName};

impl Plan {
    /// Checks a run file and fills in the defaults that depend on its method.
    pub fn check(file: RunFile) -> Result<Self> {
        if file.model.path.is_some() == file.model.hub.is_some() {
            return Err(Error::plan("[model] needs either path (a folder) or hub (a name)"));
        }
        let text_columns = match file.data.task {
            TaskName::Classification => 1..=2,
            TaskName::LanguageModeling | TaskName::MaskedLanguageModeling => 1..=1,
            TaskName::Completion | TaskName::Chat => 0..=0,
        };
        if !text_columns.contains(&file.data.text.len()) {
            return Err(Error::plan(match file.data.task {
                TaskName::Classification => {
                    "data.text names the column of the text, or the two of a pair"
                }
                TaskName::LanguageModeling | TaskName::MaskedLanguageModeling => {
                    "data.text names the one column of the text"
                }
                TaskName::Completion => {
                    "completion reads data.prompt and data.completion; leave data.text out"
                }
                TaskName::Chat => "chat reads data.messages; leave data.text out",
            }));
        }
        if file.data.task == TaskName::Classification && file.data.labels.is_none() {
            check_label_column(&file.data)?;
        }
        if file.data.task == TaskName::Completion {
            let (prompt, completion) = (file.data.prompt.clone(), file.data.completion.clone());
            Task::Completion { prompt, completion }.check()?;
        }
        if let Some(synthesis) = &file.synthesis {
            synthesize::check(&file.data, synthesis)?;
        }
        let method = match file.privacy.method {
            MethodName::None => Method::NonPrivate,
            method if method.is_local() => Method::Local(Box::new(LocalPlan::check(&file)?)),
            _ => Method::Central(CentralPlan::check(&file)?),
        };
        let RunFile { model, data, privacy, training, evaluation, compute, synthesis, .. } = file;
        let registered = None;
        let plan = Self {
            model,
            data,
            training,
            evaluation,
            compute,
            method,
            synthesis,
            registered,
            privacy,
        };
        plan.check_validation()?;
        plan.check_public_files()?;
        Ok(plan)
    }

    /// Whether the validation file is the training file, possibly by another path.
    pub fn validates_on_training_file(&self) -> bool {
        self.data.validation.as_ref().is_some_and(|file| self.is_training_file(file))
    }

    fn is_training_file(&self, file: &Path) -> bool {
        // A pattern or a folder stands for its files; a single common file is enough.
        let places = |path: &Path| -> Vec<PathBuf> {
            let files = read::files(path).unwrap_or_default();
            files.iter().filter_map(|file| std::fs::canonicalize(file).ok()).collect()
        };
        let own = places(&self.data.train);
        *file == *self.data.train || places(file).iter().any(|place| own.contains(place))
    }

    /// Refuses to treat the training file as public.
    fn check_public_files(&self) -> Result<()> {
        let files = match &self.method {
            Method::NonPrivate => Vec::new(),
            Method::Central(central) => central.public_files(),
            Method::Local(local) => local.public_files(),
        };
        match files.into_iter().find(|file| self.is_training_file(file)) {
            None => Ok(()),
            Some(file) => Err(Error::plan(format!(
                "{} is the private training file, so it cannot be used as a public one",
                file.display()
            ))),
        }
    }

    /// Checks that the declaration of the validation file fits its use.
    fn check_validation(&self) -> Result<()> {
        let data = &self.data;
        if data.validation_is_public && self.validates_on_training_file() {
            return Err(Error::plan(
                "data.validation is the private training file, so data.validation_is_public \
                 cannot be true",
            ));
        }
        if self.training.stop_early.is_none() {
            return Ok(());
        }
        if self.evaluation.epsilon.is_some() {
            if self.evaluation.every == 1 {
                return Ok(());
            }
            return Err(Error::plan(format!(
                "training.stop_early needs a metric after each epoch, but evaluation.every is {}: \
                 leave it out",
                self.evaluation.every
            )));
        }
        if self.is_private() && !data.validation_is_public {
            return Err(Error::plan(
                "training.stop_early uses data.validation, and no ledger entry covers what a \
                 private file reveals: set data.validation_is_public = true if the file is public \
                 and does not depend on the training file, release metrics with noise by \
                 evaluation.epsilon, or leave stop_early out",
            ));
        }
        match &self.method {
            Method::Local(local) if local.settings.learn == LearnerKind::Discriminant => {
                Err(Error::plan(
                    "training.stop_early is for runs that learn by gradients, and the \
                     discriminant is fitted once; remove it, or set privacy.local.learn",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses to read classes from a column that contains texts or authors.
fn check_label_column(data: &DataSection) -> Result<()> {
    let also = match &data.author {
        Some(author) if *author == data.label => "data.author",
        _ if data.text.contains(&data.label) => "data.text",
        _ => return Ok(()),
    };
    Err(Error::plan(format!(
        "column {:?} is data.label and {also}, so its values would become the classes; name the \
         label column, or the classes in data.labels",
        data.label
    )))
}

/// δ, which every private method requires.
pub(crate) fn delta(file: &RunFile) -> Result<f64> {
    file.privacy.delta.ok_or_else(|| {
        Error::plan(
            "[privacy] needs delta; well below 1/(number of examples) is usual, such as 1e-5",
        )
    })
}
