//! Where private things stand in texts: names of people, e-mail addresses, phone numbers.
//!
//! Structured kinds are found by [`patterns`]; names by a list of given names and capital letters
//! ([`names`]), or by any model folder that classifies tokens ([`tagger`]), which finds more.

pub mod names;
pub mod patterns;
pub mod tagger;

use crate::model::Result;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What kind of private thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The name of a person.
    Person,
    /// An e-mail address.
    Email,
    /// A phone number.
    Phone,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Person, Self::Email, Self::Phone];

    /// In words, of several.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Person => "names",
            Self::Email => "e-mail addresses",
            Self::Phone => "phone numbers",
        }
    }
}

/// Bytes of a text, and what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// What stands there.
    pub kind: Kind,
}

impl Span {
    /// The bytes.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Finds private things.
pub trait Finder {
    /// The spans of each text, in order, none of which overlap.
    fn find(&self, texts: &[String]) -> Result<Vec<Vec<Span>>>;
}

/// Several finders; where two claim the same bytes, the first has them.
pub struct Together(pub Vec<Box<dyn Finder>>);

impl Finder for Together {
    fn find(&self, texts: &[String]) -> Result<Vec<Vec<Span>>> {
        let mut all: Vec<Vec<Span>> = vec![Vec::new(); texts.len()];
        for finder in &self.0 {
            for (known, more) in all.iter_mut().zip(finder.find(texts)?) {
                for span in more {
                    if known.iter().all(|other| span.end <= other.start || other.end <= span.start)
                    {
                        known.push(span);
                    }
                }
            }
        }
        all.iter_mut().for_each(|spans| spans.sort_by_key(|span| span.start));
        Ok(all)
    }
}

/// The same thing written in two ways is one thing: small letters, single spaces, and of phone
/// numbers the digits alone.
pub fn plain(text: &str, kind: Kind) -> String {
    match kind {
        Kind::Phone => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            // The country code of North America is often left out.
            match (digits.len(), digits.strip_prefix('1')) {
                (11, Some(rest)) => rest.to_owned(),
                _ => digits,
            }
        }
        _ => text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thing_is_recognised_however_it_is_written() {
        assert_eq!(plain("Mara\n  OSTROW", Kind::Person), "mara ostrow");
        assert_eq!(plain("+1 (713) 853-7000", Kind::Phone), plain("713.853.7000", Kind::Phone));
    }

    #[test]
    fn the_first_finder_has_the_word() {
        let names = names::Names::from_list(["vince kaminski"].into_iter());
        let finder = Together(vec![Box::new(patterns::Patterns::default()), Box::new(names)]);
        let text = "Ask vince kaminski <vince.kaminski@enron.com> or call 713-853-3848.".to_owned();
        let found = finder.find(std::slice::from_ref(&text)).unwrap().remove(0);
        let said: Vec<(&str, Kind)> =
            found.iter().map(|span| (&text[span.range()], span.kind)).collect();
        let expected = [
            ("vince kaminski", Kind::Person),
            ("vince.kaminski@enron.com", Kind::Email),
            ("713-853-3848", Kind::Phone),
        ];
        assert_eq!(said, expected);
    }
}
