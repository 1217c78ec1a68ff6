//! The run file: one TOML file that sampler, mechanism and ledger are all derived from, so that
//! they cannot disagree.

mod applies;
mod auto;
mod data;
mod lines;
mod local;
mod missing;
mod model;
mod privacy;
mod ranges;
mod spelling;
mod training;
mod written;

pub use auto::{AutoKey, Choices};
pub use data::{DataSection, Format, LongTexts, MAX_TOKENS, OnBadRow, TaskName};
pub use local::{
    AccountedBatch, AdaptSection, AttentionSource, Bounding, EncoderActivation, EncoderKind,
    LearnerKind, Lengths, LocalSection, MvgHead, MvgSection, NoiseIs, NoiseLayer, PublicFile,
    ReleaseKind, ReleasedRows,
};
pub use model::{AdapterSettings, Ia3Settings, LoraSettings, ModelSection, Quantise, Tuning};
pub use privacy::{
    AdaclipSection, AdaptiveClip, AnadpSection, Clip, ImportanceForm, ImportanceSource,
    InitialRelevance, MethodName, ModeName, NoiseCorrelation, NoiseSchedule, PrivacySection,
    RapFtSection, RelevanceRule, RelevanceSource,
};
pub use training::{
    ComputeSection, KeptEpoch, LearningRateSchedule, MicroBatch, NcclUse, OptimiserKind, Precision,
    StopEarly, TrainingSection, WeightAverage,
};
pub use written::WrittenRun;

use crate::error::{Error, Result};
use crate::{FORMAT_VERSION, Resolved, check_format, read_settings, write_atomically};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use toml::{Table, Value};

/// A run file, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// Version of the run folder's layout, in a plan.toml that a run wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    /// The base model and its trainable parameters.
    pub model: ModelSection,
    /// The data files, their columns and the privacy unit.
    pub data: DataSection,
    /// The method and its budget.
    pub privacy: PrivacySection,
    /// The optimiser's hyperparameters.
    pub training: TrainingSection,
    /// Settings that change time and memory only.
    #[serde(default)]
    pub compute: ComputeSection,
}

/// The table that a run adds to its plan.toml; ignored when read as a run file.
const RESOLVED: &str = "resolved";
/// Earlier names of tables: parent, old name, new name.
const ALIASES: [(&str, &str, &str); 1] = [("privacy", "forward", "local")];

/// What a run file's text says; an error names the file.
fn parsed<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let text = read_settings(path)
        .map_err(|e| Error::folder(path, format!("the run file cannot be read: {e}")))?;
    parse(&text).map_err(|e| match e {
        Error::RunFile(sentence) => Error::folder(path, sentence),
        other => other,
    })
}

impl RunFile {
    /// Reads a run file. Each of `changes` is `key=value` with the key's path, such as
    /// `privacy.epsilon=2`, or `-key` for a key that is removed.
    pub fn read(path: &Path, changes: &[String]) -> Result<Self> {
        parsed(path, |text| Self::parse(text, changes))
    }

