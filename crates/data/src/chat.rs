//! Conversations, rendered with the model's own chat template.
//!
//! The template comes with the model (`chat_template.jinja`, or `chat_template` in
//! tokenizer_config.json) and is a program. Its instructions, recursion depth, output length,
//! memory and time are bounded, and it has no access to the machine.

use super::error::{Error, Result};
use super::special;
use crate::bounded::{Stopped, within};
use minijinja::value::Value as Jinja;
use minijinja::{Environment, ErrorKind, context};
use regex::Regex;
use serde_json::Value;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Name of the template in its environment.
const NAME: &str = "chat";
/// Maximum number of instructions per rendering; a turn takes about a hundred.
const INSTRUCTIONS: u64 = 2_000_000;
/// Maximum number of turns in a conversation: the template runs twice per assistant turn.
const MOST_TURNS: usize = 1024;
/// Maximum output of a template in bytes: a constant, plus a multiple of the conversation's size.
const OUTPUT: (usize, usize) = (1 << 20, 16);
/// Maximum memory for parsing a template or rendering a conversation, in bytes: a constant plus a
/// multiple of the text's size, capped at the last number.
const MEMORY: (usize, usize, usize) = (8 << 20, 64, 64 << 20);
/// Maximum time for the same. The number of instructions does not bound it, since a single
/// instruction can search a long text.
const TIME: Duration = Duration::from_secs(60);
/// The role whose turns are learned.
const ASSISTANT: &str = "assistant";

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub text: String,
    /// The assistant's turns as byte ranges of the text, from the end of their heading to their
    /// end.
    pub assistant: Vec<Range<usize>>,
}

/// A model's chat template.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    template: Arc<Template>,
    file: PathBuf,
    /// Why it failed to render a conversation within its bounds. That work may still hold its
    /// memory, so no further rendering is started.
    stopped: OnceLock<String>,
}

/// Why a conversation cannot be rendered.
#[derive(Debug)]
enum Refusal {
    Conversation(String),
    Template(String),
}

impl ChatTemplate {
    /// Loads the template of a model folder.
    pub fn load(folder: &Path) -> Result<Self> {
        let own = folder.join("chat_template.jinja");
        let config = folder.join("tokenizer_config.json");
        let (source, file) = match undertone_settings::read_settings(&own) {
            Ok(source) => (source, own),
            Err(_) => (stated(&config)?, config),
        };
        let [bos, eos, pad] = ["bos_token", "eos_token", "pad_token"];
        let token = |role: &str| special::stated(folder, role);
        Self::new(source, file, [token(bos)?, token(eos)?, token(pad)?])
    }

    fn new(source: String, file: PathBuf, tokens: [Option<String>; 3]) -> Result<Self> {
        // Constants are evaluated while the template is parsed.
        let read = within(memory(source.len()), TIME, move || Template::new(source, tokens));
        match read.unwrap_or_else(|stopped| Err(excess(&stopped))) {
            Ok(template) => {
                Ok(Self { template: Arc::new(template), file, stopped: OnceLock::new() })
            }
            Err(reason) => Err(Error::ChatTemplate { file, reason }),
        }
    }

    /// Renders a conversation: a list of messages, each with a role and a content. The inner error
    /// says what is wrong with the conversation.
    pub fn lay_out(&self, messages: &str) -> Result<std::result::Result<Conversation, String>> {
        let owned = messages.to_owned();
        self.bounded(messages.len(), move |template| template.lay_out(&owned))
    }

    /// Renders the question of a user, up to the heading of the answer. The inner error says why
    /// the template refuses it.
    pub fn ask(&self, question: &str) -> Result<std::result::Result<String, String>> {
        let messages = [serde_json::json!({ "role": "user", "content": question })];
        self.bounded(question.len(), move |template| template.render(&messages, true))
    }

    /// Runs the template on `bytes` bytes of text, within bounds.
    fn bounded<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Template) -> std::result::Result<T, Refusal> + Send + 'static,
    ) -> Result<std::result::Result<T, String>> {
        let unusable = |reason: &String| Error::ChatTemplate {
            file: self.file.clone(),
            reason: reason.clone(),
        };
        if let Some(reason) = self.stopped.get() {
            return Err(unusable(reason));
        }
        let template = Arc::clone(&self.template);
        let rendered = within(memory(bytes), TIME, move || work(&template));
        match rendered.unwrap_or_else(|stopped| Err(Refusal::Template(excess(&stopped)))) {
            Ok(result) => Ok(Ok(result)),
            Err(Refusal::Conversation(reason)) => Ok(Err(reason)),
            Err(Refusal::Template(reason)) => Err(unusable(self.stopped.get_or_init(|| reason))),
        }
    }
}

