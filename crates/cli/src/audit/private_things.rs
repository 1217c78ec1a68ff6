//! Arguments that define PII, and the training texts of a run.

use super::run_folder::AuditedRun;
use crate::failure::{Failure, Outcome};
use clap::Args;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use undertone::audit::spans::names::Names;
use undertone::audit::spans::patterns::Patterns;
use undertone::audit::spans::tagger::Tagger;
use undertone::audit::spans::{EntityKind, Finder, Span, Together};
use undertone::data::{format_of, read};
use undertone::model::TaskHead;
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::train::examples_of_rows;

/// Kinds of PII to look for, and how to find them.
#[derive(Args, Default)]
pub struct FinderArguments {
    /// Comma-separated kinds of PII to look for [default: all]
    #[arg(long = "kind", value_enum, value_delimiter = ',', value_name = "KIND")]
    kinds: Vec<EntityKind>,
    #[command(flatten)]
    people: PeopleArguments,
    /// Column of the training file that lists the PII of each text, in byte offsets: [{"start": 10,
    /// "end": 21, "kind": "person"}, …]
    #[arg(long, value_name = "COLUMN")]
    spans: Option<String>,
}

/// How to find names of people.
#[derive(Args, Default)]
pub struct PeopleArguments {
    /// File of names, one per line: a single word is a given name, matched if a capitalized surname
    /// follows; several words are a full name, matched in any case
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Folder or Hugging Face Hub name of a named-entity model (token classification with B-PER and
    /// I-PER)
    #[arg(long, value_name = "DIR|NAME")]
    tagger: Option<String>,
}

impl PeopleArguments {
    fn is_given(&self) -> bool {
        self.names.is_some() || self.tagger.is_some()
    }

    /// Finder of names, e-mail addresses, phone numbers and postal addresses.
    pub fn finder(&self) -> Outcome<Together> {
        let mut finders: Vec<Box<dyn Finder>> = vec![Box::new(Patterns::default())];
        finders.extend(self.listed()?);
        finders.push(self.tagger()?);
        Ok(Together(finders))
    }

    /// Finder of the names in the file.
    fn listed(&self) -> Outcome<Option<Box<dyn Finder>>> {
        let Some(file) = &self.names else { return Ok(None) };
        let list = undertone_run::read_settings(file)
            .map_err(|e| Failure::arguments(format!("{} cannot be read: {e}", file.display())))?;
        if list.trim().is_empty() {
            return Err(Failure::arguments(format!("{} names nobody", file.display())));
        }
        Ok(Some(Box::new(Names::from_list(list.lines()))))
    }

    /// The named-entity model, or the list of given names.
    fn tagger(&self) -> Outcome<Box<dyn Finder>> {
        let Some(name) = &self.tagger else { return Ok(Box::new(Names::default())) };
        let folder = locate(name)?;
        let task_head = Some(TaskHead::TokenClassification);
        let model = load(&folder, &LoadOptions { task_head, ..LoadOptions::default() })?;
        if !model.fresh.is_empty() {
            return Err(Failure::arguments(format!(
                "{name} lacks {}, so it cannot be used as a tagger; use a model trained for token \
                 classification",
                model.fresh.join(", ")
            )));
        }
        let tokenizer = model.tokenizer(&folder, model.network.max_positions.min(512))?;
        Ok(Box::new(Tagger::new(model, tokenizer)?))
    }
}

/// PII spans of each text, if the file provides them.
type GivenSpans = Option<Vec<Vec<Span>>>;

/// Training texts with their PII spans.
pub struct PrivateTexts {
    pub texts: Vec<String>,
    pub spans: Vec<Vec<Span>>,
}

impl FinderArguments {
    pub fn kinds(&self) -> Vec<EntityKind> {
        if self.kinds.is_empty() { EntityKind::ALL.to_vec() } else { self.kinds.clone() }
    }

    /// Whether any of the arguments was given.
    pub fn is_given(&self) -> bool {
        let Self { kinds, people, spans } = self;
        !kinds.is_empty() || people.is_given() || spans.is_some()
    }

    /// The run's training texts, and a PII finder for generated texts. If the data provide spans,
    /// the finder also searches for the people named in them.
    pub fn read(&self, run: &AuditedRun) -> Outcome<(PrivateTexts, Together)> {
        let (texts, given) = self.texts(run)?;
        let mut finders: Vec<Box<dyn Finder>> = vec![Box::new(Patterns::default())];
        finders.extend(self.people.listed()?);
        if let Some(given) = &given {
            let people = texts.iter().zip(given).flat_map(|(text, spans)| {
                spans
                    .iter()
                    .filter(|span| span.kind == EntityKind::Person)
                    .map(|span| &text[span.range()])
            });
            finders.push(Box::new(Names::from_list(people)));
        }
        finders.push(self.people.tagger()?);
        let finder = Together(finders);
        let spans = match given {
            Some(spans) => spans,
            None => finder.find(&texts)?,
        };
        Ok((PrivateTexts { texts, spans }, finder))
    }

    pub fn texts(&self, run: &AuditedRun) -> Outcome<(Vec<String>, GivenSpans)> {
        let task = run.plan.task().without_label();
        if task.reads_nested() {
            return Err(Failure::arguments(
                "searching for private spans needs text columns, but this run trained on \
                 conversations",
            ));
        }
        let file = &run.plan.data.train;
        let mut columns = task.columns();
        let text_columns = columns.len();
        columns.extend(self.spans.as_deref());
        if self.spans.is_some() && text_columns > 1 {
            return Err(Failure::arguments("--spans needs a run with a single text column"));
        }
        let (mut texts, mut spans) = (Vec::new(), Vec::new());
        let format = format_of(file, run.plan.data.format)?;
        let seen = run.reader()?;
        let examples = examples_of_rows(&run.plan)?;
        for row in read::rows_with_nested(file, format, &columns, run.plan.data.on_bad_row)? {
            let row = row?;
            // Rows excluded by data.most_per_author or data.hold_out were not trained on.
            let Some(&examples) = examples.get(&row.line) else { continue };
            let mut text = row.values[..text_columns].join(" ");
            text.truncate(seen.bytes(&text, examples)?);
            if self.spans.is_some() {
                let whole = &row.values[0];
                let mut given = parse_spans(&row.values[text_columns], whole, file, row.line)?;
                given.retain(|span| span.end <= text.len());
                spans.push(given);
            }
            texts.push(text);
        }
        Ok((texts, self.spans.is_some().then_some(spans)))
    }
}

fn parse_spans(json: &str, text: &str, file: &Path, line: u64) -> Outcome<Vec<Span>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Given {
        start: usize,
        end: usize,
        kind: EntityKind,
    }
    let wrong = |why: String| Failure::arguments(format!("{}, line {line}: {why}", file.display()));
    let given: Vec<Given> =
        serde_json::from_str(json).map_err(|e| wrong(format!("the spans cannot be read: {e}")))?;
    let mut spans = Vec::new();
    for Given { start, end, kind } in given {
        if start >= end || text.get(start..end).is_none() {
            return Err(wrong(format!("a span from byte {start} to {end} does not fit its text")));
        }
        spans.push(Span { start, end, kind });
    }
    spans.sort_by_key(|span| span.start);
    Ok(spans)
}
