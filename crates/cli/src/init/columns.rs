//! Assigns columns to their roles, by their usual names or by asking the user.

use crate::failure::{Failure, Outcome};
use crate::source::ColumnArguments;
use crate::synthesize::source;
use std::io::{BufRead, IsTerminal, Write};
use undertone_run::TaskName;

/// Usual names of columns.
const TEXT: &[&str] = &[
    "text",
    "sentence",
    "review",
    "content",
    "body",
    "message",
    "comment",
    "document",
    "note",
    "letter",
    "mail",
    "email",
    "tweet",
    "utterance",
    "article",
    "abstract",
    "description",
];
const PAIRS: &[(&str, &str)] = &[
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
];
/// Usual names of a short text that precedes the main text of a row.
const TITLE: &[&str] = &["title", "headline", "subject"];
const LABEL: &[&str] =
    &["label", "class", "category", "sentiment", "topic", "intent", "rating", "stars", "tag", "y"];
const COMPLETIONS: &[(&str, &str)] = &[
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "response"),
    ("instruction", "output"),
    ("input", "output"),
    ("question", "answer"),
    ("source", "target"),
    ("mr", "ref"),
];
const AUTHOR: &[&str] = &[
    "author",
    "author_id",
    "user",
    "user_id",
    "userid",
    "username",
    "sender",
    "customer",
    "customer_id",
    "client",
    "client_id",
    "patient",
    "patient_id",
    "person",
    "speaker",
    "who",
];
/// Names that may refer to an author but are too common to rely on.
const PERHAPS_AUTHOR: &[&str] = &["from", "by", "name", "email", "account", "owner", "writer"];

/// The task and its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    pub task: TaskName,
    pub text: Vec<String>,
    pub label: Option<String>,
    pub prompt: Option<String>,
    pub completion: Option<String>,
    pub messages: Option<String>,
    pub author: Option<String>,
}

/// Source of answers when names are ambiguous.
pub trait Asked {
    /// One of `options`; `None` without a terminal.
    fn choose(&mut self, question: &str, options: &[String]) -> Option<String>;
    /// Yes or no; no without a terminal.
    fn confirm(&mut self, question: &str) -> bool;
}

/// The user at the terminal, if standard input and standard error are one.
pub struct Person;

impl Person {
    fn is_there() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    fn answer(question: &str) -> Option<String> {
        let mut stderr = std::io::stderr();
        write!(stderr, "{question} ").and_then(|()| stderr.flush()).ok()?;
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim().to_owned())
    }
}

impl Asked for Person {
    fn choose(&mut self, question: &str, options: &[String]) -> Option<String> {
        if !Self::is_there() {
            return None;
        }
        loop {
            let answer = Self::answer(&format!("{question} ({}):", options.join(", ")))?;
            if let Some(option) = options.iter().find(|option| **option == answer) {
                return Some(option.clone());
            }
        }
    }

    fn confirm(&mut self, question: &str) -> bool {
        let answer =
            if Self::is_there() { Self::answer(&format!("{question} [y/N]")) } else { None };
        answer.is_some_and(|answer| matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }
}

/// The column of a control code with its values; `None` if texts have no code.
pub struct ControlCode(pub Option<(String, Vec<String>)>);

impl Columns {
    /// Makes the texts completions, and the label, whose names may be written down, their prompt.
    pub fn as_records(&mut self, labels: Option<Vec<String>>) -> Outcome<ControlCode> {
        if self.text.is_empty() {
            return Err(Failure::arguments(
                "--synthesize is for texts, with or without a label: name their column with --text",
            ));
        }
        let code = match (self.label.take(), labels) {
            (None, _) => None,
            (Some(label), Some(labels)) => Some((label, labels)),
            (Some(label), None) => {
                return Err(Failure::arguments(format!(
                    "--synthesize makes the values of {label} public: name them with --labels, or \
                     publish those in the file with --read-labels"
                )));
            }
        };
        self.task = TaskName::Completion;
        self.prompt = Some(source::prompt(code.iter().map(|(column, _)| column.as_str()))?);
        self.completion = Some(source::completion(&std::mem::take(&mut self.text))?);
        Ok(ControlCode(code))
    }

