//! Conversations, laid out by the model's own chat template.
//!
//! The template comes with the model (`chat_template.jinja`, or `chat_template` in
//! tokenizer_config.json) and is a program: it gets so many instructions, so deep a recursion and
//! so long an output, and none of the machine.

use super::error::{Error, Result};
use super::special;
use minijinja::value::Value as Jinja;
use minijinja::{Environment, ErrorKind, context};
use regex::Regex;
use serde_json::Value;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Name of the template in its environment.
const NAME: &str = "chat";
/// Instructions of one rendering: a turn takes about a hundred.
const INSTRUCTIONS: u64 = 2_000_000;
/// The most turns of a conversation: the template runs twice for each of the assistant's.
const MOST_TURNS: usize = 1024;
/// The most that a template may write, in bytes: so much, and so many times the conversation.
const OUTPUT: (usize, usize) = (1 << 20, 16);
/// The role whose turns are learnt.
const ASSISTANT: &str = "assistant";

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub text: String,
    /// The assistant's turns: bytes of the text, from after their heading to their end.
    pub assistant: Vec<Range<usize>>,
}

/// A model's chat template.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    /// Special tokens that templates name.
    tokens: [Option<String>; 3],
}

impl ChatTemplate {
    /// The template of a model folder.
    pub fn load(folder: &Path) -> Result<Self> {
        let own = folder.join("chat_template.jinja");
        let config = folder.join("tokenizer_config.json");
        let (source, file) = match undertone_run::read_settings(&own) {
            Ok(source) => (source, own),
            Err(_) => (stated(&config)?, config),
        };
        let [bos, eos, pad] = ["bos_token", "eos_token", "pad_token"];
        let token = |role: &str| special::stated(folder, role);
        Self::new(source, file, [token(bos)?, token(eos)?, token(pad)?])
    }

    fn new(source: String, file: PathBuf, tokens: [Option<String>; 3]) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(INSTRUCTIONS));
        environment.set_recursion_limit(64);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |told: String| -> std::result::Result<Jinja, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, told))
            },
        );
        // Blocks that mark the assistant's turns, which only transformers knows.
        let source = match Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}") {
            Ok(marks) => marks
                .replace_all(&source, |found: &regex::Captures| {
                    let word = if found.get(2).is_some() { "endif" } else { "if true" };
                    format!("{{%{} {word} {}%}}", &found[1], &found[3])
                })
                .into_owned(),
            Err(_) => source,
        };
        let unusable = |e: minijinja::Error| broken(&file, &e);
        environment.add_template_owned(NAME, source).map_err(unusable)?;
        Ok(Self { environment, tokens })
    }

    /// Lays a conversation out: a list of messages, each with a role and a content. `Err` says what
    /// is wrong with it.
    pub fn lay_out(&self, messages: &str) -> std::result::Result<Conversation, String> {
        let messages: Vec<Value> = match serde_json::from_str(messages) {
            Ok(Value::Array(messages)) => messages,
            _ => return Err("the messages are not a list of objects with role and content".into()),
        };
        if messages.len() > MOST_TURNS {
            return Err(format!("the conversation has more than {MOST_TURNS} turns"));
        }
        let role = |message: &Value| message["role"].as_str().map(str::to_owned);
        let roles: Option<Vec<String>> = messages.iter().map(role).collect();
        let Some(roles) = roles.filter(|roles| !roles.is_empty()) else {
            return Err("a message has no role".into());
        };
        let text = self.render(&messages, false)?;
        let mut assistant = Vec::new();
        for (i, _) in roles.iter().enumerate().filter(|(_, role)| *role == ASSISTANT) {
            // The template that is asked for an answer ends with the answer's heading.
            let before = self.render(&messages[..i], true)?;
            let after = match i + 1 == messages.len() {
                true => text.clone(),
                false => self.render(&messages[..=i], false)?,
            };
            // Some templates lay a turn out otherwise when others follow; it is context alone.
            if text.starts_with(&after) && after.starts_with(&before) && before.len() < after.len()
            {
                assistant.push(before.len()..after.len());
            }
        }
        match assistant.is_empty() {
            true => Err("no turn of the assistant can be told apart from what is before it".into()),
            false => Ok(Conversation { text, assistant }),
        }
    }

    fn render(&self, messages: &[Value], asks: bool) -> std::result::Result<String, String> {
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
            Ok(()) => String::from_utf8(out.text).map_err(|_| "the template writes no text".into()),
            Err(e) if e.kind() == ErrorKind::OutOfFuel => {
                Err("the chat template does not come to an end".into())
            }
            Err(e) if e.kind() == ErrorKind::WriteFailure => {
                Err("the chat template writes far more than the conversation has".into())
            }
            // Without what it quotes of the template or the conversation.
            Err(e) => Err(format!("the chat template refuses it: {}", told(&e))),
        }
    }
}

