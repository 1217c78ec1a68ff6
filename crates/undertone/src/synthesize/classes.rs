//! Classes: the combinations of control codes, each with its prompt.

use super::plan::codes;
use crate::data::{Example, Target};
use crate::data::{Labels, Template, Tokenizer, format_of, read};
use crate::error::{Error, Result};
use crate::plan::Plan;
use std::collections::{BTreeMap, HashMap};
use undertone_run::{DataSection, SynthesisSection};

/// Maximum number of classes.
const MOST_CLASSES: usize = 1000;

/// A combination of control codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The value of each control code.
    pub values: Vec<String>,
    /// The tokens with which its examples begin.
    pub tokens: Vec<u32>,
}

/// The classes of a run, in the order of their declared values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The columns of the control codes; without columns, there is one class.
    pub columns: Vec<String>,
    pub classes: Vec<Class>,
    /// The columns whose values were read from the private training file.
    pub found: Vec<String>,
    /// Maximum number of tokens of an example.
    pub max_tokens: usize,
}

impl Classes {
    /// The classes of a plan; checks that the training file has no others.
    pub fn load(plan: &Plan, section: &SynthesisSection, tokenizer: &Tokenizer) -> Result<Self> {
        let data = &plan.data;
        let (columns, mut values, mut from_file) = (codes(data)?, Vec::new(), Vec::new());
        for column in &columns {
            values.push(match section.codes.get(column) {
                Some(declared) => declared.clone(),
                None => {
                    from_file.push(column.clone());
                    values_in_file(data, column)?
                }
            });
        }
        check_values(data, &columns, &values)?;
        Self::new(&data.prompt, columns, &values, tokenizer, from_file)
    }

    /// All combinations of the values, one list for each column.
    pub fn new(
        prompt: &str,
        columns: Vec<String>,
        values: &[Vec<String>],
        tokenizer: &Tokenizer,
        from_file: Vec<String>,
    ) -> Result<Self> {
        let count = values.iter().try_fold(1_usize, |all, of| all.checked_mul(of.len()));
        if count.is_none_or(|count| count > MOST_CLASSES) {
            return Err(Error::plan(format!(
                "the control codes of data.prompt have more than {MOST_CLASSES} combinations; \
                 declare fewer values, or use fewer columns"
            )));
        }
        let mut combinations = vec![Vec::new()];
        for of_column in values {
            let with = |values: &Vec<String>| {
                let longer = |value: &String| [values.clone(), vec![value.clone()]].concat();
                of_column.iter().map(longer).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        let max_tokens = tokenizer.max_tokens();
        let mut classes = Vec::new();
        for values in combinations {
            let tokens = tokenizer.prompt(&prompt_of(prompt, &columns, &values)?, 0)?;
            classes.push(Class { values, tokens });
        }
        let classes = Self { columns, classes, found: from_file, max_tokens };
        classes.check_prompts()?;
        Ok(classes)
    }

    /// A prompt that fills at most a quarter of an example is never cut, and a row's class can be
    /// identified by its prompt if no two prompts are the same.
    fn check_prompts(&self) -> Result<()> {
        let mut seen = HashMap::new();
        for class in &self.classes {
            if 4 * class.tokens.len() > self.max_tokens {
                return Err(Error::plan(format!(
                    "the prompt of {} has {} tokens, but may fill at most a quarter of \
                     data.max_tokens ({}): shorten data.prompt, or raise data.max_tokens",
                    class.name(),
                    class.tokens.len(),
                    self.max_tokens
                )));
            }
            if let Some(other) = seen.insert(&class.tokens, class) {
                return Err(Error::plan(format!(
                    "the prompts of {} and {} have the same tokens, so the model cannot tell them \
                     apart",
                    other.name(),
                    class.name()
                )));
            }
        }
        Ok(())
    }

    /// The class of an example, by its prompt; `None` for an example from elsewhere, such as an
    /// audit's canary.
    pub fn of(&self, example: &Example) -> Option<usize> {
        let Target::Next { from } = example.target else { return None };
        self.classes.iter().position(|class| class.tokens == example.tokens[..from])
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there are no classes, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The assumption about values that were read from the training file.
    pub fn assumption(&self) -> Option<String> {
        if self.found.is_empty() {
            return None;
        }
        let mut values: Vec<&str> = Vec::new();
        for (at, _) in self.columns.iter().enumerate().filter(|(_, c)| self.found.contains(c)) {
            for class in &self.classes {
                if !values.contains(&class.values[at].as_str()) {
                    values.push(&class.values[at]);
                }
            }
        }
        Some(format!(
            "the values of the control codes {} ({}), which were found in the training file, are \
             public",
            self.found.join(", "),
            values.join(", ")
        ))
    }
}

impl Class {
    /// Its values, for messages.
    pub fn name(&self) -> String {
        match self.values.is_empty() {
            true => "every row".to_owned(),
            false => format!("{:?}", self.values.join(", ")),
        }
    }
}

/// The prompt of a class; a column may occur in it twice.
pub(super) fn prompt_of(prompt: &str, columns: &[String], values: &[String]) -> Result<String> {
    let template = Template::parse_prompt(prompt)?;
    let by_name: BTreeMap<&str, &String> = columns.iter().map(String::as_str).zip(values).collect();
    let filled: Vec<String> = (template.clone().columns().iter())
        .map(|column| by_name.get(column).map_or(String::new(), |value| (*value).clone()))
        .collect();
    Ok(template.fill(&filled))
}

/// The values of a column of the training file, as for class names: at most 50, each in 20 rows on
/// average.
fn values_in_file(data: &DataSection, column: &str) -> Result<Vec<String>> {
    let format = format_of(&data.train, data.format)?;
    let renamed = BTreeMap::new();
    let labels = Labels::from_file(&data.train, format, column, data.on_bad_row, &renamed)?;
    match labels.names() {
        [_, _, ..] => Ok(labels.names().to_vec()),
        _ => Err(Error::plan(format!(
            "column {column:?} has one value only, so it needs no control code; leave it out of \
             data.prompt"
        ))),
    }
}

/// The error for a row whose control codes have undeclared values.
pub(super) fn undeclared(
    data: &DataSection,
    line: u64,
    columns: &[String],
    values: &[String],
) -> Error {
    let value: String = values.join(", ").chars().take(40).collect();
    Error::plan(format!(
        "{}, line {line}: {} {value:?} is not a declared value; correct the row, or add the value to \
         --code (synthesis.codes)",
        data.train.display(),
        columns.join(", ")
    ))
}

/// Rejects a row with an undeclared value: the model would learn a class that is never sampled.
fn check_values(data: &DataSection, columns: &[String], values: &[Vec<String>]) -> Result<()> {
    if columns.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let format = format_of(&data.train, data.format)?;
    for row in read::rows_or_skip(&data.train, format, &names, data.on_bad_row)? {
        let row = row?;
        let mut pairs = row.values.iter().zip(values);
        if let Some(at) = pairs.position(|(value, known)| !known.contains(value)) {
            return Err(undeclared(data, row.line, &columns[at..=at], &row.values[at..=at]));
        }
    }
    Ok(())
}
