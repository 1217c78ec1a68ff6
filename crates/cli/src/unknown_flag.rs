//! Suggestions for a flag that does not exist but is a key of the run file.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use undertone_run::key_named;

/// The error message for a command-line mistake that was meant to set a key; `None` for any other
/// mistake. `words` is the command line.
pub fn meant_key(error: &clap::Error, words: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let word = flag.strip_prefix("--")?.split('=').next()?;
    let key = key_named(word)?;
    // A flag that is nearly right takes precedence, unless the word is exactly a key's name.
    let is_exact = key.rsplit('.').next() == Some(word.replace('-', "_").as_str());
    if !is_exact && error.get(ContextKind::SuggestedArg).is_some() {
        return None;
    }
    let verb = words.iter().skip(1).filter(|word| !word.starts_with('-')).map(String::as_str);
    let verb: Vec<&str> = verb.take(2).collect();
    match verb.as_slice() {
        ["train" | "sweep", ..] | ["audit", "one-run"] => {
            let change = format!("{key}={}", value_of(flag, words).unwrap_or("VALUE"));
            Some(format!(
                "error: there is no flag --{word}; use --set {}",
                crate::train::shell_quoted(&change)
            ))
        }
        ["init", ..] => Some(format!(
            "error: there is no flag --{word}; set {key} in the run file that init writes"
        )),
        _ => None,
    }
}

/// The value given to a flag.
fn value_of<'a>(flag: &str, words: &'a [String]) -> Option<&'a str> {
    let name = flag.split('=').next()?;
    let (at, word) = words.iter().enumerate().find(|(_, word)| {
        word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })?;
    match word.split_once('=') {
        Some((_, value)) => Some(value),
        None => words.get(at + 1).map(String::as_str).filter(|next| !next.starts_with("--")),
    }
}
