//! The run file: one TOML file from which the sampler, the mechanism and the ledger are all
//! derived, so they cannot disagree.

mod applies;
mod auto;
mod data;
mod keys;
mod lines;
mod local;
mod missing;
mod model;
mod paper;
mod privacy;
mod ranges;
mod spelling;
mod synthesis;
mod training;
mod written;

pub use auto::{AutoKey, Choices};
pub use data::{DataSection, Format, LongTexts, MAX_TOKENS, OnBadRow, TaskName};
pub use keys::key_named;
pub use local::{
    AdaptSection, AttentionSource, Bounding, EncoderActivation, EncoderKind, LearnerKind, Lengths,
    LocalSection, MvgSection, NoiseLayer, PublicFile, ReleaseKind, ReleasedRows,
};
pub use model::{
    AdapterSettings, Ia3Settings, InitialA, InitialBiases, LoraSettings, ModelSection,
    PromptSettings, Quantize, Tuning,
};
pub use paper::{
    AccountedBatch, ActivationRule, AttentionHeads, MaskRanking, MvgHead, NoiseIs, PaperSection,
};
pub use privacy::{
    AdaclipSection, AdaptiveClip, AnadpSection, Clip, ImportanceForm, ImportanceSource,
    InitialRelevance, MethodName, ModeName, NoiseCorrelation, NoiseSchedule, PrivacySection,
    RapFtSection, RelevanceRule, RelevanceSource, SamplingLevel,
};
pub use spelling::edit_distance;
pub use synthesis::{SynthesisSection, SyntheticFormat};
pub use training::{
    ComputeSection, EvaluationSection, KeptEpoch, LearningRateSchedule, LogFormat, MicroBatch,
    NcclUse, OptimizerKind, PrecisionName, StopEarly, TrainingSection, WeightAverage,
};
pub use written::WrittenRun;

use crate::error::{Error, Result};
use crate::{FORMAT_VERSION, Resolved, check_format, read_settings, write_atomically};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use toml::{Table, Value};

/// A run file with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// Version of the run-folder layout; present only in a `plan.toml` written by a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    /// The base model and its trainable parameters.
    pub model: ModelSection,
    /// The data files, their columns and the privacy unit.
    pub data: DataSection,
    /// The method, its budget and its hyperparameters.
    pub privacy: PrivacySection,
    /// The optimizer's hyperparameters.
    pub training: TrainingSection,
    /// Metrics on private validation data that are released with noise.
    #[serde(default, skip_serializing_if = "EvaluationSection::is_off")]
    pub evaluation: EvaluationSection,
    /// Settings that affect only time, memory and rounding.
    #[serde(default)]
    pub compute: ComputeSection,
    /// Synthetic rows, sampled from the trained model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<SynthesisSection>,
}

/// The table that a run adds to its `plan.toml`; ignored when the plan is read as a run file.
const RESOLVED: &str = "resolved";

/// Parses the text of a run file; errors name the file.
fn parsed<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let text = read_settings(path)
        .map_err(|e| Error::folder(path, format!("the run file cannot be read: {e}")))?;
    parse(&text).map_err(|e| match e {
        Error::RunFile(sentence) => Error::folder(path, sentence),
        other => other,
    })
}

impl RunFile {
    /// Reads a run file. Each entry of `changes` is `key=value` with a dotted key path, such as
    /// `privacy.epsilon=2`, or `-key` to remove a key.
    pub fn read(path: &Path, changes: &[String]) -> Result<Self> {
        parsed(path, |text| Self::parse(text, changes))
    }

