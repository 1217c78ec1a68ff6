//! Flags of `undertone synthesize` that describe a run, and the equivalent run file.

use super::rows::RowArguments;
use crate::arguments::ChangeArguments;
use crate::failure::{Failure, Outcome};
use crate::source::{KeyArguments, key_of_model, list, quoted, quoted_path};
use clap::Args;
use std::path::Path;
use undertone_run::WrittenRun;

/// Flags in place of a run file.
#[derive(Args)]
#[command(next_help_heading = "Without a run file")]
pub struct SourceArguments {
    /// Language model: a folder, or a name on the Hugging Face Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<String>,
    /// Text column, or several comma-separated columns, which are written as JSON records
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    text: Vec<String>,
    /// Column used as a control code, with all of its values, which become public (repeatable);
    /// without values, those in the file, with `--publish-codes`
    #[arg(long = "code", value_name = "COLUMN[=VALUE,…]")]
    codes: Vec<String>,
    /// Publish the values of control codes that are found in the file (data.publish_labels)
    #[arg(long)]
    publish_codes: bool,
    /// Author column; makes the user the privacy unit
    #[arg(long, value_name = "COLUMN")]
    author: Option<String>,
    /// Target ε; overrides that of the run file
    #[arg(long)]
    epsilon: Option<f64>,
}

/// Whether the argument is a run file rather than a data file.
pub fn is_run_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"))
}

impl SourceArguments {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.names_nothing() && self.epsilon.is_none()
    }

    pub fn publishes_codes(&self) -> bool {
        self.publish_codes
    }

    fn names_nothing(&self) -> bool {
        self.model.is_none()
            && self.text.is_empty()
            && self.codes.is_empty()
            && !self.publish_codes
            && self.author.is_none()
    }

    /// The run file with overrides, or the run described by the flags.
    pub fn read(
        &self,
        data: &Path,
        rows: &RowArguments,
        keys: &KeyArguments,
        set: &ChangeArguments,
    ) -> Outcome<WrittenRun> {
        let mut changes: Vec<String> =
            self.epsilon.iter().map(|epsilon| format!("privacy.epsilon={epsilon:?}")).collect();
        let file = is_run_file(data);
        if file && !self.names_nothing() {
            return Err(Failure::arguments(
                "the run file already names the model, data and columns; change its keys with --set",
            ));
        }
        if file {
            keys.check_tuning(WrittenRun::read(data, &set.changes())?.tuning())?;
        } else {
            changes.extend(self.changes(data, set)?);
        }
        changes.extend(rows.changes());
        changes.extend(keys.changes());
        changes.extend(set.changes());
        Ok(match file {
            true => WrittenRun::read(data, &changes)?,
            false => WrittenRun::parse("", &changes)?,
        })
    }

    fn changes(&self, data: &Path, set: &ChangeArguments) -> Outcome<Vec<String>> {
        let has_budget = self.epsilon.is_some()
            || set.changes().iter().any(|change| change.starts_with("privacy."));
        let (Some(model), false, true) = (&self.model, self.text.is_empty(), has_budget) else {
            let needed = [
                ("--model", self.model.is_none()),
                ("--text", self.text.is_empty()),
                ("--epsilon", !has_budget),
            ];
            let lacking: Vec<&str> =
                needed.iter().filter(|(_, lacks)| *lacks).map(|(flag, _)| *flag).collect();
            return Err(Failure::arguments(format!(
                "missing {}; pass them, or a run file with [synthesis]",
                lacking.join(", ")
            )));
        };
        let codes = merged(self.codes.iter().map(|code| Code::parse(code)))?;
        let mut changes = vec![
            format!("model.{}={}", key_of_model(model), quoted(model)),
            format!("data.train={}", quoted_path(data)),
            "data.task=completion".to_owned(),
            format!(
                "data.prompt={}",
                quoted(&prompt(codes.iter().map(|code| code.column.as_str()))?)
            ),
            format!("data.completion={}", quoted(&completion(&self.text)?)),
            format!("synthesis.codes={{ {} }}", declared(&codes)),
        ];
        changes.extend(self.author.iter().map(|author| format!("data.author={}", quoted(author))));
        if self.publish_codes {
            changes.push("data.publish_labels=true".to_owned());
        }
        Ok(changes)
    }
}

