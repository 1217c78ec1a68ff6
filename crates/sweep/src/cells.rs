//! Expands a sweep into the runs that it needs.

use crate::audit::Attack;
use crate::error::{Error, Result};
use crate::file::{Line, Sweep};
use crate::metric::Metric;
use crate::subset::{Amount, Subsets};
use toml::{Table, Value};
use undertone::model::TaskHead;
use undertone::{Method, Plan};
use undertone_run::{MethodName, RunFile, TaskName};

/// One run of `undertone train`.
#[derive(Debug)]
pub struct Run {
    /// Its display name.
    pub name: String,
    /// Its folder below the sweep's.
    pub folder: String,
    pub plan: Plan,
}

/// All runs, and the runs that each cell of the table averages.
#[derive(Debug)]
pub struct Cells {
    /// Distinct plans; one plan can belong to several cells.
    pub runs: Vec<Run>,
    /// Indices of runs by row, column and seed; `None` where a row skips a column.
    pub of: Vec<Vec<Option<Vec<usize>>>>,
}

impl Cells {
    /// The checked plan of every cell; `changes` (`key=value`) apply to all cells.
    pub fn new(sweep: &Sweep, changes: &[String], subsets: &mut Subsets) -> Result<Self> {
        let mut runs: Vec<Run> = Vec::new();
        let mut of = Vec::new();
        for row in &sweep.rows {
            let mut cells = Vec::new();
            for column in &sweep.columns {
                if !row.only.is_empty() && !row.only.contains(&column.label) {
                    cells.push(None);
                    continue;
                }
                let name = match (sweep.rows.len(), sweep.columns.len()) {
                    (1, _) => column.label.clone(),
                    (_, 1) => row.label.clone(),
                    _ => format!("{}, {}", row.label, column.label),
                };
                let mistake = |e: String| Error::mistake(format!("{name}: {e}"));
                let mut plan = plan(sweep, row, column, changes).map_err(mistake)?;
                measurable(sweep.file.metric, &plan).map_err(mistake)?;
                attackable(sweep, &plan).map_err(mistake)?;
                let training = training_rows(sweep, row, column, &plan).map_err(mistake)?;
                let validation = row
                    .validation_examples
                    .or(column.validation_examples)
                    .or(sweep.file.validation_examples);
                subsets.replace(&mut plan.data, training, validation).map_err(mistake)?;
                let mut of_seeds = Vec::new();
                for seed in seeds(sweep, &plan) {
                    let plan = {
                        let mut seeded = plan.clone();
                        seeded.training.seed = seed;
                        seeded
                    };
                    let same = runs.iter().position(|run| run.plan == plan);
                    of_seeds.push(same.unwrap_or(runs.len()));
                    if same.is_none() {
                        let tail = seed.map_or(String::new(), |seed| format!(", seed {seed}"));
                        let folder = folder(&row.label, &column.label, seed, &runs);
                        runs.push(Run { name: format!("{name}{tail}"), folder, plan });
                    }
                }
                cells.push(Some(of_seeds));
            }
            of.push(cells);
        }
        Ok(Self { runs, of })
    }
}

/// The part of the training file that a cell trains on. Private runs cannot use a number of rows.
fn training_rows(
    sweep: &Sweep,
    row: &Line,
    column: &Line,
    plan: &Plan,
) -> Result<Option<Amount>, String> {
    let amount = |share, examples| Amount::of(share, examples);
    let amount = match (amount(row.share, row.examples)?, amount(column.share, column.examples)?) {
        (Some(amount), _) | (None, Some(amount)) => Some(amount),
        (None, None) => amount(sweep.file.share, sweep.file.examples)?,
    };
    let is_seeded = seeds(sweep, plan).iter().all(Option::is_some);
    match amount {
        Some(Amount::Rows(_)) if plan.is_private() && !is_seeded => Err(
            "examples needs seeds: with a fixed number of rows, one more row displaces another, \
             which the guarantee of a private run does not cover; use share instead"
                .into(),
        ),
        amount => Ok(amount),
    }
}

/// The seeds of the sweep file, otherwise that of the run file, otherwise none.
fn seeds(sweep: &Sweep, plan: &Plan) -> Vec<Option<u64>> {
    match sweep.file.seeds.as_slice() {
        [] => vec![plan.training.seed],
        seeds => seeds.iter().copied().map(Some).collect(),
    }
}

fn plan(sweep: &Sweep, row: &Line, column: &Line, changes: &[String]) -> Result<Plan, String> {
    let mut table = sweep.base.clone();
    // In this order, so that the row's changes take precedence.
    for line in [&sweep.every, column, row] {
        for (key, value) in &line.set {
            set(&mut table, key, value.clone())?;
        }
        for key in &line.unset {
            unset(&mut table, key)?;
        }
    }
    let text =
        toml::to_string(&table).map_err(|e| format!("the run file cannot be written: {e}"))?;
    // Cells of different methods share the base, columns and changes, so keys that do not apply to
    // this cell's method are dropped. Keys set by the row itself must apply.
    let shared = RunFile::parse_shared(&text, changes).map_err(|e| e.to_string())?;
    for key in row.set.keys() {
        shared.check_that_key_applies(key).map_err(|e| e.to_string())?;
    }
    // Via text, as in a run folder, so that numbers agree to the last digit.
    let text = shared.to_toml().map_err(|e| e.to_string())?;
    Plan::parse(&text, &[]).map_err(|e| e.to_string())
}

fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = inner else {
                return Err(format!("set {path}: {first} is a value, not a table"));
            };
            set(inner, rest, value)
        }
    }
}

fn unset(table: &mut Table, path: &str) -> Result<(), String> {
    let gone = match path.split_once('.') {
        None => table.remove(path).is_some(),
        Some((first, rest)) => table
            .get_mut(first)
            .and_then(Value::as_table_mut)
            .is_some_and(|inner| unset(inner, rest).is_ok()),
    };
    if gone { Ok(()) } else { Err(format!("unset {path}: there is no such key in the run file")) }
}

/// Checks that a run of this plan has the metric.
fn measurable(metric: Metric, plan: &Plan) -> Result<(), String> {
    let classifies = plan.data.task == TaskName::Classification;
    let right = match metric {
        Metric::Accuracy | Metric::BestAccuracy | Metric::F1 => classifies,
        Metric::AccuracyWithNoise => classifies && matches!(plan.method, Method::Local(_)),
        Metric::Perplexity => !classifies,
        Metric::MinutesPerEpoch => plan.data.author.is_none(),
        Metric::ExtractionPrecision | Metric::ExtractionRecall | Metric::ReconstructionAccuracy => {
            plan.task_head() == TaskHead::CausalLanguageModel
        }
        Metric::PhoneExposure | Metric::NameReciprocalRank => !classifies,
        Metric::RelevanceSeconds | Metric::RelevanceMemory => {
            plan.file().privacy.method == MethodName::RapFt
        }
        Metric::Loss
        | Metric::Memory
        | Metric::GpuMemory
        | Metric::MemoryPerExample
        | Metric::MembershipAuc => true,
    };
    if !right {
        return Err(format!("the metric ({metric}) does not exist for such a run"));
    }
    if metric.needs_validation() && plan.data.validation.is_none() {
        return Err("the metric is measured on data.validation, which is missing".into());
    }
    Ok(())
}

/// Checks that the sweep's attacks apply to a run of this plan.
fn attackable(sweep: &Sweep, plan: &Plan) -> Result<(), String> {
    let Some(audit) = &sweep.file.audit else { return Ok(()) };
    for attack in &audit.attacks {
        match attack {
            Attack::Extraction | Attack::Reconstruction
                if plan.task_head() != TaskHead::CausalLanguageModel =>
            {
                return Err(format!("{} is for language models", attack.name()));
            }
            Attack::Exposure
                if !matches!(
                    plan.task_head(),
                    TaskHead::CausalLanguageModel | TaskHead::MaskedLanguageModel
                ) =>
            {
                return Err("exposure is for language models".into());
            }
            Attack::Membership
                if plan.data.hold_out.is_none()
                    && plan.data.validation.is_none()
                    && audit.non_members.is_none() =>
            {
                return Err("membership inference needs data.hold_out, data.validation or \
                            audit.non_members, as non-members"
                    .into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A unique folder name made from labels.
fn folder(row: &str, column: &str, seed: Option<u64>, runs: &[Run]) -> String {
    let tail = seed.map_or(String::new(), |seed| format!("--seed-{seed}"));
    let name = format!("{}--{}{tail}", plain(row), plain(column));
    let taken = |name: &str| runs.iter().any(|run| run.folder == name);
    let others = (2..).map(|i| format!("{name}-{i}"));
    std::iter::once(name.clone()).chain(others).find(|name| !taken(name)).unwrap_or(name)
}

/// Keeps letters, digits, dots and hyphens; anything else becomes a hyphen.
pub fn plain(label: &str) -> String {
    let spelled = label.replace('ε', "epsilon").replace('δ', "delta");
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '.';
    // No hidden files and no "..".
    let parts = spelled.split(|c| !letters(c)).map(|part| part.trim_matches('.'));
    let name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-").to_lowercase();
    if name.is_empty() { "cell".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_set_and_unset_by_their_path() {
        let mut table: Table = "a = 1\n[b]\nc = 2".parse().unwrap();
        set(&mut table, "b.d.e", Value::Integer(3)).unwrap();
        assert_eq!(table["b"]["d"]["e"], Value::Integer(3));
        assert!(set(&mut table, "a.x", Value::Integer(3)).unwrap_err().contains("a is a value"));
        unset(&mut table, "b.c").unwrap();
        assert!(table["b"].get("c").is_none());
        assert!(unset(&mut table, "b.c").unwrap_err().contains("b.c"));
        assert!(unset(&mut table, "z.c").is_err());
    }

    #[test]
    fn labels_become_names_of_folders() {
        assert_eq!(plain("ε = 8, DP-SGD"), "epsilon-8-dp-sgd");
        assert_eq!(plain("../../etc"), "etc");
        assert_eq!(plain("…"), "cell");
    }
}
