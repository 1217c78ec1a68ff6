//! Converts a generated text to a row, or to the reason why it is rejected, based only on the text
//! itself.

use crate::data::Template;

/// Why a generated text is not a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejected {
    /// The text does not match the template, such as an incomplete JSON record.
    Malformed,
    /// A column would be blank.
    Blank,
    /// The tokens do not form valid UTF-8.
    NotText,
}

impl Rejected {
    /// The name in the journal and in `synthesis.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Blank => "blank",
            Self::NotText => "not_text",
        }
    }
}

/// The values of a generated text, without surrounding whitespace.
pub fn row_of(completion: &Template, text: &str) -> Result<Vec<String>, Rejected> {
    if text.contains('\u{FFFD}') {
        return Err(Rejected::NotText);
    }
    let values = completion.values(text).ok_or(Rejected::Malformed)?;
    let trimmed: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
    match trimmed.iter().any(String::is_empty) {
        true => Err(Rejected::Blank),
        false => Ok(trimmed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_rows_or_reasons() {
        let plain = Template::parse("text").unwrap();
        let record = Template::parse("{{\"a\": {a:json}, \"b\": {b:json}}}").unwrap();
        assert_eq!(row_of(&plain, " the sun \n"), Ok(vec!["the sun".to_owned()]));
        assert_eq!(row_of(&plain, " \n"), Err(Rejected::Blank));
        assert_eq!(row_of(&plain, "the \u{FFFD}"), Err(Rejected::NotText));
        let whole = r#"{"a": "x\ny", "b": "z"}"#;
        assert_eq!(row_of(&record, whole), Ok(vec!["x\ny".to_owned(), "z".to_owned()]));
        assert_eq!(row_of(&record, r#"{"a": "x", "b": ""}"#), Err(Rejected::Blank));
        assert_eq!(row_of(&record, &whole[..12]), Err(Rejected::Malformed));
    }
}