    /// As [`RunFile::read`], from the file's text.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self> {
        Self::parse_keys(text, changes, true)
    }

    /// As [`RunFile::parse`], for settings that runs of several methods share, as in a sweep: keys
    /// that do not apply to the method are accepted. [`RunFile::to_toml`] leaves them out.
    pub fn parse_shared(text: &str, changes: &[String]) -> Result<Self> {
        Self::parse_keys(text, changes, false)
    }

    fn parse_keys(text: &str, changes: &[String], all_apply: bool) -> Result<Self> {
        let lines = Lines { text, known: changes.is_empty() };
        let mut table: Table = text.parse().map_err(|e| lines.unreadable(&e))?;
        let renamed = spelling::normalise(&mut table)? | rename_aliases(&mut table)?;
        change(&mut table, changes)?;
        written::refuse_auto(&table)?;
        let was_run = table.remove(RESOLVED).is_some();
        let file: Self = if changes.is_empty() && !was_run && !renamed {
            // From the text again, for the line in an error.
            let text = toml::Deserializer::parse(text).map_err(|e| lines.unreadable(&e))?;
            serde_path_to_error::deserialize(text)
        } else {
            serde_path_to_error::deserialize(Value::Table(table.clone()))
        }
        .map_err(|e| lines.wrong(&e))?;
        check_format(Path::new("the run file"), file.format)?;
        // A plan that a run wrote has the keys that applied by the rules of its version; those of
        // format 1 have every key. What is set anew must apply by the rules of today.
        let as_it_ran = was_run && (changes.is_empty() || file.format.is_none());
        if all_apply && !as_it_ran {
            file.check_that_keys_apply(&table)?;
        }
        file.check_ranges()?;
        Ok(file)
    }

    /// The file as TOML, with the keys that apply to its method.
    pub fn to_toml(&self) -> Result<String> {
        let unwritable =
            |e: toml::ser::Error| Error::run_file(format!("the plan cannot be written: {e}"));
        let mut table = Table::try_from(self).map_err(unwritable)?;
        self.remove_keys_that_do_not_apply(&mut table);
        toml::to_string(&table).map_err(unwritable)
    }

    /// Writes plan.toml.
    pub fn write_plan(&self, path: &Path, resolved: &Resolved) -> Result<()> {
        #[derive(Serialize)]
        struct Answer<'a> {
            resolved: &'a Resolved,
        }
        let plan = Self { format: Some(FORMAT_VERSION), ..self.clone() }.to_toml()?;
        let answer = toml::to_string(&Answer { resolved })
            .map_err(|e| Error::folder(path, format!("cannot be written: {e}")))?;
        write_atomically(path, |out| {
            write!(out, "{plan}\n# The plan resolved on the data; not read again.\n{answer}")
        })
    }

    /// The resolved part of a plan.toml.
    pub fn read_resolved(path: &Path) -> Result<Resolved> {
        let text = read_settings(path).map_err(Error::io(path))?;
        let damaged = |problem: String| Error::folder(path, format!("is damaged: {problem}"));
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| damaged(e.to_string()))?;
        let resolved = table.remove(RESOLVED).ok_or_else(|| damaged("no [resolved]".into()))?;
        resolved.try_into().map_err(|e: toml::de::Error| damaged(e.message().to_owned()))
    }
}

/// Line numbers of errors; not known where `--set` has changed the file.
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
        // A table that was changed has lost its lines.
        if self.known
            && line.is_empty()
            && let Some(number) = lines::line_of(self.text, &key)
        {
            line = format!("line {number}: ");
        }
        // At the top level there is no key to name.
        let key = if key == "." { String::new() } else { format!("{key}: ") };
        let message = spelling::with_suggestion(&error.message().replace('\n', " "));
        Error::run_file(format!("{line}{key}{message}"))
    }
}

/// Makes the changes of a command line.
fn change(table: &mut Table, changes: &[String]) -> Result<()> {
    for change in changes {
        if let Some(path) = change.strip_prefix('-') {
            remove(table, &present_name(path.trim()))?;
            continue;
        }
        let Some((path, value)) = change.split_once('=') else {
            return Err(Error::run_file(format!(
                "--set {change}: write it as key=value, such as privacy.epsilon=2"
            )));
        };
        set(table, path.trim(), value.trim())?;
        spelling::normalise(table)?;
        rename_aliases(table)?;
    }
    Ok(())
}

/// Renames tables to their present names; merges a table that stands under both.
fn rename_aliases(table: &mut Table) -> Result<bool> {
    let mut any = false;
    for (parent, old, new) in ALIASES {
        let Some(Value::Table(parent_table)) = table.get_mut(parent) else { continue };
        let Some(moved) = parent_table.remove(old) else { continue };
        any = true;
        match (parent_table.get_mut(new), moved) {
            (None, moved) => {
                parent_table.insert(new.to_owned(), moved);
            }
            (Some(Value::Table(there)), Value::Table(moved)) => {
                for (key, value) in moved {
                    if there.insert(key.clone(), value).is_some() {
                        return Err(Error::run_file(format!(
                            "{key} stands in [{parent}.{old}] and in [{parent}.{new}], which is \
                             its present name; leave it in the latter"
                        )));
                    }
                }
            }
            _ => {
                return Err(Error::run_file(format!(
                    "[{parent}.{new}] must be a table, not a value"
                )));
            }
        }
    }
    Ok(any)
}

/// The present name of a key, by its path.
fn present_name(path: &str) -> String {
    let path = &spelling::path(path);
    for (parent, old, new) in ALIASES {
        if let Some(rest) = path.strip_prefix(&format!("{parent}.{old}"))
            && (rest.is_empty() || rest.starts_with('.'))
        {
            return format!("{parent}.{new}{rest}");
        }
    }
    path.to_owned()
}

/// Sets a value at a dotted path; the value is TOML, or else text.
fn set(table: &mut Table, path: &str, value: &str) -> Result<()> {
    let parsed = format!("value = {value}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    let path = present_name(path);
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
mod tests;
