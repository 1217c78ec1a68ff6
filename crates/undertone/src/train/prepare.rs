//! Loads the model and the data of a plan.

use crate::data::{
    Dataset, HoldOut, Labels, Options, Part, PrivacyUnit, Tokenizer, examples_by_line, format_of,
    stream,
};
use crate::error::{Error, Result};
use crate::method::central::{AllocationPlan, MapSource};
use crate::method::{Prepared, PublicData};
use crate::model::folder::{Config, LoadOptions, Outline, load, locate};
use crate::model::{Model, TaskHead};
use crate::noise::{Secret, purpose};
use crate::plan::{Method, Plan};
use crate::synthesize::Classes;
use crate::tensor::Device;
use std::collections::BTreeMap;
use std::path::Path;
use undertone_run::{PublicFile, Tuning, private_labels};

impl Prepared {
    /// Loads model and data; `data` replaces the training file. New parameters are initialized from
    /// the secret.
    pub fn load(
        plan: &Plan,
        secret: &Secret,
        device: &Device,
        data: Option<Dataset>,
    ) -> Result<Self> {
        let origin = locate(&plan.model.name())?;
        let ClassNames { labels, were_found, are_private } = ClassNames::of(plan, &origin)?;
        let seed = secret.number(purpose::INITIAL_VALUES);
        // The model and its configuration are published. The data is read using the true names.
        let published = |labels: &Labels| match are_private {
            true => labels.numbered(),
            false => labels.names().to_vec(),
        };
        let options = LoadOptions {
            task_head: Some(plan.task_head()),
            labels: labels.as_ref().map(published),
            seed,
            quantize: plan.model.quantize,
        };
        let mut model = load(&origin, &options)?;
        if model.network.sanitizer.is_some() {
            return Err(Error::plan(
                "the model has already been trained on perturbed embeddings; start from its base \
                 model",
            ));
        }
        if let Method::Local(local) = &plan.method {
            local.check_model(&model.network)?;
        }
        check_head(&model, &plan.model.tuning)?;
        model.apply_tuning(&plan.model.tuning, seed)?;
        if let Some(biases) = plan.model.biases {
            model.initialize_biases(biases, seed)?;
        }
        model.to_device(device)?;
        model.recompute = plan.compute.recompute;
        if plan.model.tuning.leaves_base() && !matches!(plan.method, Method::Local(_)) {
            model.round_frozen()?;
        }
        let tokenizer = model.tokenizer(&origin, plan.data.max_tokens)?;
        let classes = (plan.synthesis.as_ref())
            .map(|section| Classes::load(plan, section, &tokenizer))
            .transpose()?;
        let files = Files { plan, labels: labels.as_ref(), tokenizer: &tokenizer };
        let data = match data {
            Some(data) => data,
            None => files.read(&plan.data.train, trained_on(plan))?,
        };
        let validation = plan
            .data
            .validation
            .as_ref()
            .map(|path| files.read(path, validated_on(plan)))
            .transpose()?;
        let public = files.public()?;
        let (labels_were_found, labels_are_private) = (were_found, are_private);
        Ok(Self {
            model,
            data,
            validation,
            public,
            classes,
            origin,
            labels_were_found,
            labels_are_private,
        })
    }
}

/// Requires full fine-tuning if the model's masked-language-modeling head is new: other fine-tuning
/// methods would leave that head with random weights.
pub(super) fn check_head(model: &Model, tuning: &Tuning) -> Result<()> {
    let masked = model.network.head.task_head == TaskHead::MaskedLanguageModel;
    match model.fresh.first().filter(|_| masked && *tuning != Tuning::Full) {
        Some(name) => Err(Error::plan(format!(
            "the base model has no masked-language-modeling head ({name} is missing): use \
             model.tuning = \"full\", which trains it, or a base model that has one"
        ))),
        None => Ok(()),
    }
}

/// Reads the files of a plan.
struct Files<'a> {
    plan: &'a Plan,
    labels: Option<&'a Labels>,
    tokenizer: &'a Tokenizer,
}

