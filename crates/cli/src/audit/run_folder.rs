//! A finished run, loaded for an audit.

use super::progress;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::data::{Dataset, Example, Masking, Tokenizer};
use undertone::evaluate::{Limits, predict_on_ranks};
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::model::tuning::load_adapted;
use undertone::model::{Model, TaskHead};
use undertone::train::{read_data, read_held_out};
use undertone_run::audit::NonMembers;
use undertone_run::{Audit, FinishedRun, RunPaths, Summary, private_labels};

/// A run folder with its plan.
pub struct AuditedRun {
    pub paths: RunPaths,
    pub plan: Plan,
    summary: Summary,
    /// The ranks that share the attack.
    ranks: Ranks,
}

impl AuditedRun {
    pub fn open(folder: &Path) -> Outcome<Self> {
        let paths = RunPaths::new(folder);
        if !paths.is_finished() {
            return Err(Failure::arguments(format!(
                "{} is not the folder of a finished run: it has no {}",
                folder.display(),
                RunPaths::summary_name()
            )));
        }
        let summary = FinishedRun::read(folder)?.summary;
        let (plan, ranks) = (Plan::read(&paths.plan(), &[])?, Ranks::alone());
        Ok(Self { plan, paths, summary, ranks })
    }

    /// Shares the attack among these ranks.
    pub fn on(self, ranks: &Ranks) -> Self {
        Self { ranks: ranks.clone(), ..self }
    }

    /// The ranks that share the attack.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Upper bound of the run's ε, and its δ; `None` for a run without a guarantee.
    pub fn promised(&self) -> Option<(f64, f64)> {
        let guarantee = self.summary.guarantee.as_ref().filter(|_| self.summary.private)?;
        Some((guarantee.epsilon.upper, guarantee.delta))
    }

    /// Folder of the pretrained model.
    fn origin(&self) -> Outcome<PathBuf> {
        Ok(locate(&self.plan.model.name())?)
    }

    /// The tokenizer of the run's model, with the run's maximum length.
    pub fn tokenizer(&self, model: &Model) -> Outcome<Tokenizer> {
        Ok(model.tokenizer(&self.origin()?, self.plan.data.max_tokens)?)
    }

    /// Reader that truncates texts as the run did.
    pub fn reader(&self) -> Outcome<Reader> {
        let tokenizer =
            Tokenizer::load(&self.origin()?)?.with_max_tokens(self.plan.data.max_tokens)?;
        let tokens = tokenizer.max_text_tokens();
        Ok(Reader { tokenizer, tokens })
    }

    /// The trained model, or the pretrained one.
    pub fn model(&self, trained: bool, device: &DeviceArguments) -> Outcome<Model> {
        let origin = self.origin()?;
        let (whole, adapter) = (self.paths.model(), self.paths.adapter());
        // The head of the pretrained model needs the same number of classes as the trained one.
        let labels = match &self.plan.data.labels {
            Some(given) => Some(given.clone()),
            None => private_labels(if whole.is_dir() { &whole } else { &adapter })?,
        };
        let options = LoadOptions {
            task_head: Some(self.plan.task_head()),
            labels,
            quantize: self.plan.model.quantize,
            ..LoadOptions::default()
        };
        let mut model = match (trained, whole.is_dir()) {
            (true, true) => load(&whole, &options)?,
            (true, false) => load_adapted(&origin, Some(&adapter), options)?,
            (false, _) => load(&origin, &options)?,
        };
        model.to_device(&device.device()?)?;
        Ok(model)
    }

    /// The examples that the run could sample, or those of a given file of members.
    pub fn members(&self, file: Option<&Path>) -> Outcome<Dataset> {
        let train = &self.plan.data.train;
        // The training file itself is read as the run read it: it may contain rows that no step
        // samples.
        let is_own = |file: &&Path| {
            file.canonicalize().is_ok_and(|file| train.canonicalize().is_ok_and(|t| t == file))
        };
        Ok(read_data(&self.plan, file.filter(|file| !is_own(file)))?)
    }

    /// Examples that the run was not trained on, and their source: a given file, the run's held-out
    /// units, or its validation file; `None` without any of them.
    pub fn non_members(&self, file: Option<&Path>) -> Outcome<Option<(Dataset, NonMembers)>> {
        if let Some(file) = file {
            return Ok(Some((read_data(&self.plan, Some(file))?, NonMembers::File)));
        }
        if let Some(data) = read_held_out(&self.plan)? {
            return Ok(Some((data, NonMembers::HeldOut)));
        }
        let Some(file) = &self.plan.data.validation else { return Ok(None) };
        Ok(Some((read_data(&self.plan, Some(file))?, NonMembers::Validation)))
    }

    /// Results of earlier attacks.
    pub fn audit(&self) -> Outcome<Audit> {
        Ok(Audit::read(&self.paths.audit())?)
    }

    /// Saves results in audit.json, next to those of other attacks. Only rank 0 writes.
    pub fn keep(&self, change: impl FnOnce(&mut Audit)) -> Outcome {
        if !self.ranks.is_first() {
            return Ok(());
        }
        Ok(Audit::update(&self.paths.audit(), change)?)
    }
}

/// Determines how much of a text a run has read.
pub struct Reader {
    tokenizer: Tokenizer,
    /// Tokens of a text per example.
    tokens: usize,
}

impl Reader {
    /// Number of bytes that the run has read of a text it split into `examples` examples.
    pub fn bytes(&self, text: &str, examples: usize) -> Outcome<usize> {
        let tokens = self.tokenizer.with_bytes(text)?;
        let read = self.tokens * examples;
        Ok(if tokens.len() <= read { text.len() } else { tokens[read.max(1) - 1].1.end })
    }
}

/// Fails unless the run trained a causal or masked language model.
pub fn any_language_model(run: &AuditedRun, attack: &str) -> Outcome {
    match run.plan.task_head() {
        TaskHead::MaskedLanguageModel => Ok(()),
        _ => language_model(run, attack),
    }
}

/// Fails unless the run trained a causal language model.
pub fn language_model(run: &AuditedRun, attack: &str) -> Outcome {
    match run.plan.task_head() {
        TaskHead::CausalLanguageModel => Ok(()),
        TaskHead::MaskedLanguageModel => Err(Failure::arguments(format!(
            "{attack} needs a causal language model, which can generate text; for a masked one, \
             use exposure, membership or one-run"
        ))),
        _ => Err(Failure::arguments(format!(
            "{attack} needs a language model; for a classifier, use membership or one-run"
        ))),
    }
}

/// Examples per update of the progress bar: enough to batch examples of similar length.
const SHOWN_AT_ONCE: usize = 1024;

/// The loss of each example, distributed over the ranks. For masked language models, this is the
/// loss on masked tokens, with the same masks for every model.
pub fn losses(
    ranks: &Ranks,
    model: &Model,
    examples: &[Example],
    masking: Option<&Masking>,
) -> Outcome<Vec<f64>> {
    let masked = masking.map(|masking| masking.for_evaluation(examples, 0));
    let examples = masked.as_deref().unwrap_or(examples);
    let bar = progress(examples.len(), "examples");
    let mut losses = Vec::with_capacity(examples.len());
    for some in examples.chunks(SHOWN_AT_ONCE) {
        let predictions = predict_on_ranks(ranks, model, some, Limits::default(), false)?;
        losses.extend(predictions.iter().map(|said| said.loss.map_or(f64::NAN, f64::from)));
        bar.inc(some.len() as u64);
    }
    bar.finish_and_clear();
    Ok(losses)
}
