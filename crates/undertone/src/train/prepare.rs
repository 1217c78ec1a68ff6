//! Model and data, loaded as a plan says.

use super::error::{Error, Result};
use super::plan::{Method, Plan, PublicFile, RelevanceSource};
use crate::audit::canaries::Mould;
use crate::data::{Dataset, Encoder, Format, Labels, Options, Row, Tokeniser, Unit};
use crate::mechanism::{Secret, purpose};
use crate::model::folder::{Config, LoadOptions, load, locate};
use crate::model::layer::head::Pick;
use crate::model::layer::sanitiser::{Rows, Spot};
use crate::model::{Model, Purpose};
use crate::tensor::Device;
use std::path::{Path, PathBuf};

/// Model and data, ready to begin.
pub struct Prepared {
    pub model: Model,
    pub data: Dataset,
    pub validation: Option<Dataset>,
    /// Public examples whose relevance is used.
    pub public: Option<Dataset>,
    /// Public texts that an encoder is fitted on.
    pub public_text: Option<Dataset>,
    /// Public labelled examples that everything learns from first.
    pub adaptation: Option<Dataset>,
    /// The folder that the model came from.
    pub origin: PathBuf,
    /// Whether the labels come from the training file.
    pub labels_were_found: bool,
}

impl Prepared {
    /// Loads everything, but for data that are given; what is new to the model is drawn from the
    /// secret.
    pub fn load(
        plan: &Plan,
        secret: &Secret,
        device: &Device,
        data: Option<Dataset>,
    ) -> Result<Self> {
        let name = plan.model.path.as_deref().or(plan.model.hub.as_deref()).unwrap_or_default();
        let origin = locate(name)?;
        let (labels, labels_were_found) = labels(plan, &origin)?;
        let seed = secret.number(purpose::INITIAL_VALUES);
        let options = LoadOptions {
            purpose: Some(plan.purpose()),
            labels: labels.as_ref().map(|labels| labels.names().to_vec()),
            seed,
        };
        let mut model = load(&origin, &options)?;
        if model.network.sanitiser.is_some() {
            return Err(Error::plan(
                "the model has been trained with perturbed records already; begin from the model \
                 that it was trained from",
            ));
        }
        let blocks = model.network.blocks.len();
        if plan.is_forward() && model.network.head.pick == Pick::Last {
            let rows = plan.forward().rows;
            if matches!(rows, Rows::Tokens(Some(_))) {
                return Err(Error::plan(
                    "this model reads the last row, which is padding where lengths are hidden; \
                     choose rows = \"last\" or \"mean\", or lengths = \"public\"",
                ));
            }
            if rows == Rows::First {
                return Err(Error::plan(
                    "the first token of this model sees no other; choose privacy.forward.rows = \
                     \"last\"",
                ));
            }
        }
        if plan.is_forward() && matches!(plan.forward().spot, Spot::After(after) if after > blocks)
        {
            return Err(Error::plan(format!(
                "privacy.forward.after names a block that the model, which has {blocks} blocks, \
                 does not have"
            )));
        }
        plan.model.tuning.apply(&mut model, seed)?;
        model.to_device(device)?;
        let tokeniser = model.tokeniser(&origin, plan.data.max_tokens)?;
        let read = |path: &Path, unit: Unit, tokeniser: &Tokeniser| -> Result<Dataset> {
            let options = Options {
                format: plan.data.format,
                unit,
                long_texts: plan.data.long_texts,
                progress: true,
            };
            Ok(Dataset::load(path, &plan.task(), tokeniser, labels.clone(), &options)?)
        };
        let data = match data {
            Some(data) => data,
            None => read(&plan.data.train, plan.unit(), &tokeniser)?,
        };
        let validation = plan
            .data
            .validation
            .as_ref()
            .map(|path| read(path, Unit::Row, &tokeniser))
            .transpose()?;
        let public = match (plan.privacy.method, &plan.privacy.rap_ft.relevance) {
            (Method::RapFt, RelevanceSource::Public(path)) => {
                Some(read(path, Unit::Row, &tokeniser)?)
            }
            _ => None,
        };
        let given = plan.is_forward().then_some(&plan.privacy.forward);
        let read_public = |file: &PublicFile, labelled: bool| -> Result<Dataset> {
            let options = Options { unit: Unit::Row, progress: true, ..Options::default() };
            let labels = labels.clone().filter(|_| labelled);
            Ok(Dataset::load(
                &file.file,
                &plan.public_task(file, labelled),
                &tokeniser,
                labels,
                &options,
            )?)
        };
        let public_text = given
            .and_then(|f| f.public.as_ref())
            .map(|file| read_public(file, false))
            .transpose()?;
        let adaptation = given
            .and_then(|f| f.adapt.as_ref()?.public.as_ref())
            .map(|file| read_public(file, true))
            .transpose()?;
        Ok(Self {
            model,
            public,
            public_text,
            adaptation,
            data,
            validation,
            origin,
            labels_were_found,
        })
    }
}