impl Files<'_> {
    /// Reads a file with the same columns as the training file.
    fn read(&self, path: &Path, options: Options) -> Result<Dataset> {
        let labels = self.labels.cloned();
        Ok(Dataset::load(path, &self.plan.task(), self.tokenizer, labels, &options)?)
    }

    /// Reads the public data of the method.
    fn public(&self) -> Result<PublicData> {
        let mut public = PublicData::default();
        match &self.plan.method {
            Method::NonPrivate => {}
            Method::Central(central) => {
                if let AllocationPlan::RapFt(rap_ft) = &central.allocation
                    && let MapSource::Public { file, .. } = &rap_ft.source
                {
                    public.relevance = Some(self.read(file, every_row(self.plan))?);
                }
                let importance = central.public_importance();
                public.importance =
                    importance.map(|file| self.read(file, every_row(self.plan))).transpose()?;
            }
            Method::Local(local) => {
                let read = |file: &PublicFile, labeled: bool| -> Result<Dataset> {
                    let options =
                        Options { unit: PrivacyUnit::Row, progress: true, ..Options::default() };
                    let labels = self.labels.cloned().filter(|_| labeled);
                    let task = local.public_task(&self.plan.data, file, labeled);
                    Ok(Dataset::load(&file.file, &task, self.tokenizer, labels, &options)?)
                };
                let adaptation = local.adapt.as_ref().and_then(|adapt| adapt.public.as_ref());
                public.text = local.public.as_ref().map(|file| read(file, false)).transpose()?;
                public.adaptation = adaptation.map(|file| read(file, true)).transpose()?;
            }
        }
        Ok(public)
    }
}

/// The tokenizer, the number of its tokens for which the model has embeddings, and the labels.
pub(crate) fn reader(plan: &Plan) -> Result<(Tokenizer, usize, Option<Labels>)> {
    let origin = locate(&plan.model.name())?;
    let labels = ClassNames::of(plan, &origin)?.labels;
    let options = LoadOptions {
        task_head: Some(plan.task_head()),
        labels: labels.as_ref().map(|l| l.names().to_vec()),
        ..LoadOptions::default()
    };
    let model = Outline::read(&origin, &options)?.model;
    // A soft prompt takes positions of the text.
    let before = match &plan.model.tuning {
        Tuning::Prompt(prompt) => prompt.tokens,
        _ => 0,
    };
    let room = model.network.max_positions.saturating_sub(before).max(1);
    let tokenizer = model.tokenizer(&origin, plan.data.max_tokens.min(room))?;
    let known = tokenizer.usable();
    Ok((tokenizer, known, labels))
}

/// Options for a file in which every row is read as its own privacy unit.
fn every_row(plan: &Plan) -> Options {
    Options {
        format: plan.data.format,
        unit: PrivacyUnit::Row,
        part: Part::All,
        long_texts: plan.data.long_texts,
        pack: false,
        on_bad_row: plan.data.on_bad_row,
        progress: true,
    }
}

/// Options for the validation file. If metrics are released, they are bounded for each unit.
fn validated_on(plan: &Plan) -> Options {
    let unit = match plan.evaluation.epsilon {
        Some(_) => plan.unit(),
        None => PrivacyUnit::Row,
    };
    Options { unit, ..every_row(plan) }
}

/// Options for the training file: only the units that a run can sample.
fn trained_on(plan: &Plan) -> Options {
    let (unit, part, pack) = (plan.unit(), plan.trained_part(), plan.data.pack);
    Options { unit, part, pack, ..every_row(plan) }
}

/// Reads the examples that a run of the plan can sample, with their privacy units; or those of
/// another file, with each row as its own privacy unit.
pub fn read_data(plan: &Plan, path: Option<&Path>) -> Result<Dataset> {
    match path {
        None => read_part(plan, &plan.data.train, trained_on(plan)),
        Some(path) => read_part(plan, path, every_row(plan)),
    }
}

