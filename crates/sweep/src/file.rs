//! The sweep file: a run file and the changes to it.

use crate::audit::AuditSection;
use crate::error::{Error, Result};
use crate::grid::spread;
use crate::metric::Metric;
use crate::selection::SelectionSection;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Spanned, Table, Value};

/// A sweep file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// The base run file: a path relative to the sweep file, or an inline table.
    base: Base,
    /// Changes to every cell.
    #[serde(default)]
    set: Changes,
    /// Keys that every cell removes from the run file.
    #[serde(default)]
    unset: Vec<String>,
    /// Seeds: one run per cell and seed. Without seeds, one private run per cell.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// The metric of the table.
    pub metric: Metric,
    /// Metrics of additional columns.
    #[serde(default)]
    pub also: Vec<Metric>,
    /// Label of an additional column with the mean over the columns.
    pub average: Option<String>,
    /// The row with which the others are compared.
    pub baseline: Option<String>,
    /// Train on this share of the rows of the training file, chosen by a hash of the row.
    pub share: Option<f64>,
    /// Train on this number of rows of the training file; not in private runs.
    pub examples: Option<usize>,
    /// Evaluate on this number of rows of the validation file.
    pub validation_examples: Option<usize>,
    /// Whether to plot the training losses.
    #[serde(default)]
    pub losses: bool,
    /// Whether to plot the noise by parameter, as a mean over the epochs.
    #[serde(default)]
    pub noise: bool,
    /// Attacks on every run.
    pub audit: Option<AuditSection>,
    /// Private selection of one cell, instead of a table.
    pub selection: Option<SelectionSection>,
    /// Whether to keep the trained weights.
    #[serde(default)]
    pub keep_weights: bool,
    #[serde(default)]
    rows: Vec<Line>,
    #[serde(default)]
    columns: Vec<Line>,
    /// Every combination of the values of some keys, instead of rows and columns.
    #[serde(default)]
    grid: BTreeMap<Spanned<String>, Vec<Value>>,
    /// Published figures by row and column, in the table's unit.
    #[serde(default)]
    published: BTreeMap<String, BTreeMap<String, f64>>,
    /// Source of the published figures.
    pub source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Base {
    Path(String),
    Table(Table),
}

/// Values by the path of their key, such as `privacy.epsilon`.
pub type Changes = BTreeMap<String, Value>;

/// A row or a column.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its label in the table.
    pub label: String,
    #[serde(default)]
    pub set: Changes,
    /// Keys that it removes from the run file.
    #[serde(default)]
    pub unset: Vec<String>,
    /// Overrides the sweep's `share`.
    pub share: Option<f64>,
    /// Overrides the sweep's `examples`.
    pub examples: Option<usize>,
    /// Overrides the sweep's `validation_examples`.
    pub validation_examples: Option<usize>,
    /// Rows only: the columns that it has; all by default.
    #[serde(default)]
    pub only: Vec<String>,
    /// Rows only: the row that it is compared with, instead of the sweep's baseline.
    pub baseline: Option<String>,
    /// Rows only: whether it is shown for reference, such as non-private training, and left out of
    /// comparisons.
    #[serde(default)]
    pub reference: bool,
}

/// A parsed and checked sweep.
#[derive(Debug)]
pub struct Sweep {
    /// The run file that cells change.
    pub(crate) base: Table,
    /// Changes to every cell.
    pub(crate) every: Line,
    pub(crate) rows: Vec<Line>,
    pub(crate) columns: Vec<Line>,
    pub(crate) file: SweepFile,
}

impl Sweep {
    /// Reads a sweep file and the run file that it names.
    pub fn read(path: &Path) -> Result<Self> {
        let here = |sentence: String| Error::mistake(format!("{}: {sentence}", path.display()));
        let text =
            undertone_run::read_settings(path).map_err(|e| here(format!("cannot be read: {e}")))?;
        let file: SweepFile = toml::from_str(&text).map_err(|e| here(one_sentence(&text, &e)))?;
        let base = match &file.base {
            Base::Table(table) => table.clone(),
            Base::Path(name) => {
                let place = path.parent().unwrap_or(Path::new("")).join(name);
                let text = undertone_run::read_settings(&place).map_err(|e| {
                    here(format!("its base {} cannot be read: {e}", place.display()))
                })?;
                text.parse().map_err(|e: toml::de::Error| {
                    here(format!("its base {}: {}", place.display(), one_sentence(&text, &e)))
                })?
            }
        };
        Self::new(base, file).map_err(here)
    }

