//! Detects email addresses, phone numbers and postal addresses by regular expressions.

use super::{EntityKind, Finder, Span};
use crate::model::Result;
use rayon::prelude::*;
use regex::Regex;

/// Local part, @, and a domain with at least one dot.
const EMAIL: &str =
    r"[A-Za-z0-9][A-Za-z0-9._%+'-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}";

/// North American numbers with their area code, and numbers that begin with + and a country code.
const PHONE: &str = r"(?:\+?1[-. ]?)?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}|\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}";

/// House number and street, with suite, town, state and ZIP code if they follow; or a P.O. box: the
/// address formats of North American mail.
const ADDRESS: &str = concat!(
    r"(?:\b\d{1,5}(?: [NSEW]\.?)?(?: [A-Z][A-Za-z'-]*\.?){1,4}? ",
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Drive|Dr|Lane|Ln|Way|Court|Ct|Place|Pl|",
    r"Parkway|Pkwy|Highway|Hwy|Square|Plaza|Circle|Terrace)\b\.?",
    r"|\bP\. ?O\. Box \d{1,6}\b|\bPO Box \d{1,6}\b)",
    r"(?:,?\s(?:Suite|Ste\.?|Floor|Apt\.?|Room|Unit) #?[A-Za-z0-9-]+)?",
    r"(?:,?\s+[A-Z][A-Za-z.]+(?: [A-Z][A-Za-z.]+){0,2},?\s+(?:[A-Z]{2}|Texas)\s+\d{5}(?:-\d{4})?)?",
);

/// Minimum number of digits in a phone number.
const FEWEST_DIGITS: usize = 8;

/// A finder that uses regular expressions.
#[derive(Clone, Debug)]
pub struct Patterns {
    kinds: Vec<(EntityKind, Regex)>,
}

impl Default for Patterns {
    fn default() -> Self {
        let kinds = [
            (EntityKind::Email, EMAIL),
            (EntityKind::Phone, PHONE),
            (EntityKind::Address, ADDRESS),
        ];
        let compiled = kinds.into_iter();
        // The patterns are constants, and a test checks that they compile.
        Self {
            kinds: compiled
                .filter_map(|(kind, form)| Some((kind, Regex::new(form).ok()?)))
                .collect(),
        }
    }
}

/// Whether no letter or digit precedes or follows the match.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[end..].chars().next();
    let continues = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    !continues(before) && !continues(after)
}

impl Finder for Patterns {
    fn find(&self, texts: &[String]) -> Result<Vec<Vec<Span>>> {
        let of = |text: &String| {
            let mut spans = Vec::new();
            for (kind, form) in &self.kinds {
                for matched in form.find_iter(text) {
                    let digits = matched.as_str().bytes().filter(u8::is_ascii_digit).count();
                    let is_phone = *kind == EntityKind::Phone;
                    let alone = stands_alone(text, matched.start(), matched.end());
                    if !is_phone || (alone && digits >= FEWEST_DIGITS) {
                        spans.push(Span {
                            start: matched.start(),
                            end: matched.end(),
                            kind: *kind,
                        });
                    }
                }
            }
            spans.sort_by_key(|span| span.start);
            spans
        };
        Ok(texts.par_iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches_in(text: &str) -> Vec<String> {
        let patterns = Patterns::default();
        assert_eq!(patterns.kinds.len(), 3);
        let spans = patterns.find(&[text.to_owned()]).unwrap().remove(0);
        spans.iter().map(|span| text[span.range()].to_owned()).collect()
    }

    #[test]
    fn addresses_and_phone_numbers_are_found_and_other_numbers_are_not() {
        assert_eq!(
            matches_in("mail tom.gros@enron.com, or o'neil@ees.enron.co.uk."),
            ["tom.gros@enron.com", "o'neil@ees.enron.co.uk"]
        );
        assert_eq!(
            matches_in("(713) 853-7000, 713-853-7000, 713.853.7000 or +44 20 7783 0000"),
            ["(713) 853-7000", "713-853-7000", "713.853.7000", "+44 20 7783 0000"]
        );
        assert_eq!(matches_in("+1 713 853 7000"), ["+1 713 853 7000"]);
        assert_eq!(
            matches_in("Enron Corp., 1400 Smith Street, Houston, TX 77002, or P.O. Box 1188."),
            ["1400 Smith Street, Houston, TX 77002", "P.O. Box 1188"]
        );
        assert_eq!(
            matches_in("at 333 Clay St., Suite 400\nHouston, Texas 77002-1234\nby noon"),
            ["333 Clay St., Suite 400\nHouston, Texas 77002-1234"]
        );
        for other in [
            "17138537000123456",
            "12/10/2001 08:58:50",
            "order 123-456",
            "a@b",
            "x713-853-7000y",
            "€ 1,000",
            "20 people on the Street",
            "3 Enron Employees drove",
        ] {
            assert!(matches_in(other).is_empty(), "{other}: {:?}", matches_in(other));
        }
    }
}