/// A control code: a column, and its values if they are declared.
struct Code {
    column: String,
    values: Vec<String>,
}

impl Code {
    fn parse(text: &str) -> Outcome<Self> {
        let (column, values) = match text.split_once('=') {
            Some((column, values)) => (column, values.split(',').map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        match column.is_empty() {
            true => Err(Failure::arguments(format!(
                "--code {text}: write it as COLUMN=VALUE,VALUE, such as topic=sport,travel"
            ))),
            false => Ok(Self { column: column.to_owned(), values }),
        }
    }
}

/// The codes with the values of all flags that name the same column.
fn merged(flags: impl Iterator<Item = Outcome<Code>>) -> Outcome<Vec<Code>> {
    let mut codes: Vec<Code> = Vec::new();
    for code in flags {
        let code = code?;
        match codes.iter_mut().find(|known| known.column == code.column) {
            Some(known) => known.values.extend(code.values),
            None => codes.push(code),
        }
    }
    Ok(codes)
}

fn declared(codes: &[Code]) -> String {
    let declared = codes.iter().filter(|code| !code.values.is_empty());
    let pairs = declared.map(|code| format!("{} = {}", quoted(&code.column), list(&code.values)));
    pairs.collect::<Vec<_>>().join(", ")
}

/// A column as part of a template.
fn placed(column: &str) -> Outcome<&str> {
    match column.contains(['{', '}']) {
        false => Ok(column),
        true => Err(Failure::arguments(format!(
            "column {column:?} has braces, which templates use; rename it"
        ))),
    }
}

/// The template of prompts: a line for each control code.
pub fn prompt<'a>(codes: impl IntoIterator<Item = &'a str>) -> Outcome<String> {
    let line = |column: &str| -> Outcome<String> {
        let column = placed(column)?;
        Ok(format!("{column}: {{{column}}}\n"))
    };
    let lines: String = codes.into_iter().map(line).collect::<Outcome<_>>()?;
    Ok(if lines.is_empty() { "text:{}".to_owned() } else { lines })
}

/// The template of completions: the text, or a JSON record of several.
pub fn completion(text: &[String]) -> Outcome<String> {
    let [only] = text else {
        let field = |column: &String| -> Outcome<String> {
            let name = serde_json::Value::from(placed(column)?);
            Ok(format!("{name}: {{{column}:json}}"))
        };
        let fields = text.iter().map(field).collect::<Outcome<Vec<_>>>()?;
        return Ok(format!("{{{{{}}}}}", fields.join(", ")));
    };
    placed(only).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone::data::Template;

    #[test]
    fn flags_become_templates() {
        let code = |text: &str| Code::parse(text).unwrap();
        let codes = [code("topic=a,b"), code("tone")];
        assert_eq!(prompt(["topic", "tone"]).unwrap(), "topic: {topic}\ntone: {tone}\n");
        assert_eq!(declared(&codes), "\"topic\" = [\"a\", \"b\"]");
        let repeated = ["topic=a", "tone=x", "topic=b"].map(Code::parse);
        let repeated = merged(repeated.into_iter()).unwrap();
        assert_eq!(declared(&repeated), "\"topic\" = [\"a\", \"b\"], \"tone\" = [\"x\"]");
        assert!(Template::parse_prompt(&prompt([]).unwrap()).unwrap().columns().is_empty());
        let texts = |columns: &[&str]| {
            completion(&columns.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(texts(&["letter"]), "letter");
        let record = texts(&["title", "body"]);
        let values = ["a".to_owned(), "b".to_owned()];
        let filled = Template::parse(&record).unwrap().fill(&values);
        assert_eq!(filled, r#"{"title": "a", "body": "b"}"#);
        assert!(completion(&["a{".to_owned()]).is_err());
        assert!(Code::parse("=a").is_err());
    }
}