/// Formats prompts as questions of a user, with the chat template of a model.
#[derive(Debug)]
pub struct ChatPrompts(ChatTemplate);

impl ChatPrompts {
    /// Loads the chat template of a model folder.
    pub fn load(folder: &Path) -> Result<Self> {
        Ok(Self(ChatTemplate::load(folder)?))
    }

    /// The text that the model continues with its answer.
    pub fn ask(&self, question: &str) -> Result<String> {
        let refused = |reason| Error::ChatTemplate { file: self.0.file.clone(), reason };
        self.0.ask(question)?.map_err(refused)
    }
}

/// Memory bound for a text of this many bytes.
fn memory(bytes: usize) -> usize {
    bytes.saturating_mul(MEMORY.1).saturating_add(MEMORY.0).min(MEMORY.2)
}

fn excess(stopped: &Stopped) -> String {
    match stopped {
        Stopped::Memory => "it takes far more memory than the conversation".into(),
        Stopped::Time => format!("it takes more than {} seconds", TIME.as_secs()),
        Stopped::Broken(reason) => one_line(reason),
    }
}

/// A parsed template.
#[derive(Debug)]
struct Template {
    environment: Environment<'static>,
    /// Special tokens that templates refer to.
    tokens: [Option<String>; 3],
}

impl Template {
    fn new(source: String, tokens: [Option<String>; 3]) -> std::result::Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(INSTRUCTIONS));
        environment.set_recursion_limit(64);
        environment.set_unknown_method_callback(method);
        environment.add_function(
            "raise_exception",
            |message: String| -> std::result::Result<Jinja, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        // Blocks that mark the assistant's turns, which only transformers supports.
        let source = match Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}") {
            Ok(marks) => marks
                .replace_all(&source, |captures: &regex::Captures| {
                    let word = if captures.get(2).is_some() { "endif" } else { "if true" };
                    format!("{{%{} {word} {}%}}", &captures[1], &captures[3])
                })
                .into_owned(),
            Err(_) => source,
        };
        environment.add_template_owned(NAME, source).map_err(|e| message_of(&e))?;
        Ok(Self { environment, tokens })
    }

    fn lay_out(&self, messages: &str) -> std::result::Result<Conversation, Refusal> {
        let wrong = |reason: &str| Err(Refusal::Conversation(reason.into()));
        let messages: Vec<Value> = match serde_json::from_str(messages) {
            Ok(Value::Array(messages)) => messages,
            _ => return wrong("the messages are not a list of objects with role and content"),
        };
        if messages.len() > MOST_TURNS {
            return wrong(&format!("the conversation has more than {MOST_TURNS} turns"));
        }
        let role = |message: &Value| message["role"].as_str().map(str::to_owned);
        let roles: Option<Vec<String>> = messages.iter().map(role).collect();
        let Some(roles) = roles.filter(|roles| !roles.is_empty()) else {
            return wrong("a message has no role");
        };
        let text = self.render(&messages, false)?;
        let mut assistant = Vec::new();
        for (i, _) in roles.iter().enumerate().filter(|(_, role)| *role == ASSISTANT) {
            // With a generation prompt, the rendering ends with the heading of the answer.
            let before = self.render(&messages[..i], true)?;
            let after = match i + 1 == messages.len() {
                true => text.clone(),
                false => self.render(&messages[..=i], false)?,
            };
            // Some templates render a turn differently if other turns follow; it then only serves
            // as context.
            if text.starts_with(&after) && after.starts_with(&before) && before.len() < after.len()
            {
                assistant.push(before.len()..after.len());
            }
        }
        match assistant.is_empty() {
            true => wrong("no assistant turn can be separated from the turns before it"),
            false => Ok(Conversation { text, assistant }),
        }
    }

    fn render(&self, messages: &[Value], asks: bool) -> std::result::Result<String, Refusal> {
        let wrong = |reason: &str| Err(Refusal::Conversation(reason.into()));
        let bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
        let mut out = Bounded { text: Vec::new(), most: OUTPUT.0 + OUTPUT.1 * bytes };
        let [bos, eos, pad] = &self.tokens;
        let with = context! {
            messages => Jinja::from_serialize(messages),
            add_generation_prompt => asks,
            bos_token => bos.as_deref().unwrap_or_default(),
            eos_token => eos.as_deref().unwrap_or_default(),
            pad_token => pad.as_deref().unwrap_or_default(),
        };
        let rendered = self
            .environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(with, &mut out).map(drop));
        match rendered {
            Ok(()) => match String::from_utf8(out.text) {
                Ok(text) => Ok(text),
                Err(_) => wrong("the chat template produces no text"),
            },
            Err(e) if e.kind() == ErrorKind::OutOfFuel => {
                Err(Refusal::Template("it does not terminate".into()))
            }
            Err(e) if e.kind() == ErrorKind::WriteFailure => {
                wrong("the chat template produces far more text than the conversation has")
            }
            // Omits anything that the error quotes from the template or the conversation.
            Err(e) => wrong(&format!("the chat template rejects it: {}", message_of(&e))),
        }
    }
}