    fn new(base: Table, mut file: SweepFile) -> Result<Self, String> {
        let (mut rows, mut columns) =
            (std::mem::take(&mut file.rows), std::mem::take(&mut file.columns));
        if !file.grid.is_empty() {
            if !rows.is_empty() || !columns.is_empty() {
                return Err("has both a grid and rows or columns; keep one of them".into());
            }
            (rows, columns) = spread(std::mem::take(&mut file.grid))?;
        }
        if rows.is_empty() && columns.is_empty() {
            return Err("needs rows, columns or a grid".into());
        }
        for lines in [&mut rows, &mut columns] {
            if lines.is_empty() {
                lines.push(Line { label: file.metric.to_string(), ..Line::default() });
            }
        }
        let (set, unset) = (std::mem::take(&mut file.set), std::mem::take(&mut file.unset));
        let every = Line { set, unset, ..Line::default() };
        let sweep = Self { base, every, rows, columns, file };
        sweep.check()?;
        Ok(sweep)
    }

    /// Checks that labels are unique and that every reference names an existing one.
    fn check(&self) -> Result<(), String> {
        for (what, lines) in [("rows", &self.rows), ("columns", &self.columns)] {
            for (i, line) in lines.iter().enumerate() {
                if line.label.trim().is_empty()
                    || lines[..i].iter().any(|other| other.label == line.label)
                {
                    return Err(format!(
                        "{what}: the label {:?} is empty or duplicated",
                        line.label
                    ));
                }
            }
        }
        if let Some(column) =
            self.columns.iter().find(|column| !column.only.is_empty() || column.reference)
        {
            return Err(format!("column {:?}: only and reference are for rows", column.label));
        }
        let known = |lines: &[Line], label: &str| lines.iter().any(|line| line.label == label);
        let unknown = |what: &str, kind: &str, label: &str| {
            format!("{what} names the {kind} {label:?}, which does not exist")
        };
        for row in &self.rows {
            if let Some(label) = row.only.iter().find(|label| !known(&self.columns, label)) {
                return Err(unknown("only", "column", label));
            }
        }
        if let Some(metric) = self
            .file
            .also
            .iter()
            .find(|also| also.higher_is_better() != self.file.metric.higher_is_better())
        {
            return Err(format!(
                "also has {metric}, for which better means the opposite of {}",
                self.file.metric
            ));
        }
        if let Some(audit) = &self.file.audit {
            audit.check()?;
        }
        for metric in std::iter::once(&self.file.metric).chain(&self.file.also) {
            let made = |attack| {
                self.file.audit.as_ref().is_some_and(|audit| audit.attacks.contains(&attack))
            };
            if let Some(attack) = metric.attack().filter(|attack| !made(*attack)) {
                return Err(format!(
                    "{metric} needs [audit] with attacks = [\"{}\"]",
                    attack.name()
                ));
            }
        }
        if let Some(label) =
            self.file.average.as_deref().filter(|label| known(&self.columns, label))
        {
            return Err(format!("average: a column {label:?} already exists"));
        }
        if let Some(label) = self.file.baseline.as_deref().filter(|label| !known(&self.rows, label))
        {
            return Err(unknown("baseline", "row", label));
        }
        let own = self.rows.iter().filter_map(|row| row.baseline.as_deref());
        if let Some(label) = own.clone().find(|label| !known(&self.rows, label)) {
            return Err(unknown("baseline", "row", label));
        }
        if self.file.baseline.is_none() && own.count() > 0 {
            return Err("a row has a baseline, so the sweep needs one for the other rows".into());
        }
        for (row, figures) in &self.file.published {
            if !known(&self.rows, row) {
                return Err(unknown("published", "row", row));
            }
            let also = |label: &str| self.also_columns().any(|(_, _, column)| column == *label);
            let average = |label: &str| self.file.average.as_deref() == Some(label);
            let missing =
                |label: &&String| !known(&self.columns, label) && !also(label) && !average(label);
            if let Some(label) = figures.keys().find(missing) {
                return Err(unknown("published", "column", label));
            }
        }
        if self.file.losses && self.file.seeds.is_empty() {
            return Err("losses are those of the training examples, which a private run must not \
                        show; they need seeds"
                .into());
        }
        if self.file.noise && self.file.seeds.is_empty() {
            return Err(
                "noise in paper mode follows from raw gradients, which a private run must \
                        not show; it needs seeds"
                    .into(),
            );
        }
        for (i, seed) in self.file.seeds.iter().enumerate() {
            if self.file.seeds[..i].contains(seed) {
                return Err(format!("the seed {seed} is listed twice"));
            }
        }
        Ok(())
    }