/// `chat_template` of tokenizer_config.json: a text, or a list of named ones.
fn stated(config: &Path) -> Result<String> {
    let missing = || Error::ChatTemplate {
        file: config.into(),
        reason: "there is none; use a model for chat, or task completion with a template".into(),
    };
    let text = undertone_run::read_settings(config).map_err(|_| missing())?;
    let keys: Value = serde_json::from_str(&text)
        .map_err(|e| Error::ChatTemplate { file: config.into(), reason: e.to_string() })?;
    let found = match &keys["chat_template"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(all) => {
            let named = all.iter().find(|one| one["name"] == "default");
            named.and_then(|one| one["template"].as_str()).map(str::to_owned)
        }
        _ => None,
    };
    found.ok_or_else(missing)
}

fn broken(file: &Path, error: &minijinja::Error) -> Error {
    Error::ChatTemplate { file: file.into(), reason: told(error) }
}

/// What an error says, in one line that is not too long.
fn told(error: &minijinja::Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(160).collect()
}

/// What a template writes, up to a bound.
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

    /// ChatML, as Qwen2 and SmolLM2 lay conversations out.
    const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
         message['content'] + '<|im_end|>' + '\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    const TURNS: &str = r#"[{"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"}, {"role": "user", "content": "more"},
        {"role": "assistant", "content": "no"}]"#;

    fn template(source: &str) -> Result<ChatTemplate> {
        ChatTemplate::new(source.to_owned(), "chat_template.jinja".into(), [None, None, None])
    }

    #[test]
    fn the_assistants_turns_are_found() {
        let found = template(CHATML).unwrap().lay_out(TURNS).unwrap();
        assert!(found.text.starts_with("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
        let turns: Vec<&str> = found.assistant.iter().map(|at| &found.text[at.clone()]).collect();
        assert_eq!(turns, ["hello<|im_end|>\n", "no<|im_end|>\n"]);
        // The marks that transformers finds them by change nothing.
        let marked = CHATML
            .replace("messages %}", "messages %}{%- generation -%}")
            .replace("{% endfor %}", "{%- endgeneration %}{% endfor %}");
        assert_eq!(template(&marked).unwrap().lay_out(TURNS).unwrap(), found);
    }

    /// A template that leaves reasoning out of earlier turns: only the last one is learnt.
    #[test]
    fn turns_that_change_with_what_follows_are_context() {
        let source = "{% for m in messages %}{{ '<' + m.role + '>' }}\
             {% if m.role == 'assistant' and loop.last %}{{ 'think ' }}{% endif %}{{ m.content }}\
             {% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";
        let found = template(source).unwrap().lay_out(TURNS).unwrap();
        let turns: Vec<&str> = found.assistant.iter().map(|at| &found.text[at.clone()]).collect();
        assert_eq!(turns, ["think no"]);
    }

    #[test]
    fn methods_of_python_and_tojson_work() {
        let source = "{% for m in messages %}{{ m['content'].strip().upper() }}{{ m | tojson }}\
             {% endfor %}{% if add_generation_prompt %}{% endif %}";
        let one = r#"[{"role": "assistant", "content": " a "}]"#;
        let found = template(source).unwrap().lay_out(one).unwrap();
        assert!(found.text.starts_with("A{\"content\":\" a \""), "{}", found.text);
    }

    #[test]
    fn templates_that_loop_recurse_or_write_too_much_are_stopped() {
        let long = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        let said = |source: &str| template(source).unwrap().lay_out(TURNS).unwrap_err();
        assert!(said(long).contains("does not come to an end"), "{}", said(long));
        let deep = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}";
        assert!(said(deep).contains("refuses it"), "{}", said(deep));
        let loud = "{% for a in range(9999) %}{{ 'many words ' * 99 }}{% endfor %}";
        assert!(said(loud).contains("far more"), "{}", said(loud));
        let refusing = "{{ raise_exception('roles must alternate') }}";
        assert!(said(refusing).contains("roles must alternate"), "{}", said(refusing));
        assert!(template("{% for %}").is_err(), "a broken template");
        assert!(template("{% include 'other' %}").unwrap().lay_out(TURNS).is_err());
    }

    #[test]
    fn bad_conversations_are_refused() {
        let template = template(CHATML).unwrap();
        for (messages, about) in [
            ("hi", "not a list"),
            ("{}", "not a list"),
            ("[]", "no role"),
            (r#"[{"content": "hi"}]"#, "no role"),
            (r#"[{"role": "user", "content": "hi"}]"#, "no turn of the assistant"),
            (r#"[{"role": "assistant"}]"#, "refuses it"),
        ] {
            let error = template.lay_out(messages).unwrap_err();
            assert!(error.contains(about), "{messages}: {error}");
        }
    }
}