/// Python methods. `count` is our own: the library's version never terminates for an empty string,
/// and for a list times a number takes as long as the template likes. Neither consumes instructions
/// or memory.
fn method(
    state: &minijinja::State,
    value: &Jinja,
    name: &str,
    arguments: &[Jinja],
) -> std::result::Result<Jinja, minijinja::Error> {
    let items = value.len().unwrap_or(0) as u64;
    match (name, value.as_str(), arguments) {
        // As in Python, an empty string occurs before and after each character.
        ("count", Some(text), [what]) if what.as_str() == Some("") => {
            Ok(Jinja::from(text.chars().count() + 1))
        }
        ("count", None, _) if items > INSTRUCTIONS => {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, "a list is too long to count"))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

/// `chat_template` in tokenizer_config.json: a string, or a list of named ones.
fn stated(config: &Path) -> Result<String> {
    let missing = || Error::ChatTemplate {
        file: config.into(),
        reason: "there is none; use a chat model, or the completion task with a template".into(),
    };
    let text = undertone_settings::read_settings(config).map_err(|_| missing())?;
    let keys: Value = serde_json::from_str(&text)
        .map_err(|e| Error::ChatTemplate { file: config.into(), reason: e.to_string() })?;
    let template = match &keys["chat_template"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(all) => {
            let named = all.iter().find(|entry| entry["name"] == "default");
            named.and_then(|entry| entry["template"].as_str()).map(str::to_owned)
        }
        _ => None,
    };
    template.ok_or_else(missing)
}

/// The message of an error.
fn message_of(error: &minijinja::Error) -> String {
    one_line(&error.detail().map_or_else(|| error.kind().to_string(), str::to_owned))
}

/// Shortens a text to a single line of limited length.
fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(160).collect()
}