    /// The published figure of a cell, by the labels of its row and column.
    pub(crate) fn published(&self, row: usize, column: &str) -> Option<f64> {
        self.file.published.get(&self.rows[row].label)?.get(column).copied()
    }

    /// The additional columns of other metrics: metric, column and label of each.
    pub(crate) fn also_columns(&self) -> impl Iterator<Item = (Metric, usize, String)> {
        let metric = self.file.metric.to_string();
        self.file.also.iter().flat_map(move |&also| {
            let metric = metric.clone();
            self.columns.iter().enumerate().map(move |(c, column)| {
                // A table with a single column is labeled with the metric's name.
                let label = if column.label == metric {
                    also.to_string()
                } else {
                    format!("{}, {}", column.label, also.to_string().trim_end_matches(", %"))
                };
                (also, c, label)
            })
        })
    }
}

/// The error in a TOML file, with its line.
fn one_sentence(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    let place = line.map_or(String::new(), |line| format!("line {line}: "));
    format!("{place}{}", error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sweep, String> {
        let file: SweepFile = toml::from_str(text).map_err(|e| one_sentence(text, &e))?;
        Sweep::new(Table::new(), file)
    }

    #[test]
    fn mistakes_are_named() {
        let rows = "rows = [{ label = \"a\" }, { label = \"b\" }]\n";
        for (text, about) in [
            ("", "needs rows"),
            ("rows = [{ label = \"a\" }, { label = \"a\" }]", "duplicated"),
            ("rows = [{ label = \"a\", sett = {} }]", "sett"),
            (&format!("{rows}baseline = \"c\""), "baseline"),
            ("rows = [{ label = \"a\", baseline = \"c\" }]", "baseline"),
            ("rows = [{ label = \"a\", baseline = \"a\" }]", "needs one"),
            (&format!("{rows}seeds = [1, 1]"), "seed 1"),
            (&format!("{rows}grid = {{ \"a.b\" = [1] }}"), "both"),
            (&format!("{rows}published = {{ c = {{ accuracy = 1.0 }} }}"), "published"),
            (&format!("{rows}published = {{ a = {{ x = 1.0 }} }}"), "column \"x\""),
            ("rows = [{ label = \"a\", only = [\"z\"] }]", "\"z\""),
            (&format!("{rows}also = [\"loss\"]"), "means the opposite"),
            (&format!("{rows}losses = true"), "need seeds"),
            (&format!("{rows}noise = true"), "needs seeds"),
            (
                &format!("{rows}audit = {{ attacks = [\"membership\"], texts = 3 }}"),
                "audit.texts is for extraction",
            ),
            (
                &format!("{rows}columns = [{{ label = \"c\" }}]\naverage = \"c\""),
                "a column \"c\" already",
            ),
            ("grid = { \"a.b\" = [] }", "no values"),
            ("colour = 1", "colour"),
        ] {
            let error = read(&format!("base = {{}}\nmetric = \"accuracy\"\n{text}")).unwrap_err();
            assert!(error.contains(about) && !error.contains('\n'), "{text}: {error}");
        }
        assert!(read("base = {}\nmetric = \"beauty\"").unwrap_err().contains("beauty"));
    }
}