/// Reads the examples of the units that a run of the plan holds out; `None` if it holds out
/// nothing. An author has the same number of examples as if they were used for training.
pub fn read_held_out(plan: &Plan) -> Result<Option<Dataset>> {
    let Some(share) = plan.data.hold_out else { return Ok(None) };
    let options = Options { part: Part::Only(HoldOut(share)), ..trained_on(plan) };
    read_part(plan, &plan.data.train, options).map(Some)
}

fn read_part(plan: &Plan, path: &Path, options: Options) -> Result<Dataset> {
    let (tokenizer, _, labels) = reader(plan)?;
    Ok(Dataset::load(path, &plan.task(), &tokenizer, labels, &options)?)
}

/// The mean number of tokens of the first texts of a public file with the columns of the training
/// file, as a run would truncate them. Labels are not read.
pub fn typical_tokens(plan: &Plan, public: &Path) -> Result<usize> {
    const TEXTS: usize = 10_000;
    let (tokenizer, _, _) = reader(plan)?;
    let task = plan.task().without_label();
    let (mut texts, mut tokens) = (0, 0);
    for chunk in stream(public, &task, &tokenizer, None, &every_row(plan))? {
        for example in chunk? {
            (texts, tokens) = (texts + 1, tokens + example.tokens.len());
        }
        if texts >= TEXTS {
            break;
        }
    }
    Ok(tokens.div_ceil(texts.max(1)).max(1))
}

/// The number of examples that a run of the plan can sample from each row of its training file, by
/// the row's line number. Rows that are never sampled are missing.
pub fn examples_of_rows(plan: &Plan) -> Result<BTreeMap<u64, usize>> {
    let (tokenizer, _, _) = reader(plan)?;
    let task = plan.task().without_label();
    Ok(examples_by_line(&plan.data.train, &task, &tokenizer, &trained_on(plan))?)
}

/// The class names of a run.
pub(super) struct ClassNames {
    /// `None` unless the task is classification.
    pub labels: Option<Labels>,
    /// Whether the names were read from the private training file.
    were_found: bool,
    /// Whether the names must not be published.
    are_private: bool,
}

impl ClassNames {
    /// Takes the names from the run file, from a base model that is a classifier, or from the
    /// training file.
    pub fn of(plan: &Plan, origin: &Path) -> Result<Self> {
        let names = |labels: Labels, were_found: bool, are_private: bool| Self {
            labels: Some(labels),
            were_found,
            are_private,
        };
        if plan.task_head() != TaskHead::SequenceClassification {
            return Ok(Self { labels: None, were_found: false, are_private: false });
        }
        let renamed = &plan.data.rename_labels;
        if let Some(given) = &plan.data.labels {
            let given = Labels::given(given.clone())?.with_renamed(renamed)?;
            return Ok(names(given, false, false));
        }
        let config = Config::read(origin)?;
        let classifies =
            config.architecture().is_some_and(|class| class.ends_with("ForSequenceClassification"));
        if let Some(own) = config.labels()?.filter(|_| classifies) {
            if plan.data.publish_labels {
                return Err(Error::plan(
                    "data.publish_labels is for class names found in the training file, and the \
                     base model has its own; remove it, or name the classes in data.labels",
                ));
            }
            // The model of a run that keeps its class names private has numbers instead.
            let kept = private_labels(origin)?.filter(|kept| kept.len() == own.len());
            let are_private = kept.is_some();
            let own = Labels::given(kept.unwrap_or(own))?.with_renamed(renamed)?;
            return Ok(names(own, false, are_private));
        }
        let path = &plan.data.train;
        let format = format_of(path, plan.data.format)?;
        let (column, on_bad_row) = (&plan.data.label, plan.data.on_bad_row);
        let labels = Labels::from_file(path, format, column, on_bad_row, renamed)?;
        Ok(names(labels, true, !plan.data.publish_labels))
    }
}
