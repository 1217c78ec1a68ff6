//! A run file as written, before the recipe chooses the hyperparameters left to it.

use super::auto::{AUTO, AutoKey, Choices};
use super::missing::{fill_in, list, missing};
use super::{
    DataSection, Lines, MethodName, ModelSection, OptimizerKind, RESOLVED, RunFile,
    SynthesisSection, Tuning, applies, change, check_format, parsed, remove, spelling,
};
use crate::error::{Error, Result};
use std::path::Path;
use toml::{Table, Value};

/// A parsed and checked run file, before the recipe has chosen the `"auto"` values.
///
/// The only way to obtain a [`RunFile`] is [`WrittenRun::complete`], so a run never trains with a
/// placeholder for an open key.
#[derive(Clone, Debug)]
pub struct WrittenRun {
    /// Contains placeholders for open keys.
    file: RunFile,
    open: Vec<AutoKey>,
    table: Table,
    /// Whether to reject keys that do not apply to the method.
    is_checked: bool,
    left_out: Vec<&'static str>,
}

impl WrittenRun {
    /// Reads a run file, with `changes` as in [`RunFile::read`].
    pub fn read(path: &Path, changes: &[String]) -> Result<Self> {
        parsed(path, |text| Self::parse(text, changes))
    }

    /// Like [`WrittenRun::read`], but takes the file's text.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self> {
        let lines = Lines { text, known: changes.is_empty() };
        let mut table: Table = text.parse().map_err(|e| lines.unreadable(&e))?;
        spelling::normalize(&mut table)?;
        change(&mut table, changes)?;
        let was_run = table.remove(RESOLVED).is_some();
        // A file that sets a budget but no method gets DP-SGD.
        if let Some(privacy) = section(&mut table, "privacy") {
            privacy.entry("method").or_insert_with(|| Value::String("dp-sgd".into()));
        }
        let asked = take_auto(&mut table);
        let absent: Vec<AutoKey> = AutoKey::ALL
            .into_iter()
            .filter(|key| applies::find(&table, key.path()).is_none())
            .collect();
        let read = |table: &Table| -> Result<RunFile> {
            let mut filled = table.clone();
            fill_in(&mut filled);
            serde_path_to_error::deserialize(Value::Table(filled)).map_err(|e| lines.wrong(&e))
        };
        let mut file = read(&table)?;
        check_format(Path::new("the run file"), file.format)?;
        let lacking = missing(&table, &file, &absent);
        if !lacking.is_empty() {
            return Err(Error::run_file(format!("the run file lacks {}", list(&lacking))));
        }
        for key in asked {
            file.check_that_key_applies(key.path())?;
            if !key.is_chosen_for(&file) {
                let path = key.path();
                return Err(Error::run_file(format!(
                    "{path} cannot be \"auto\" in such a run: the recipe is for gradient methods \
                     in proved mode"
                )));
            }
        }
        let mut left_out = Vec::new();
        if sets_method(changes) {
            left_out = file.keys_that_do_not_apply(&table);
            // A kind of tuning cannot be left out: the check names it instead.
            let is_tuning = |key: &str| key.rsplit_once('.').is_some_and(|k| k.0 == "model.tuning");
            left_out.retain(|key| !is_set(changes, key) && !is_tuning(key));
            for key in &left_out {
                remove(&mut table, key)?;
            }
            file = read(&table)?;
        }
        let open: Vec<AutoKey> =
            absent.into_iter().filter(|key| key.is_chosen_for(&file)).collect();
        let likely = Choices::likely(&file);
        open.iter().for_each(|key| likely.put(*key, &mut file));
        let as_it_ran = was_run && changes.is_empty();
        let written = Self { file, open, table, is_checked: !as_it_ran, left_out };
        written.checked(&written.file)?;
        Ok(written)
    }

    fn checked(&self, file: &RunFile) -> Result<()> {
        if self.is_checked {
            file.check_that_keys_apply(&self.table)?;
        }
        file.check_ranges()
    }

    /// Returns the run file with `choices` filled in for the open keys.
    pub fn complete(&self, choices: &Choices) -> Result<RunFile> {
        let mut file = self.file.clone();
        self.open.iter().for_each(|key| choices.put(*key, &mut file));
        self.checked(&file)?;
        Ok(file)
    }

    /// The keys left to the recipe.
    pub fn open(&self) -> &[AutoKey] {
        &self.open
    }

    /// Keys of the file that were dropped because a change of method made them meaningless.
    pub fn left_out(&self) -> &[&'static str] {
        &self.left_out
    }

    /// The base model. Its tuning may still be open: see [`WrittenRun::tuning`].
    pub fn model(&self) -> &ModelSection {
        &self.file.model
    }

    /// Which parameters are trainable, or `None` if that is left to the recipe.
    pub fn tuning(&self) -> Option<&Tuning> {
        (!self.open.contains(&AutoKey::Tuning)).then_some(&self.file.model.tuning)
    }

    /// The data files and their columns.
    pub fn data(&self) -> &DataSection {
        &self.file.data
    }

    /// The method.
    pub fn method(&self) -> MethodName {
        self.file.privacy.method
    }

    /// The optimizer, if the file names one.
    pub fn optimizer(&self) -> Option<OptimizerKind> {
        (!self.open.contains(&AutoKey::Optimizer)).then_some(self.file.training.optimizer)
    }

    /// Whether steps sample privacy units, not single examples of them.
    pub fn samples_units(&self) -> bool {
        self.file.privacy.sampling.is_users()
    }

    /// The declared number of privacy units.
    pub fn declared_units(&self) -> Option<u64> {
        self.file.privacy.units
    }

    /// δ, if the file states it.
    pub fn delta(&self) -> Option<f64> {
        self.file.privacy.delta.filter(|_| !self.open.contains(&AutoKey::Delta))
    }

    /// The synthetic rows.
    pub fn synthesis(&self) -> Option<&SynthesisSection> {
        self.file.synthesis.as_ref()
    }

    /// Target ε.
    pub fn epsilon(&self) -> Option<f64> {
        self.file.privacy.epsilon
    }
}