    /// Like [`RunFile::read`], but takes the file's text.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self> {
        Self::parse_keys(text, changes, true)
    }

    /// Like [`RunFile::parse`], for settings shared by runs of several methods, as in a sweep: keys
    /// that do not apply to the method are accepted. [`RunFile::to_toml`] omits them.
    pub fn parse_shared(text: &str, changes: &[String]) -> Result<Self> {
        Self::parse_keys(text, changes, false)
    }

    fn parse_keys(text: &str, changes: &[String], all_apply: bool) -> Result<Self> {
        let lines = Lines { text, known: changes.is_empty() };
        let mut table: Table = text.parse().map_err(|e| lines.unreadable(&e))?;
        let renamed = spelling::normalize(&mut table)?;
        change(&mut table, changes)?;
        written::refuse_auto(&table)?;
        let was_run = table.remove(RESOLVED).is_some();
        let file: Self = if changes.is_empty() && !was_run && !renamed {
            // Parse from the text again so that errors carry line numbers.
            let text = toml::Deserializer::parse(text).map_err(|e| lines.unreadable(&e))?;
            serde_path_to_error::deserialize(text)
        } else {
            serde_path_to_error::deserialize(Value::Table(table.clone()))
        }
        .map_err(|e| lines.wrong(&e))?;
        check_format(Path::new("the run file"), file.format)?;
        // A plan written by a run contains only keys that applied. Keys set by `changes` must apply
        // too.
        let as_it_ran = was_run && changes.is_empty();
        if all_apply && !as_it_ran {
            file.check_that_keys_apply(&table)?;
        }
        file.check_ranges()?;
        Ok(file)
    }

    /// Serializes the file as TOML, keeping only the keys that apply to its method.
    pub fn to_toml(&self) -> Result<String> {
        let unwritable =
            |e: toml::ser::Error| Error::run_file(format!("the plan cannot be written: {e}"));
        let mut table = Table::try_from(self).map_err(unwritable)?;
        self.remove_keys_that_do_not_apply(&mut table);
        toml::to_string(&table).map_err(unwritable)
    }

    /// Writes the run file and its resolved values as `plan.toml`.
    pub fn write_plan(&self, path: &Path, resolved: &Resolved) -> Result<()> {
        #[derive(Serialize)]
        struct Answer<'a> {
            resolved: &'a Resolved,
        }
        let plan = Self { format: Some(FORMAT_VERSION), ..self.clone() }.to_toml()?;
        let answer = toml::to_string(&Answer { resolved })
            .map_err(|e| Error::folder(path, format!("cannot be written: {e}")))?;
        write_atomically(path, |out| {
            write!(
                out,
                "{plan}\n# Values computed from the data; ignored when this file is \
                         read.\n{answer}"
            )
        })
    }

    /// Reads the `[resolved]` table of a `plan.toml`.
    pub fn read_resolved(path: &Path) -> Result<Resolved> {
        let text = read_settings(path).map_err(Error::io(path))?;
        let damaged = |problem: String| Error::folder(path, format!("is damaged: {problem}"));
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| damaged(e.to_string()))?;
        let resolved = table.remove(RESOLVED).ok_or_else(|| damaged("no [resolved]".into()))?;
        resolved.try_into().map_err(|e: toml::de::Error| damaged(e.message().to_owned()))
    }
}

/// Line numbers for error messages; unknown once `--set` has changed the file.
struct Lines<'a> {
    text: &'a str,
    known: bool,
}

impl Lines<'_> {
    fn of(&self, error: &toml::de::Error) -> String {
        match error.span() {
            Some(span) if self.known => {
                let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
                format!("line {}: ", 1 + before.iter().filter(|&&byte| byte == b'\n').count())
            }
            _ => String::new(),
        }
    }

    fn unreadable(&self, error: &toml::de::Error) -> Error {
        Error::run_file(format!("{}{}", self.of(error), error.message().replace('\n', " ")))
    }

    fn wrong(&self, error: &serde_path_to_error::Error<toml::de::Error>) -> Error {
        let (key, error) = (error.path().to_string(), error.inner());
        let mut line = self.of(error);
        // A modified table has no line numbers.
        if self.known
            && line.is_empty()
            && let Some(number) = lines::line_of(self.text, &key)
        {
            line = format!("line {number}: ");
        }
        // Top-level errors have no key to name.
        let key = if key == "." { String::new() } else { format!("{key}: ") };
        let message = spelling::with_suggestion(&error.message().replace('\n', " "));
        Error::run_file(format!("{line}{key}{message}"))
    }
}

/// Applies the changes given on the command line.
fn change(table: &mut Table, changes: &[String]) -> Result<()> {
    for change in changes {
        if let Some(path) = change.strip_prefix('-') {
            remove(table, &spelling::path(path.trim()))?;
            continue;
        }
        let Some((path, value)) = change.split_once('=') else {
            return Err(Error::run_file(format!(
                "--set {change}: write it as key=value, such as privacy.epsilon=2"
            )));
        };
        set(table, path.trim(), value.trim())?;
        spelling::normalize(table)?;
    }
    Ok(())
}

/// Sets the value at a dotted path. A value that is not valid TOML is treated as a string.
fn set(table: &mut Table, path: &str, value: &str) -> Result<()> {
    let parsed = format!("value = {value}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    let path = spelling::path(path);
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().filter(|key| !key.is_empty());
    let Some(last) = last else {
        return Err(Error::run_file(format!(
            "--set {path}: write the key's path, such as privacy.epsilon"
        )));
    };
    let mut here = table;
    for key in keys {
        let inner = here.entry(key).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = inner else {
            return Err(Error::run_file(format!("--set {path}: {key} is a value, not a table")));
        };
        here = inner;
    }
    here.insert(last.to_owned(), value);
    Ok(())
}

/// Removes the value at a dotted path.
fn remove(table: &mut Table, path: &str) -> Result<()> {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut here = Some(table);
    for key in parents.split('.').filter(|key| !key.is_empty()) {
        here = here.and_then(|table| table.get_mut(key)).and_then(Value::as_table_mut);
    }
    let missing = || Error::run_file(format!("--unset {path}: the run file has no such key"));
    here.and_then(|table| table.remove(last)).map(drop).ok_or_else(missing)
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
