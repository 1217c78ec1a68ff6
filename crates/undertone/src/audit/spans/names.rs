//! Detects names of people by a list of given names and the capitalization of surnames.

use super::{EntityKind, Finder, Span};
use crate::model::Result;
use rayon::prelude::*;
use std::collections::HashSet;

/// Given names that are common in English texts, one per line.
const GIVEN: &str = include_str!("given_names.txt");

/// Capitalized words that follow a given name without being part of the name.
const NOT_SURNAMES: [&str; 44] = [
    "and",
    "or",
    "the",
    "of",
    "from",
    "to",
    "cc",
    "bcc",
    "re",
    "fw",
    "fwd",
    "subject",
    "date",
    "sent",
    "please",
    "thanks",
    "thank",
    "regards",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "i",
    "is",
    "was",
    "has",
    "will",
    "inc",
    "corp",
];

/// Finder of names. A name is a known given name, at most one initial or middle name, and a
/// surname, all capitalized ("Vince J Kaminski"); or a full name from the user's list, in any case.
#[derive(Clone, Debug)]
pub struct Names {
    given: HashSet<String>,
    whole: HashSet<Vec<String>>,
    longest: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self::from_list(GIVEN.lines())
    }
}

impl Names {
    /// Single-word lines are given names; multi-word lines are full names, matched in any case.
    pub fn from_list<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let (mut given, mut whole) = (HashSet::new(), HashSet::new());
        for line in lines {
            let words: Vec<String> = line.split_whitespace().map(str::to_lowercase).collect();
            match words.len() {
                0 => {}
                1 => given.extend(words),
                _ => {
                    whole.insert(words);
                }
            }
        }
        let longest = whole.iter().map(Vec::len).max().unwrap_or(0);
        Self { given, whole, longest }
    }

    /// Number of words in the name that starts at the first of `words`; 0 if none does.
    fn words_of_name(&self, text: &str, words: &[(usize, usize)]) -> usize {
        let word = |i: usize| words.get(i).map(|&(start, end)| &text[start..end]);
        let lower = |i: usize| word(i).map(str::to_lowercase);
        for length in (2..=self.longest.min(words.len())).rev() {
            let name: Vec<String> = (0..length).filter_map(lower).collect();
            if self.whole.contains(&name) && together(text, &words[..length]) {
                return length;
            }
        }
        let is_given =
            word(0).is_some_and(capital) && lower(0).is_some_and(|w| self.given.contains(&w));
        if !is_given {
            return 0;
        }
        let is_name = |i: usize| {
            word(i).is_some_and(capital)
                && lower(i).is_some_and(|w| !NOT_SURNAMES.contains(&w.as_str()))
        };
        let initial = |i: usize| word(i).is_some_and(|w| w.len() == 1 && capital(w));
        let surname = |i: usize| is_name(i) && word(i).is_some_and(|w| w.chars().count() > 1);
        let fits = |length: usize| length <= words.len() && together(text, &words[..length]);
        // An initial or a middle name may come between the given name and the surname.
        let middle = initial(1) || lower(1).is_some_and(|w| self.given.contains(&w) && is_name(1));
        match (middle && surname(2) && fits(3), surname(1) && fits(2)) {
            (true, _) => 3,
            (false, true) => 2,
            _ => 0,
        }
    }
}

fn capital(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_uppercase)
}

/// Whether the words are separated only by a space, a period after an initial, or one line break.
fn together(text: &str, words: &[(usize, usize)]) -> bool {
    words.windows(2).all(|pair| {
        let between = &text[pair[0].1..pair[1].0];
        let initial = pair[0].1 - pair[0].0 == 1;
        between == " " || between == "\n" || between == " \n" || (initial && between == ". ")
    })
}

/// Byte ranges of words, which may contain hyphens and apostrophes ("O'Neil-Smith").
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, usize)> = Vec::new();
    let mut start = None;
    let mut chars = text.char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        let joins = (c == '-' || c == '\'')
            && start.is_some()
            && chars.peek().is_some_and(|(_, next)| next.is_alphabetic());
        match (c.is_alphabetic() || joins, start) {
            (true, None) => start = Some(i),
            (false, Some(from)) => {
                words.push((from, i));
                start = None;
            }
            _ => {}
        }
    }
    words.extend(start.map(|from| (from, text.len())));
    // "Kaminski's" is Kaminski.
    for (from, end) in &mut words {
        if text[*from..*end].ends_with("'s") {
            *end -= 2;
        }
    }
    words
}

impl Finder for Names {
    fn find(&self, texts: &[String]) -> Result<Vec<Vec<Span>>> {
        let of = |text: &String| {
            let words = words(text);
            let (mut spans, mut at) = (Vec::new(), 0);
            while at < words.len() {
                let length = self.words_of_name(text, &words[at..]);
                if length > 0 {
                    let (start, end) = (words[at].0, words[at + length - 1].1);
                    spans.push(Span { start, end, kind: EntityKind::Person });
                }
                at += length.max(1);
            }
            spans
        };
        Ok(texts.par_iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(names: &Names, text: &str) -> Vec<String> {
        let spans = names.find(&[text.to_owned()]).unwrap().remove(0);
        spans.iter().map(|span| text[span.range()].to_owned()).collect()
    }

    #[test]
    fn names_are_found_by_given_names_and_capitals() {
        let names = Names::default();
        let text = "Vince J Kaminski asked Louise Kitchen's team; John O'Neil-Smith and Mary. \
         Thomas D. Gros left.";
        assert_eq!(
            names_in(&names, text),
            ["Vince J Kaminski", "Louise Kitchen", "John O'Neil-Smith", "Thomas D. Gros"]
        );
        for none in [
            "will smith the iron",
            "Mark Friday in the calendar",
            "John and Mary",
            "a thomas gros",
            "Mary\n\nBest",
        ] {
            assert!(names_in(&names, none).is_empty(), "{none}: {:?}", names_in(&names, none));
        }
    }

    #[test]
    fn a_list_of_whole_names_is_found_in_any_case() {
        let names = Names::from_list("mara ostrow\njonas van der berg\n".lines());
        assert_eq!(
            names_in(&names, "my name is mara ostrow . JONAS VAN DER BERG"),
            ["mara ostrow", "JONAS VAN DER BERG"]
        );
        assert!(names_in(&names, "mara , ostrow").is_empty());
    }
}
