//! A finished run, as an auditor loads it.

use super::progress;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::data::{Dataset, Example, Masking, Tokeniser};
use undertone::evaluate::{Limits, predict_on_ranks};
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::model::tuning::load_adapted;
use undertone::model::{Model, TaskHead};
use undertone::train::{read_data, read_held_out};
use undertone_run::audit::NonMembers;
use undertone_run::{Audit, FinishedRun, RunPaths, Summary};

/// A run folder with its plan.
pub struct AuditedRun {
    pub paths: RunPaths,
    pub plan: Plan,
    summary: Summary,
    /// The processes that attack it together.
    ranks: Ranks,
}

impl AuditedRun {
    pub fn open(folder: &Path) -> Outcome<Self> {
        let paths = RunPaths::new(folder);
        if !paths.is_finished() {
            return Err(Failure::arguments(format!(
                "{} is no folder of a finished run; it has no {}",
                folder.display(),
                RunPaths::summary_name()
            )));
        }
        let summary = FinishedRun::read(folder)?.summary;
        let (plan, ranks) = (Plan::read(&paths.plan(), &[])?, Ranks::alone());
        Ok(Self { plan, paths, summary, ranks })
    }

    /// Attacked by these processes together.
    pub fn on(self, ranks: &Ranks) -> Self {
        Self { ranks: ranks.clone(), ..self }
    }

    /// The processes that attack it together.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The upper end of the ε that the run printed, and its δ; none for a run that promises
    /// nothing.
    pub fn promised(&self) -> Option<(f64, f64)> {
        let guarantee = self.summary.guarantee.as_ref().filter(|_| self.summary.private)?;
        Some((guarantee.epsilon.upper, guarantee.delta))
    }

    /// The folder of the model that the run began from.
    fn origin(&self) -> Outcome<PathBuf> {
        Ok(locate(&self.plan.model.name())?)
    }

    /// The tokenizer of the run's model, cutting as the run did.
    pub fn tokeniser(&self, model: &Model) -> Outcome<Tokeniser> {
        Ok(model.tokeniser(&self.origin()?, self.plan.data.max_tokens)?)
    }

    /// What the run read of a text.
    pub fn reader(&self) -> Outcome<Reader> {
        let tokeniser =
            Tokeniser::load(&self.origin()?)?.with_max_tokens(self.plan.data.max_tokens)?;
        let tokens = tokeniser.max_text_tokens();
        Ok(Reader { tokeniser, tokens })
    }

    /// The model that was trained, or the one that it began from.
    pub fn model(&self, trained: bool, device: &DeviceArguments) -> Outcome<Model> {
        let origin = self.origin()?;
        let options = LoadOptions {
            task_head: Some(self.plan.task_head()),
            labels: self.plan.data.labels.clone(),
            quantise: self.plan.model.quantise,
            ..LoadOptions::default()
        };
        let (whole, adapter) = (self.paths.model(), self.paths.adapter());
        let mut model = match (trained, whole.is_dir()) {
            (true, true) => load(&whole, &options)?,
            (true, false) => load_adapted(&origin, Some(&adapter), options)?,
            (false, _) => load(&origin, &options)?,
        };
        model.to_device(&device.device()?)?;
        Ok(model)
    }

    /// The examples that the run could draw, or those of a file that is said to hold such.
    pub fn members(&self, file: Option<&Path>) -> Outcome<Dataset> {
        let train = &self.plan.data.train;
        // The training file by its name is not another file: it may have rows that no step draws.
        let is_own = |file: &&Path| {
            file.canonicalize().is_ok_and(|file| train.canonicalize().is_ok_and(|t| t == file))
        };
        Ok(read_data(&self.plan, file.filter(|file| !is_own(file)))?)
    }

    /// Examples that the run was not trained on, and where they come from: a given file, or units
    /// that the run held out, or its validation file; none if there is none of them.
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

    /// Puts results into audit.json, beside those of other attacks. Rank 0 writes.
    pub fn keep(&self, change: impl FnOnce(&mut Audit)) -> Outcome {
        if !self.ranks.is_first() {
            return Ok(());
        }
        Ok(Audit::update(&self.paths.audit(), change)?)
    }
}

/// Knows where a run stopped reading.
pub struct Reader {
    tokeniser: Tokeniser,
    /// Tokens of a text in one example.
    tokens: usize,
}

impl Reader {
    /// How many bytes of a text were read, of which the run has so many examples.
    pub fn bytes(&self, text: &str, examples: usize) -> Outcome<usize> {
        let tokens = self.tokeniser.with_bytes(text)?;
        let read = self.tokens * examples;
        Ok(if tokens.len() <= read { text.len() } else { tokens[read.max(1) - 1].1.end })
    }
}

/// Refuses a run of anything but a language model, causal or masked.
pub fn any_language_model(run: &AuditedRun, attack: &str) -> Outcome {
    match run.plan.task_head() {
        TaskHead::MaskedLanguageModel => Ok(()),
        _ => language_model(run, attack),
    }
}

/// Refuses a run of anything but a causal language model.
pub fn language_model(run: &AuditedRun, attack: &str) -> Outcome {
    match run.plan.task_head() {
        TaskHead::CausalLanguageModel => Ok(()),
        TaskHead::MaskedLanguageModel => Err(Failure::arguments(format!(
            "{attack} is for causal language models, which generate; of a masked one, audit \
             exposure, membership or one-run"
        ))),
        _ => Err(Failure::arguments(format!(
            "{attack} is for language models; of a classifier, audit membership or one-run"
        ))),
    }
}

/// Examples between two moves of the bar: enough that those of like lengths are computed together.
const SHOWN_AT_ONCE: usize = 1024;

/// The loss of each example, of which each rank computes some; that of a masked language model is
/// of masked tokens, the same for every model.
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
        let found = predict_on_ranks(ranks, model, some, Limits::default(), false)?;
        losses.extend(found.iter().map(|said| said.loss.map_or(f64::NAN, f64::from)));
        bar.inc(some.len() as u64);
    }
    bar.finish_and_clear();
    Ok(losses)
}