    /// The columns of a file: as given by flags, by their usual names, or as answered on the
    /// terminal.
    pub fn find(
        names: &[String],
        said: &ColumnArguments,
        with_author: bool,
        person: &mut dyn Asked,
    ) -> Outcome<Self> {
        let candidates = Found { names };
        for name in said
            .text
            .iter()
            .chain([&said.label, &said.messages, &said.author].into_iter().flatten())
        {
            // A column of an object within JSON has the object's name before a dot; the first row
            // need not contain it.
            let outer = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
            if !names.contains(name) && !names.iter().any(|known| outer(known) == outer(name)) {
                return Err(Failure::arguments(format!(
                    "the file has no column {name:?}; choose among {names:?}"
                )));
            }
        }
        let author = match &said.author {
            Some(author) => Some(author.clone()),
            // A column within an object is suggested but not chosen automatically.
            None if with_author => candidates.one_of(AUTHOR).filter(|name| !name.contains('.')),
            None => None,
        };
        let pair = candidates.pair(COMPLETIONS);
        let pair = pair.filter(|_| said.text.is_empty() && said.label.is_none());
        let task = match said.task {
            Some(task) => task,
            None if said.prompt.is_some() || said.completion.is_some() => TaskName::Completion,
            None if said.messages.is_some() => TaskName::Chat,
            None if said.label.is_some() || !said.labels.is_empty() => TaskName::Classification,
            None if candidates.one_of(LABEL).is_some() => TaskName::Classification,
            None if names.iter().any(|name| name == MESSAGES) => TaskName::Chat,
            None if pair.is_some() => TaskName::Completion,
            None if names.len() == 1 + usize::from(author.is_some()) => TaskName::LanguageModeling,
            None => ask_for_task(names, person)?,
        };
        let messages = said.messages.clone().filter(|_| task == TaskName::Chat);
        let (text, label, prompt, completion) = (Vec::new(), None, None, None);
        let mut columns = Self { task, text, label, prompt, completion, messages, author };
        match task {
            TaskName::Completion => {
                let (prompt, completion) = pair.unzip();
                let mut get = |said: &Option<String>, usual: Option<String>, flag: &str| match said
                    .clone()
                    .or(usual)
                {
                    Some(name) => Ok(name),
                    None => ask_for(&format!("the {flag}"), &format!("--{flag}"), names, person),
                };
                columns.prompt = Some(get(&said.prompt, prompt, "prompt")?);
                columns.completion = Some(get(&said.completion, completion, "completion")?);
            }
            TaskName::Classification => {
                let label = match said.label.clone().or_else(|| candidates.one_of(LABEL)) {
                    Some(label) => label,
                    None => ask_for("the label", "--label", names, person)?,
                };
                columns.text = match (candidates.pair(PAIRS), candidates.titled(&label)) {
                    _ if !said.text.is_empty() => said.text.clone(),
                    (Some((first, second)), _) | (None, Some((first, second))) => {
                        vec![first, second]
                    }
                    (None, None) => vec![candidates.text(&columns, Some(&label), person)?],
                };
                columns.label = Some(label);
            }
            TaskName::Chat if columns.messages.is_some() => {}
            TaskName::Chat if names.iter().any(|name| name == MESSAGES) => {}
            TaskName::Chat => {
                return Err(Failure::arguments(format!(
                    "the chat task needs a column {MESSAGES:?}, but the file has {}; name another \
                     with --messages",
                    names.join(", ")
                )));
            }
            TaskName::LanguageModeling | TaskName::MaskedLanguageModeling => {
                columns.text = match said.text.as_slice() {
                    [] => vec![candidates.text(&columns, None, person)?],
                    said => said.to_vec(),
                };
            }
        }
        Ok(columns)
    }
}

/// A column that may name the author of a row, if none was chosen.
pub fn perhaps_author(names: &[String], columns: &Columns) -> Option<String> {
    let candidates = Found { names };
    let used: Vec<&String> = columns.text.iter().chain(&columns.label).collect();
    let all = AUTHOR.iter().chain(PERHAPS_AUTHOR);
    let mut likely =
        all.filter_map(|name| candidates.named(name)).filter(|name| !used.contains(&name));
    likely.next().filter(|_| columns.author.is_none())
}

struct Found<'a> {
    names: &'a [String],
}

impl Found<'_> {
    /// The file's name for a column, ignoring case; otherwise that of a column within an object.
    fn named(&self, usual: &str) -> Option<String> {
        let only = |is: &dyn Fn(&str) -> bool| {
            let mut same = self.names.iter().filter(|name| is(&name.to_lowercase()));
            same.next().filter(|_| same.next().is_none()).cloned()
        };
        only(&|name| name == usual)
            .or_else(|| only(&|name| name.rsplit_once('.').is_some_and(|(_, end)| end == usual)))
    }

    /// A title and the text that follows it.
    fn titled(&self, label: &String) -> Option<(String, String)> {
        let is_other = |name: &String| name != label;
        let title = self.one_of(TITLE).filter(is_other)?;
        let text = self.one_of(TEXT).filter(is_other)?;
        Some((title, text))
    }

    /// The column with a usual name, if there is exactly one.
    fn one_of(&self, usual: &[&str]) -> Option<String> {
        let mut present = usual.iter().filter_map(|name| self.named(name));
        present.next().filter(|_| present.next().is_none())
    }

    fn pair(&self, usual: &[(&str, &str)]) -> Option<(String, String)> {
        usual.iter().find_map(|(first, second)| Some((self.named(first)?, self.named(second)?)))
    }

    /// The text column: by its name, or the only remaining column.
    fn text(
        &self,
        columns: &Columns,
        label: Option<&String>,
        person: &mut dyn Asked,
    ) -> Outcome<String> {
        let others = [label, columns.author.as_ref()];
        let left: Vec<&String> =
            self.names.iter().filter(|name| !others.contains(&Some(*name))).collect();
        match (self.one_of(TEXT), left.as_slice()) {
            (Some(text), _) => Ok(text),
            (None, [only]) => Ok((*only).clone()),
            _ => ask_for("the text", "--text", self.names, person),
        }
    }
}

