//! Detection of personally identifiable information (PII): names of people, email addresses, phone
//! numbers, postal addresses.
//!
//! Addresses and phone numbers are detected by regular expressions ([`patterns`]); names by a list
//! of given names and capitalization ([`names`]), or by a token classification (NER) model
//! ([`tagger`]), which detects more.

pub mod names;
pub mod patterns;
pub mod tagger;

use crate::model::Result;
use serde::{Deserialize, Serialize};
use std::ops::Range;
pub use undertone_run::audit::EntityKind;

/// A PII span: a byte range of a text, and its kind of PII.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Byte offset of the start.
    pub start: usize,
    /// Byte offset after the end.
    pub end: usize,
    /// Kind of PII.
    pub kind: EntityKind,
}

impl Span {
    /// The byte range.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// A PII detector.
pub trait Finder {
    /// The PII spans of each text, in order and without overlap.
    fn find(&self, texts: &[String]) -> Result<Vec<Vec<Span>>>;
}

/// Several finders; if spans overlap, those of the earlier finder are kept.
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

/// Normal form of a PII string, for comparison: lowercase with single spaces; for phone numbers,
/// only the digits.
pub fn plain(text: &str, kind: EntityKind) -> String {
    match kind {
        EntityKind::Phone => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            // The North American country code is often left out.
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
    fn spellings_of_the_same_pii_have_one_normal_form() {
        assert_eq!(plain("Mara\n  OSTROW", EntityKind::Person), "mara ostrow");
        assert_eq!(
            plain("+1 (713) 853-7000", EntityKind::Phone),
            plain("713.853.7000", EntityKind::Phone)
        );
    }

    #[test]
    fn earlier_finders_win_overlaps() {
        let names = names::Names::from_list(["vince kaminski"].into_iter());
        let finder = Together(vec![Box::new(patterns::Patterns::default()), Box::new(names)]);
        let text = "Ask vince kaminski <vince.kaminski@enron.com> or call 713-853-3848.".to_owned();
        let spans = finder.find(std::slice::from_ref(&text)).unwrap().remove(0);
        let actual: Vec<(&str, EntityKind)> =
            spans.iter().map(|span| (&text[span.range()], span.kind)).collect();
        let expected = [
            ("vince kaminski", EntityKind::Person),
            ("vince.kaminski@enron.com", EntityKind::Email),
            ("713-853-3848", EntityKind::Phone),
        ];
        assert_eq!(actual, expected);
    }
}