/// Writer for a template's output, up to a bound.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.most {
            return Err(std::io::Error::other("too much"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ChatML, the conversation format of Qwen2 and SmolLM2.
    const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
         message['content'] + '<|im_end|>' + '\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    const TURNS: &str = r#"[{"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"}, {"role": "user", "content": "more"},
        {"role": "assistant", "content": "no"}]"#;

    /// The rendered conversation, or why it cannot be rendered.
    fn laid_out(
        template: &ChatTemplate,
        messages: &str,
    ) -> std::result::Result<Conversation, String> {
        template.lay_out(messages).unwrap_or_else(|e| Err(e.to_string()))
    }

    fn template(source: &str) -> Result<ChatTemplate> {
        ChatTemplate::new(source.to_owned(), "chat_template.jinja".into(), [None, None, None])
    }

    #[test]
    fn a_question_ends_with_the_heading_of_its_answer() {
        let asked = template(CHATML).unwrap().ask("hi").unwrap().unwrap();
        assert_eq!(asked, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn the_assistants_turns_are_found() {
        let conversation = laid_out(&template(CHATML).unwrap(), TURNS).unwrap();
        assert!(
            conversation
                .text
                .starts_with("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        );
        let turns: Vec<&str> =
            conversation.assistant.iter().map(|at| &conversation.text[at.clone()]).collect();
        assert_eq!(turns, ["hello<|im_end|>\n", "no<|im_end|>\n"]);
        // The marks by which transformers locates assistant turns change nothing.
        let marked = CHATML
            .replace("messages %}", "messages %}{%- generation -%}")
            .replace("{% endfor %}", "{%- endgeneration %}{% endfor %}");
        assert_eq!(laid_out(&template(&marked).unwrap(), TURNS).unwrap(), conversation);
    }

    /// A template that omits reasoning from earlier turns: only the last turn is learned.
    #[test]
    fn turns_that_change_with_what_follows_are_context() {
        let source = "{% for m in messages %}{{ '<' + m.role + '>' }}\
             {% if m.role == 'assistant' and loop.last %}{{ 'think ' }}{% endif %}{{ m.content }}\
             {% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";
        let conversation = laid_out(&template(source).unwrap(), TURNS).unwrap();
        let turns: Vec<&str> =
            conversation.assistant.iter().map(|at| &conversation.text[at.clone()]).collect();
        assert_eq!(turns, ["think no"]);
    }

    #[test]
    fn methods_of_python_and_tojson_work() {
        let source = "{% for m in messages %}{{ m['content'].strip().upper() }}{{ m | tojson }}\
             {% endfor %}{% if add_generation_prompt %}{% endif %}";
        let turn = r#"[{"role": "assistant", "content": " a "}]"#;
        let conversation = laid_out(&template(source).unwrap(), turn).unwrap();
        assert!(conversation.text.starts_with("A{\"content\":\" a \""), "{}", conversation.text);
    }

    /// As in Python. With the library's method, the first of these would never terminate.
    #[test]
    fn counting_comes_to_an_end() {
        let turn = r#"[{"role": "assistant", "content": "x"}]"#;
        for (source, count) in [
            ("'aé'.count('')", "3"),
            ("''.count('')", "1"),
            ("'abab'.count('ab')", "2"),
            ("[1, 2, 1].count(1)", "2"),
        ] {
            let source = format!("{{% for m in messages %}}{{{{ {source} }}}}{{% endfor %}}");
            assert_eq!(
                laid_out(&template(&source).unwrap(), turn).unwrap().text,
                count,
                "{source}"
            );
        }
        let source = "{{ ([1] * 10 ** 15).count(2) }}";
        let message = laid_out(&template(source).unwrap(), turn).unwrap_err();
        assert!(message.contains("too long to count"), "{message}");
    }

    #[test]
    fn templates_that_loop_recurse_or_write_too_much_are_stopped() {
        let long = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        let said = |source: &str| laid_out(&template(source).unwrap(), TURNS).unwrap_err();
        assert!(said(long).contains("does not terminate"), "{}", said(long));
        let deep = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}";
        assert!(said(deep).contains("rejects it"), "{}", said(deep));
        let loud = "{% for a in range(9999) %}{{ 'many words ' * 99 }}{% endfor %}";
        assert!(said(loud).contains("far more"), "{}", said(loud));
        let refusing = "{{ raise_exception('roles must alternate') }}";
        assert!(said(refusing).contains("roles must alternate"), "{}", said(refusing));
        assert!(template("{% for %}").is_err(), "a broken template");
        assert!(laid_out(&template("{% include 'other' %}").unwrap(), TURNS).is_err());
    }

    /// None of these takes many instructions or writes any output.
    #[test]
    fn templates_that_take_too_much_memory_are_stopped() {
        let twice = |step: &str| format!("{{% set s = 'ab' %}}{}", step.repeat(60));
        let often = |step: &str| {
            let begin = "{% set ns = namespace(s='ab') %}{% for i in range(9999) %}";
            format!("{begin}{step}{{% endfor %}}")
        };
        for source in [
            twice("{% set s = s ~ s %}"),
            twice("{% set s = s + s %}"),
            twice("{% set s = s * 1000 %}"),
            twice("{% set s %}{{ s }}{{ s }}{% endset %}"),
            twice("{% set s = (s, s) | join(s) %}"),
            twice("{% set s = s.join([s, s]) %}"),
            twice("{% set s = s | replace('b', s) %}"),
            twice("{% set s = s.replace('b', s) %}"),
            twice("{% set s = '%s%s' | format(s, s) %}"),
            twice("{% set s = '{}{}'.format(s, s) %}"),
            twice("{% set s = s | tojson | tojson %}"),
            twice("{% set s = s | list + s | list %}") + "{% set s = s | list %}",
            twice("{% set s = [s, s] %}") + "{% set s %}{{ s }}{% endset %}",
            twice("{% set s = {'a': s, 'b': s} %}") + "{% set s = s | string %}",
            often("{% set ns.s = ns.s ~ ns.s %}"),
            often("{% set ns.s = [ns.s, messages[0].content * 9999] %}"),
            often(
                "{% set ns.s %}{{ ns.s }}{% for j in range(9999) %}longer{% endfor %}{% endset %}",
            ),
            "{% macro f(s, n) %}{% if n %}{{ f(s ~ s, n - 1) }}{% endif %}{{ s }}{% endmacro %}\
             {% set s = f('many words', 15) ~ f('many words' * 99999, 9) %}"
                .to_owned(),
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}many words{% endif %}\
             {% endmacro %}{% set s = f(14) %}{% set s = s * 99 ~ f(14) %}"
                .to_owned(),
            "{% set s = messages[0].content * 40000000 %}".to_owned(),
            "{% set s = 'a' | indent(10 ** 9, true) %}".to_owned(),
            "{% set s = [1] | tojson(indent=10 ** 9) %}".to_owned(),
            "{% set s = '%999999999d' | format(1) %}".to_owned(),
            "{% set s = '{:999999999}'.format(1) %}".to_owned(),
            "{% set s = range(9999) | batch(10 ** 9, 'a') | list %}".to_owned(),
        ] {
            let outcome = template(&source).map(|template| laid_out(&template, TURNS).unwrap_err());
            let said = outcome.unwrap_or_else(|e| e.to_string());
            let known = ["far more memory", "rejects it"];
            assert!(known.iter().any(|about| said.contains(about)), "{source}: {said}");
        }
        // Constants are evaluated before the first conversation.
        let constant = format!("{{% set s = {} %}}", ["'a' * 90000000"; 9].join(" ~ "));
        let said = template(&constant).unwrap_err().to_string();
        assert!(said.contains("far more memory"), "{said}");
    }

    /// Values nested in values, which are printed, compared and dropped by recursion: as deeply as
    /// memory allows, and deeper.
    #[test]
    fn deep_values_do_not_overflow_the_stack() {
        let begin = "{% set ns = namespace(s='a', t='a') %}{% for i in range(9999) %}";
        let deep = |step: &str, then: &str, times: usize| {
            let step = step.repeat(times);
            let source = format!("{begin}{step}{{% endfor %}}{then}");
            laid_out(&template(&source).unwrap(), TURNS)
        };
        for times in [1, 2, 40] {
            for step in [
                "{% set ns.s = [ns.s] %}",
                "{% set ns.s = {'a': ns.s} %}",
                "{% set ns.s = ns.s | batch(1) %}",
                "{% set ns.s = namespace(s=ns.s) %}",
            ] {
                for then in ["", "{% set s %}{{ ns.s }}{% endset %}", "{{ ns.s | tojson }}"] {
                    let said = deep(step, then, times).unwrap_err();
                    assert!(times < 40 || said.contains("far more memory"), "{step}: {said}");
                }
            }
            let both = "{% set ns.s = [ns.s] %}{% set ns.t = [ns.t] %}";
            assert!(deep(both, "{{ ns.s == ns.t }}", times).is_err());
        }
        let long = format!("{{{{ {} }}}}", vec!["x"; 10_000].join(" + "));
        let outcome = template(&long).map(|template| laid_out(&template, TURNS));
        assert!(!matches!(outcome, Ok(Ok(_))));
    }

    /// Work that was stopped keeps its memory, so no second run is started.
    #[test]
    fn a_template_that_was_stopped_is_not_used_again() {
        let source = "{% if messages[0].content == 'much' %}\
             {% set s = messages[0].content * 20000000 %}{% endif %}";
        let template = template(&(source.to_owned() + CHATML)).unwrap();
        assert!(laid_out(&template, TURNS).is_ok());
        let said = laid_out(&template, &TURNS.replace("hi", "much")).unwrap_err();
        assert!(said.contains("far more memory"), "{said}");
        assert_eq!(laid_out(&template, TURNS).unwrap_err(), said);
    }

    /// A long conversation stays within the bounds.
    #[test]
    fn long_conversations_are_laid_out() {
        let turn = |i: usize| {
            let role = if i.is_multiple_of(2) { "user" } else { "assistant" };
            serde_json::json!({ "role": role, "content": "words ".repeat(100) })
        };
        let turns: Vec<Value> = (0..200).map(turn).collect();
        let conversation =
            laid_out(&template(CHATML).unwrap(), &serde_json::to_string(&turns).unwrap());
        assert_eq!(conversation.unwrap().assistant.len(), 100);
        let words = "words ".repeat(200_000);
        let long = TURNS.replace("hi", &words).replace("no", &words);
        assert!(laid_out(&template(CHATML).unwrap(), &long).is_ok());
    }

    #[test]
    fn bad_conversations_are_refused() {
        let template = template(CHATML).unwrap();
        for (messages, about) in [
            ("hi", "not a list"),
            ("{}", "not a list"),
            ("[]", "no role"),
            (r#"[{"content": "hi"}]"#, "no role"),
            (r#"[{"role": "user", "content": "hi"}]"#, "no assistant turn"),
            (r#"[{"role": "assistant"}]"#, "rejects it"),
        ] {
            let error = laid_out(&template, messages).unwrap_err();
            assert!(error.contains(about), "{messages}: {error}");
        }
    }
}
