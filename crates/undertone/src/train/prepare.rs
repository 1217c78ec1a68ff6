//! Loads the model and the data of a plan.

use super::augment::augment;
use crate::audit::canaries::CanaryTemplate;
use crate::data::{
    Dataset, Encoder, HoldOut, Labels, Options, Part, PrivacyUnit, Row, Tokeniser,
    examples_by_line, format_of,
};
use crate::error::{Error, Result};
use crate::method::central::{AllocationPlan, MapSource};
use crate::model::folder::{Config, LoadOptions, Outline, load, locate};
use crate::model::{Model, TaskHead};
use crate::noise::{Secret, purpose};
use crate::plan::{Method, Plan};
use crate::tensor::Device;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_run::{PublicFile, TaskName, Tuning, private_labels};

/// Model and data of a run, loaded.
pub struct Prepared {
    pub model: Model,
    pub data: Dataset,
    pub validation: Option<Dataset>,
    pub public: PublicData,
    /// Folder of the base model.
    pub origin: PathBuf,
    /// Whether the class names were read from the private training file.
    pub labels_were_found: bool,
    /// Whether the class names may not be published.
    pub labels_are_private: bool,
}

/// Public data that the method uses.
#[derive(Default)]
pub struct PublicData {
    /// Examples of a public relevance map.
    pub relevance: Option<Dataset>,
    /// Examples whose gradients ANADP's importance or AdaClip's second moments are of.
    pub importance: Option<Dataset>,
    /// Texts that an encoder is fitted on.
    pub text: Option<Dataset>,
    /// Labelled examples that the whole model is fine-tuned on first.
    pub adaptation: Option<Dataset>,
}

impl Prepared {
    /// Loads model and data; `data` replaces the training file. New parameters are drawn from the
    /// secret.
    pub fn load(
        plan: &Plan,
        secret: &Secret,
        device: &Device,
        data: Option<Dataset>,
    ) -> Result<Self> {
        let origin = locate(&plan.model.name())?;
        let ClassNames { labels, were_found, are_private } = ClassNames::of(plan, &origin)?;
        let seed = secret.number(purpose::INITIAL_VALUES);
        // The model and its configuration are published. Its data are read by the true names.
        let published = |labels: &Labels| match are_private {
            true => labels.numbered(),
            false => labels.names().to_vec(),
        };
        let options = LoadOptions {
            task_head: Some(plan.task_head()),
            labels: labels.as_ref().map(published),
            seed,
            quantise: plan.model.quantise,
        };
        let mut model = load(&origin, &options)?;
        if model.network.sanitiser.is_some() {
            return Err(Error::plan(
                "the model has already been trained on perturbed embeddings; begin from its base \
                 model",
            ));
        }
        if let Method::Local(local) = &plan.method {
            local.check_model(&model.network)?;
        }
        check_head(&model, &plan.model.tuning)?;
        model.apply_tuning(&plan.model.tuning, seed)?;
        model.to_device(device)?;
        model.recompute = plan.compute.recompute;
        if plan.model.tuning.leaves_base() && !matches!(plan.method, Method::Local(_)) {
            model.round_frozen()?;
        }
        let tokeniser = model.tokeniser(&origin, plan.data.max_tokens)?;
        let files = Files { plan, labels: labels.as_ref(), tokeniser: &tokeniser };
        let mut data = match data {
            Some(data) => data,
            None => files.read(&plan.data.train, trained_on(plan))?,
        };
        if let Some(settings) = &plan.data.augment {
            augment(&mut data, settings, &tokeniser, secret, device)?;
        }
        let validation = plan
            .data
            .validation
            .as_ref()
            .map(|path| files.read(path, every_row(plan)))
            .transpose()?;
        let public = files.public()?;
        let (labels_were_found, labels_are_private) = (were_found, are_private);
        Ok(Self { model, data, validation, public, origin, labels_were_found, labels_are_private })
    }
}

/// Refuses to train anything but the whole model where its masked-language-modelling head is new:
/// other fine-tuning methods leave that head as it is, with random weights.
pub(super) fn check_head(model: &Model, tuning: &Tuning) -> Result<()> {
    let masked = model.network.head.task_head == TaskHead::MaskedLanguageModel;
    match model.fresh.first().filter(|_| masked && *tuning != Tuning::Full) {
        Some(name) => Err(Error::plan(format!(
            "the base model has no masked-language-modelling head ({name} is missing): use \
             model.tuning = \"full\", which trains it, or a base model that has one"
        ))),
        None => Ok(()),
    }
}

/// Reads the files of a plan.
struct Files<'a> {
    plan: &'a Plan,
    labels: Option<&'a Labels>,
    tokeniser: &'a Tokeniser,
}

impl Files<'_> {
    /// A file with the columns of the training file.
    fn read(&self, path: &Path, options: Options) -> Result<Dataset> {
        let labels = self.labels.cloned();
        Ok(Dataset::load(path, &self.plan.task(), self.tokeniser, labels, &options)?)
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
                let read = |file: &PublicFile, labelled: bool| -> Result<Dataset> {
                    let options =
                        Options { unit: PrivacyUnit::Row, progress: true, ..Options::default() };
                    let labels = self.labels.cloned().filter(|_| labelled);
                    let task = local.public_task(&self.plan.data, file, labelled);
                    Ok(Dataset::load(&file.file, &task, self.tokeniser, labels, &options)?)
                };
                let adaptation = local.adapt.as_ref().and_then(|adapt| adapt.public.as_ref());
                public.text = local.public.as_ref().map(|file| read(file, false)).transpose()?;
                public.adaptation = adaptation.map(|file| read(file, true)).transpose()?;
            }
        }
        Ok(public)
    }
}