/// What texts are read with: the tokenizer, how many of its tokens the model knows, and the labels.
fn reader(plan: &Plan) -> Result<(Tokeniser, usize, Option<Labels>)> {
    let name = plan.model.path.as_deref().or(plan.model.hub.as_deref()).unwrap_or_default();
    let origin = locate(name)?;
    let (labels, _) = labels(plan, &origin)?;
    let options = LoadOptions {
        purpose: Some(plan.purpose()),
        labels: labels.as_ref().map(|l| l.names().to_vec()),
        seed: 0,
    };
    let model = load(&origin, &options)?;
    let tokeniser = model.tokeniser(&origin, plan.data.max_tokens)?;
    let known = tokeniser.vocabulary().min(model.network.vocabulary);
    Ok((tokeniser, known, labels))
}

/// The examples of a file as a plan reads them, each a privacy unit of its own; the plan's training
/// file if none is named.
pub fn read_data(plan: &Plan, path: Option<&Path>) -> Result<Dataset> {
    let (tokeniser, _, labels) = reader(plan)?;
    let options = Options {
        format: plan.data.format,
        unit: Unit::Row,
        long_texts: plan.data.long_texts,
        progress: true,
    };
    Ok(Dataset::load(path.unwrap_or(&plan.data.train), &plan.task(), &tokeniser, labels, &options)?)
}

/// What canaries for a run are made of: the tokenizer's words, in examples of the run's task that
/// are as long as sentences. Nothing of the data.
pub fn mould(plan: &Plan) -> Result<Mould> {
    let (tokeniser, known, labels) = reader(plan)?;
    let unknown = ["[UNK]", "<unk>"].map(|token| tokeniser.token_id(token));
    let mut special = tokeniser.special();
    special.retain(|token| !unknown.contains(&Some(*token)));
    let words = (0..known as u32).filter(|token| !special.contains(token)).collect();
    let task = plan.task().without_label();
    let columns = task.columns().len();
    let encoder = Encoder {
        file: plan.data.train.clone(),
        task,
        tokeniser: &tokeniser,
        labels: None,
        long_texts: plan.data.long_texts,
    };
    let mut frames = Vec::new();
    for words in 4..24 {
        let values = vec!["a ".repeat(words); columns];
        frames.extend(encoder.examples(&Row { line: 1, values })?.into_iter().take(1));
    }
    Ok(Mould { frames, words, special, classes: labels.map(|labels| labels.names().len()) })
}

/// The labels that are given, that a finished classifier has, or that the training file holds; and
/// whether they were found there.
fn labels(plan: &Plan, origin: &Path) -> Result<(Option<Labels>, bool)> {
    if plan.purpose() != Purpose::SequenceClassification {
        return Ok((None, false));
    }
    if let Some(names) = &plan.data.labels {
        return Ok((Some(Labels::given(names.clone())?), false));
    }
    let config = Config::read(origin)?;
    let classifies =
        config.architecture().is_some_and(|class| class.ends_with("ForSequenceClassification"));
    if let Some(names) = config.labels()?.filter(|_| classifies) {
        return Ok((Some(Labels::given(names)?), false));
    }
    let path = &plan.data.train;
    let found = Labels::from_file(path, Format::of(path, plan.data.format)?, &plan.data.label)?;
    Ok((Some(found), true))
}
