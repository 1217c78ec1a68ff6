//! Classifies the program's responses to attacks and counts each class.

use super::invoke::{End, Ended, Stream, Surroundings};
use std::collections::BTreeMap;
use std::fmt;

/// The program's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Answered,
    /// Refused in one sentence, with an exit code.
    Refused,
    /// Still training, and would have continued for a long time.
    AtWork,
    Panic,
    Signal,
    Hang,
    Memory,
    /// Several sentences, none, a sentence that is too long, or control characters.
    BadMessage,
    /// An exit code with a different meaning.
    BadCode,
    /// Exit code 0 on certainly invalid input, or with a lost output.
    BadSuccess,
    /// A release is missing from the ledger.
    UnderCounted,
    /// A run cannot be resumed, or differs from an uninterrupted one.
    Lost,
}

impl Class {
    pub fn is_bad(self) -> bool {
        !matches!(self, Class::Answered | Class::Refused | Class::AtWork)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Class::Answered => "answered",
            Class::Refused => "refused in one sentence",
            Class::AtWork => "at work for long",
            Class::Panic => "panic",
            Class::Signal => "signal",
            Class::Hang => "hang > 20 s",
            Class::Memory => "memory > 2 GB",
            Class::BadMessage => "bad message",
            Class::BadCode => "bad exit code",
            Class::BadSuccess => "exit 0 on bad input",
            Class::UnderCounted => "under-counted",
            Class::Lost => "lost",
        })
    }
}

/// Longest sentence, in characters.
const LONGEST: usize = 1000;

/// The class of an invocation; `verb` is the command, and `must_fail` states whether its input is
/// certainly invalid.
pub fn classify(ended: &Ended, verb: &str, surroundings: Surroundings, must_fail: bool) -> Class {
    let code = match ended.end {
        End::Code(code) => code,
        End::Signal(_) => return Class::Signal,
        End::Hang => return Class::Hang,
        End::Memory => return Class::Memory,
        End::AtWork if must_fail => return Class::BadSuccess,
        End::AtWork => return Class::AtWork,
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    if code == 101 || said.contains("panicked at") {
        return Class::Panic;
    }
    // The output of a language model is not ours to change.
    let shown = if verb == "generate" { &[][..] } else { &ended.stdout[..] };
    if has_controls(&ended.stderr) || has_controls(shown) {
        return Class::BadMessage;
    }
    if code == 0 {
        let lost = surroundings == Surroundings::Full(Stream::Out);
        return if must_fail || lost { Class::BadSuccess } else { Class::Answered };
    }
    let is_mute = matches!(
        surroundings,
        Surroundings::Closed(Stream::Err)
            | Surroundings::Full(Stream::Err)
            | Surroundings::Deaf(Stream::Err)
    );
    if !is_mute && !is_one_sentence(&said) {
        return Class::BadMessage;
    }
    let of_system = ["No space left", "File too large", "Too many open files"];
    let right = if of_system.iter().any(|why| said.contains(why)) { 1..=1 } else { 1..=3 };
    if right.contains(&code) { Class::Refused } else { Class::BadCode }
}

/// Whether these bytes could steer a terminal or make it reorder text.
fn has_controls(bytes: &[u8]) -> bool {
    let turns = ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    String::from_utf8_lossy(bytes).chars().any(|c| {
        (c.is_control() && c != '\n' && c != '\t') || turns.iter().any(|range| range.contains(&c))
    })
}

/// Whether the last line, and no other, is an error of reasonable length.
fn is_one_sentence(said: &str) -> bool {
    let errors = said.lines().filter(|line| line.starts_with("error:")).count();
    let last = said.lines().last().unwrap_or_default();
    errors == 1 && last.starts_with("error:") && last.chars().count() <= LONGEST
}

/// The number of attacks in each class.
#[derive(Default)]
pub struct Tally {
    counts: BTreeMap<Class, usize>,
}

impl Tally {
    /// Counts an attack, and prints it if it is bad or all are requested; `what` says how to repeat
    /// it and describes the outcome.
    pub fn add(&mut self, class: Class, what: String) {
        *self.counts.entry(class).or_default() += 1;
        if class.is_bad() || std::env::var_os("UNDERTONE_ATTACKS_ALL").is_some() {
            println!("{class}: {what}");
        }
    }

    /// Adds the counts of another tally.
    pub fn extend(&mut self, other: Tally) {
        other.counts.into_iter().for_each(|(class, n)| *self.counts.entry(class).or_default() += n);
    }

    /// Prints the table, and fails if anything was bad.
    #[track_caller]
    pub fn assert_sound(&self, title: &str) {
        println!("\n{title}");
        for (class, count) in &self.counts {
            println!("  {class:<24}{count:>7}");
        }
        let bad: usize =
            self.counts.iter().filter(|(class, _)| class.is_bad()).map(|(_, n)| n).sum();
        assert!(bad == 0, "{bad} bad of {title}, which are listed above");
    }
}