fn section<'a>(table: &'a mut Table, name: &str) -> Option<&'a mut Table> {
    table.entry(name).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
}

/// Rejects `"auto"` where there is no data to choose values for.
pub(super) fn refuse_auto(table: &Table) -> Result<()> {
    let is_auto =
        |key: &AutoKey| applies::find(table, key.path()).and_then(Value::as_str) == Some(AUTO);
    match AutoKey::ALL.into_iter().find(is_auto) {
        Some(key) => Err(Error::run_file(format!(
            "{} is \"auto\", which is chosen for one run on its data; state a value here",
            key.path()
        ))),
        None => Ok(()),
    }
}

/// Removes `"auto"` values from the table: omitting a key means the same.
fn take_auto(table: &mut Table) -> Vec<AutoKey> {
    let mut taken = Vec::new();
    for key in AutoKey::ALL {
        let is_auto = applies::find(table, key.path()).and_then(Value::as_str) == Some(AUTO);
        if is_auto && remove(table, key.path()).is_ok() {
            taken.push(key);
        }
    }
    taken
}

/// The path of the key that a change sets.
fn path_of(change: &str) -> Option<String> {
    let (path, _) = change.split_once('=').filter(|_| !change.starts_with('-'))?;
    Some(spelling::path(path.trim()))
}

fn sets_method(changes: &[String]) -> bool {
    changes.iter().any(|change| path_of(change).is_some_and(|path| path == "privacy.method"))
}