/// The tokenizer, the number of its tokens that the model has embeddings for, and the labels.
fn reader(plan: &Plan) -> Result<(Tokeniser, usize, Option<Labels>)> {
    let origin = locate(&plan.model.name())?;
    let labels = ClassNames::of(plan, &origin)?.labels;
    let options = LoadOptions {
        task_head: Some(plan.task_head()),
        labels: labels.as_ref().map(|l| l.names().to_vec()),
        ..LoadOptions::default()
    };
    let model = Outline::read(&origin, &options)?.model;
    let tokeniser = model.tokeniser(&origin, plan.data.max_tokens)?;
    let known = tokeniser.usable();
    Ok((tokeniser, known, labels))
}

/// Options of a file of which every row is read, as a privacy unit of its own.
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

/// Options of the training file: the units that a run can draw, and nothing else.
fn trained_on(plan: &Plan) -> Options {
    let (unit, part, pack) = (plan.unit(), plan.trained_part(), plan.data.pack);
    Options { unit, part, pack, ..every_row(plan) }
}

/// Reads the examples that a run of the plan can draw, with their privacy units; or those of
/// another file, each row as a privacy unit of its own.
pub fn read_data(plan: &Plan, path: Option<&Path>) -> Result<Dataset> {
    match path {
        None => read_part(plan, &plan.data.train, trained_on(plan)),
        Some(path) => read_part(plan, path, every_row(plan)),
    }
}

/// Reads the examples of the units that a run of the plan holds out; none if it holds out nothing.
/// Of an author there are as many examples as there would be if they were trained on.
pub fn read_held_out(plan: &Plan) -> Result<Option<Dataset>> {
    let Some(share) = plan.data.hold_out else { return Ok(None) };
    let options = Options { part: Part::Only(HoldOut(share)), ..trained_on(plan) };
    read_part(plan, &plan.data.train, options).map(Some)
}

fn read_part(plan: &Plan, path: &Path, options: Options) -> Result<Dataset> {
    let (tokeniser, _, labels) = reader(plan)?;
    Ok(Dataset::load(path, &plan.task(), &tokeniser, labels, &options)?)
}

/// The number of examples that a run of the plan can draw from each row of its training file, by
/// the row's line. Rows that it never draws are missing.
pub fn examples_of_rows(plan: &Plan) -> Result<BTreeMap<u64, usize>> {
    let (tokeniser, _, _) = reader(plan)?;
    let task = plan.task().without_label();
    Ok(examples_by_line(&plan.data.train, &task, &tokeniser, &trained_on(plan))?)
}

/// The template of canaries for a run: random tokens in examples of the run's task, as long as
/// sentences. It does not depend on the data.
pub fn canary_template(plan: &Plan) -> Result<CanaryTemplate> {
    let (tokeniser, known, labels) = reader(plan)?;
    let unknown = ["[UNK]", "<unk>"].map(|token| tokeniser.token_id(token));
    let mut special = tokeniser.special();
    special.retain(|token| !unknown.contains(&Some(*token)));
    let words = (0..known as u32).filter(|token| !special.contains(token)).collect();
    let task = plan.task().without_label();
    let columns = task.columns().len();
    let (file, long_texts) = (plan.data.train.clone(), plan.data.long_texts);
    let encoder = Encoder::new(file, task, &tokeniser, None, long_texts)?;
    let mut frames = Vec::new();
    for words in 4..24 {
        let text = "a ".repeat(words);
        let values = match plan.data.task {
            TaskName::Chat => {
                let turn =
                    |role: &str| serde_json::json!({ "role": role, "content": text.clone() });
                vec![serde_json::json!([turn("user"), turn("assistant")]).to_string()]
            }
            _ => vec![text; columns],
        };
        frames.extend(encoder.examples(&Row { line: 1, values })?.into_iter().take(1));
    }
    Ok(CanaryTemplate {
        frames,
        words,
        special,
        classes: labels.map(|labels| labels.names().len()),
    })
}

/// The class names of a run.
pub(super) struct ClassNames {
    /// None unless the run is one of classification.
    pub labels: Option<Labels>,
    /// Whether they were read from the private training file.
    were_found: bool,
    /// Whether they may not be published.
    are_private: bool,
}

impl ClassNames {
    /// The names of the run file, of a base model that is a classifier, or of the training file.
    pub fn of(plan: &Plan, origin: &Path) -> Result<Self> {
        let names = |labels: Labels, were_found: bool, are_private: bool| Self {
            labels: Some(labels),
            were_found,
            are_private,
        };
        if plan.task_head() != TaskHead::SequenceClassification {
            return Ok(Self { labels: None, were_found: false, are_private: false });
        }
        if let Some(given) = &plan.data.labels {
            return Ok(names(Labels::given(given.clone())?, false, false));
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
            // The model of a run that keeps its class names private has numbers in their place.
            let kept = private_labels(origin)?.filter(|kept| kept.len() == own.len());
            let are_private = kept.is_some();
            return Ok(names(Labels::given(kept.unwrap_or(own))?, false, are_private));
        }
        let path = &plan.data.train;
        let format = format_of(path, plan.data.format)?;
        let found = Labels::from_file(path, format, &plan.data.label, plan.data.on_bad_row)?;
        Ok(names(found, true, !plan.data.publish_labels))
    }
}