fn ask_for(what: &str, flag: &str, names: &[String], person: &mut dyn Asked) -> Outcome<String> {
    person.choose(&format!("Which column is {what}?"), names).ok_or_else(|| {
        Failure::arguments(format!(
            "it is unclear which column is {what} ({}); pass {flag}",
            names.join(", ")
        ))
    })
}

/// The usual column of conversations.
const MESSAGES: &str = "messages";

fn ask_for_task(names: &[String], person: &mut dyn Asked) -> Outcome<TaskName> {
    let tasks = [
        ("classification", TaskName::Classification),
        ("language-modeling", TaskName::LanguageModeling),
        ("completion", TaskName::Completion),
    ];
    let options: Vec<String> = tasks.iter().map(|(name, _)| (*name).to_owned()).collect();
    let chosen = person.choose("What should the model learn?", &options);
    let task = tasks.iter().find(|(name, _)| Some(*name) == chosen.as_deref());
    task.map(|(_, task)| *task).ok_or_else(|| {
        Failure::arguments(format!(
            "it is unclear what to learn from these columns ({}); pass --label, --prompt and \
             --completion, or --task",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;
    impl Asked for Nobody {
        fn choose(&mut self, _: &str, _: &[String]) -> Option<String> {
            None
        }
        fn confirm(&mut self, _: &str) -> bool {
            false
        }
    }

    /// Gives the same answer to every question.
    struct Says(&'static str);
    impl Asked for Says {
        fn choose(&mut self, _: &str, options: &[String]) -> Option<String> {
            options.iter().find(|option| **option == self.0).cloned()
        }
        fn confirm(&mut self, _: &str) -> bool {
            true
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn found(columns: &[&str]) -> Outcome<Columns> {
        Columns::find(&names(columns), &ColumnArguments::default(), true, &mut Nobody)
    }

    #[test]
    fn usual_names_are_enough() {
        let letters = found(&["id", "Text", "topic", "customer"]).unwrap();
        assert_eq!(letters.task, TaskName::Classification);
        assert_eq!((letters.text, letters.label), (names(&["Text"]), Some("topic".into())));
        assert_eq!(letters.author, Some("customer".into()));
        let pair = found(&["idx", "premise", "hypothesis", "label"]).unwrap();
        assert_eq!(pair.text, ["premise", "hypothesis"]);
        let e2e = found(&["mr", "ref"]).unwrap();
        assert_eq!((e2e.task, e2e.completion), (TaskName::Completion, Some("ref".into())));
        let alone = found(&["diary"]).unwrap();
        assert_eq!((alone.task, alone.text), (TaskName::LanguageModeling, names(&["diary"])));
        let titled = found(&["id", "Title", "text", "label"]).unwrap();
        assert_eq!(titled.text, ["Title", "text"]);
        let mail = names(&["headers.From", "headers.To", "body", "label"]);
        let nothing = ColumnArguments::default();
        let found_in = Columns::find(&mail, &nothing, true, &mut Nobody).unwrap();
        assert_eq!((&found_in.text, &found_in.author), (&names(&["body"]), &None));
        assert_eq!(perhaps_author(&mail, &found_in), Some("headers.From".into()));
        let odd = found(&["foo", "label"]).unwrap();
        assert_eq!(odd.text, ["foo"], "the only column that is left");
    }

    #[test]
    fn what_is_not_clear_is_asked_or_refused_with_the_flag() {
        let refused = |columns: &[&str]| found(columns).unwrap_err().to_string();
        assert!(refused(&["foo", "bar", "label"]).contains("--text"));
        assert!(refused(&["text", "review", "label"]).contains("--text"));
        assert!(refused(&["foo", "bar"]).contains("--task"));
        let said = ColumnArguments { label: Some("no".into()), ..ColumnArguments::default() };
        let error = Columns::find(&names(&["a"]), &said, true, &mut Nobody).unwrap_err();
        assert!(error.to_string().contains("no column \"no\""), "{error}");
        let asked = names(&["foo", "bar", "label"]);
        let nothing = ColumnArguments::default();
        let answered = Columns::find(&asked, &nothing, true, &mut Says("bar")).unwrap();
        assert_eq!(answered.text, ["bar"]);
    }
}