/// Whether a change sets the key, a key inside it, or a table that contains it.
fn is_set(changes: &[String], key: &str) -> bool {
    let below = |path: &str, key: &str| {
        path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    changes.iter().filter_map(|change| Some((path_of(change)?, change))).any(|(path, change)| {
        below(&path, key) || (below(key, &path) && contains(change, &key[path.len() + 1..]))
    })
}

/// Whether the value of a change is a table that contains a key.
fn contains(change: &str, key: &str) -> bool {
    let value = change.split_once('=').map_or("", |(_, value)| value);
    let Ok(table) = format!("value = {value}").parse::<Table>() else { return false };
    key.split('.').try_fold(&table["value"], |value, part| value.get(part)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clip, LearningRateSchedule, OptimizerKind};

    const SHORT: &str = r#"
[model]
path = "models/a"
[data]
task = "classification"
train = "train.tsv"
text = "sentence"
[privacy]
epsilon = 8
"#;

    fn parse(text: &str, changes: &[&str]) -> Result<WrittenRun> {
        WrittenRun::parse(text, &changes.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn refused(text: &str, changes: &[&str]) -> String {
        let error = parse(text, changes).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    fn choices() -> Choices {
        Choices {
            tuning: Tuning::Head,
            delta: 1e-7,
            clip: Clip::Flat(3.0),
            epochs: 7,
            batch: 512,
            learning_rate: 0.25,
            learning_rate_schedule: LearningRateSchedule::Cosine,
            warmup: 0.5,
            optimizer: OptimizerKind::Sgd,
        }
    }

    #[test]
    fn what_is_left_out_or_auto_is_chosen_and_the_rest_is_kept() {
        let written = parse(SHORT, &[]).unwrap();
        assert_eq!(written.open(), AutoKey::ALL);
        assert_eq!((written.method(), written.tuning()), (MethodName::DpSgd, None));
        let file = written.complete(&choices()).unwrap();
        assert_eq!(Choices::of(&file), choices());
        let some = ["training.batch=64", "training.epochs=auto", "privacy.delta=1e-9"];
        let file = parse(SHORT, &some).unwrap().complete(&choices()).unwrap();
        assert_eq!((file.training.batch, file.training.epochs), (64, 7));
        assert_eq!(file.privacy.delta, Some(1e-9));
        // The chosen values are written out, so nothing is open when the plan is read again.
        let again = parse(&file.to_toml().unwrap(), &[]).unwrap();
        assert_eq!(
            (again.open(), again.complete(&Choices::likely(&file)).unwrap()),
            (&[][..], file)
        );
    }

    #[test]
    fn a_non_private_run_has_no_clipping_and_no_delta_to_choose() {
        let written = parse(SHORT, &["privacy.method=none"]).unwrap();
        assert_eq!(written.left_out(), ["privacy.epsilon"]);
        assert!(!written.open().contains(&AutoKey::Clip));
        assert!(!written.open().contains(&AutoKey::Delta));
        let file = written.complete(&choices()).unwrap();
        assert_eq!((file.privacy.epsilon, file.privacy.delta), (None, None));
        let error = refused(SHORT, &["privacy.method=none", "privacy.epsilon=2"]);
        assert!(error.contains("privacy.epsilon is for private methods"), "{error}");
        let error = refused(SHORT, &["privacy.method=none", "privacy.clip=auto"]);
        assert!(error.contains("privacy.clip is for private methods"), "{error}");
        let adaclip = format!("{SHORT}method = \"adaclip\"\n[privacy.adaclip]\nbeta = 0.5\n");
        let written = parse(&adaclip, &["privacy.method=dp-sgd"]).unwrap();
        assert_eq!(written.left_out(), ["privacy.adaclip"]);
    }

    #[test]
    fn published_and_local_methods_keep_what_they_require() {
        let paper = ["privacy.method=anadp", "privacy.mode=paper"];
        let numbers = [
            "training.epochs=1",
            "training.batch=8",
            "training.learning_rate=1",
            "privacy.delta=1e-5",
        ];
        let error = refused(SHORT, &paper);
        for key in ["privacy.delta", "training.epochs", "training.batch", "training.learning_rate"]
        {
            assert!(error.contains(key), "{error}");
        }
        let file = parse(SHORT, &[&paper[..], &numbers].concat()).unwrap();
        assert!(file.open().is_empty());
        let file = file.complete(&choices()).unwrap();
        let usual = (file.model.tuning, file.privacy.clip, file.training.optimizer);
        assert_eq!(usual, (Tuning::Full, Clip::Automatic, OptimizerKind::Adamw));
        let auto = ["privacy.clip=auto"];
        let error = refused(SHORT, &[&paper[..], &numbers, &auto].concat());
        assert!(error.contains("privacy.clip cannot be \"auto\""), "{error}");
        let local = ["privacy.method=dp-forward", "model.tuning=head"];
        let error = refused(SHORT, &local);
        assert!(error.contains("training.epochs") && !error.contains("delta"), "{error}");
        let written = parse(SHORT, &[&local[..], &numbers[..3]].concat()).unwrap();
        assert_eq!(written.open(), [AutoKey::Delta]);
    }

    #[test]
    fn all_missing_keys_are_told_at_once() {
        let error = refused("", &[]);
        for key in ["model.path", "data.task", "data.train", "data.text", "privacy.epsilon"] {
            assert!(error.contains(key), "{key}: {error}");
        }
        let error = refused(&SHORT.replace("task = \"classification\"\n", ""), &[]);
        assert!(error.contains("lacks data.task") && !error.contains("data.text"), "{error}");
    }

    #[test]
    fn unknown_keys_are_named_with_their_line_and_what_was_meant() {
        let error = refused(&format!("{SHORT}[training]\nbatch_size = 3\n"), &[]);
        assert!(error.contains("line 11: training.batch_size"), "{error}");
        assert!(error.contains("did you mean `batch`?"), "{error}");
        let error = refused(SHORT, &["privacy.method=dpsgd"]);
        assert!(error.contains("did you mean `dp-sgd`?"), "{error}");
        let sgd = parse(
            &format!("{SHORT}[training]\noptimizer = \"adamw\"\n"),
            &["training.optimizer=sgd"],
        )
        .unwrap();
        assert_eq!(sgd.complete(&choices()).unwrap().training.optimizer, OptimizerKind::Sgd);
    }

    #[test]
    fn auto_needs_data_to_choose_for() {
        let text = format!("{SHORT}[training]\nbatch = \"auto\"\n");
        let error = RunFile::parse(&text, &[]).unwrap_err().to_string();
        assert!(error.contains("training.batch is \"auto\""), "{error}");
    }

    /// A key that another key's value makes meaningless is an error once that value is chosen.
    #[test]
    fn keys_must_apply_to_what_is_chosen() {
        let betas = parse(SHORT, &["training.betas=[0.5, 0.9]"]).unwrap();
        assert!(betas.complete(&choices()).is_err(), "betas are not for SGD");
        assert!(betas.complete(&Choices::likely(&betas.file)).is_ok());
    }
}
