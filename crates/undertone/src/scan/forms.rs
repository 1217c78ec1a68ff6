//! Bank accounts, payment cards, web addresses and dates of birth.

use super::{Finding, Kind, Text, checksums, stands_alone};
use regex::Regex;

const IBAN: &str = r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}";
/// In one piece, in groups of four, or in those of American Express and Diners Club.
const CARD: &str = r"\d{4}[ -]\d{4}[ -]\d{4}[ -]\d{1,7}|\d{4}[ -]\d{6}[ -]\d{4,5}|\d{13,19}";
const URL: &str = r"(?i:https?://|ftp://|www\.)[^\s<>\x22'`{}|\\^\[\]]+";

/// A date in numbers, or with the name of a month in English, German, French, Spanish or Italian.
const DATE: &str = concat!(
    r"\d{1,2}[./-]\d{1,2}[./-](?:19|20)?\d{2}|(?:19|20)\d{2}[./-]\d{1,2}[./-]\d{1,2}",
    r"|\d{1,2}(?:st|nd|rd|th|\.|er)? (?:of |de )?\p{L}{3,10}\.?,?(?: de)? (?:19|20)\d{2}",
    r"|\p{Lu}\p{L}{2,8}\.? \d{1,2}(?:st|nd|rd|th)?,? (?:19|20)\d{2}",
);

/// Words before a date of birth, in English, German, French, Spanish, Italian and Dutch.
const BORN: [&str; 23] = [
    "born",
    "dob",
    "d.o.b",
    "birth",
    "birthday",
    "birthdate",
    "date of birth",
    "geboren",
    "geb",
    "geburtsdatum",
    "geburtstag",
    "né le",
    "née le",
    "né",
    "née",
    "naissance",
    "nacido",
    "nacida",
    "nacimiento",
    "nato",
    "nata",
    "nascita",
    "geboortedatum",
];

pub(super) struct Forms {
    iban: Option<Regex>,
    card: Option<Regex>,
    url: Option<Regex>,
    date: Option<Regex>,
}

impl Default for Forms {
    fn default() -> Self {
        // The patterns are constants, and a test checks that they compile.
        let form = |form: &str| Regex::new(form).ok();
        Self { iban: form(IBAN), card: form(CARD), url: form(URL), date: form(DATE) }
    }
}

/// The characters that a checksum covers.
pub(super) fn bare(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase()
}

impl Forms {
    pub fn find(&self, text: &Text) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |start, end, kind| {
            findings.push(Finding { range: start..end, kind, detail: "" });
        };
        for matched in self.iban.iter().flat_map(|form| form.find_iter(text.text)) {
            // The match may extend into the following words.
            let ends = (matched.start() + 15..=matched.end()).rev();
            let mut ends = ends.filter(|end| stands_alone(text.text, &(matched.start()..*end)));
            if let Some(end) =
                ends.find(|end| checksums::iban(&bare(&text.text[matched.start()..*end])))
            {
                add(matched.start(), end, Kind::Iban);
            }
        }
        for matched in self.card.iter().flat_map(|form| form.find_iter(text.text)) {
            if stands_alone(text.text, &matched.range()) && checksums::card(&bare(matched.as_str()))
            {
                add(matched.start(), matched.end(), Kind::Card);
            }
        }
        for matched in self.url.iter().flat_map(|form| form.find_iter(text.text)) {
            let address = matched.as_str().trim_end_matches(['.', ',', ';', ':', '!', '?', ')']);
            add(matched.start(), matched.start() + address.len(), Kind::Url);
        }
        for matched in self.date.iter().flat_map(|form| form.find_iter(text.text)) {
            if stands_alone(text.text, &matched.range()) && text.has_context(&BORN, matched.start())
            {
                add(matched.start(), matched.end(), Kind::BirthDate);
            }
        }
        findings
    }
}
