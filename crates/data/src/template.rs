//! Templates for prompts and completions: `Question: {question}\nAnswer:`.
//!
//! A template without braces is the name of a column, whose value is used as is. `{{` and `}}` are
//! literal braces. `{column:json}` is the value as a JSON string, in quotes. A prompt without
//! columns ends with `{}`, to distinguish it from the name of a column.
//!
//! [`Template::values`] is the inverse of [`Template::fill`], for texts that a model has written.

use super::error::{Error, Result};

/// Marks a placeholder that is filled with a JSON string.
const JSON: &str = ":json";

/// Ends a prompt without columns.
const NO_COLUMNS: &str = "{}";

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(String),
    Column(&'a str),
    /// A column whose value is written as a JSON string.
    Json(&'a str),
}

impl<'a> Piece<'a> {
    fn column(&self) -> Option<&'a str> {
        match self {
            Piece::Column(name) | Piece::Json(name) => Some(name),
            Piece::Text(_) => None,
        }
    }
}

/// A text with column placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'a> {
    pieces: Vec<Piece<'a>>,
}

impl<'a> Template<'a> {
    /// Parses a template or a column name.
    pub fn parse(text: &'a str) -> Result<Self> {
        let wrong = |rule: &str| Err(Error::invalid("a template", format!("{text:?}"), rule));
        if !text.contains(['{', '}']) {
            return Ok(Self { pieces: vec![Piece::Column(text)] });
        }
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            rest = match after.strip_prefix(brace) {
                Some(after) => {
                    plain.push_str(brace);
                    after
                }
                None => {
                    let Some((name, after)) = after.split_once('}').filter(|_| brace == "{") else {
                        return wrong("text whose braces are opened and closed");
                    };
                    if name.is_empty() || name.contains('{') {
                        return wrong("text with columns in braces, such as {question}");
                    }
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(match name.strip_suffix(JSON) {
                        Some(column) if !column.is_empty() => Piece::Json(column),
                        _ => Piece::Column(name),
                    });
                    after
                }
            };
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        match pieces.iter().any(|piece| piece.column().is_some()) {
            true => Ok(Self { pieces }),
            false => wrong("text with at least one column in braces"),
        }
    }

    /// Like [`Template::parse`], for a prompt, which may have no column: `Letter:{}`.
    pub fn parse_prompt(text: &'a str) -> Result<Self> {
        match text.strip_suffix(NO_COLUMNS) {
            Some(plain) if !plain.is_empty() && !plain.contains(['{', '}']) => {
                Ok(Self { pieces: vec![Piece::Text(plain.to_owned())] })
            }
            _ => Self::parse(text),
        }
    }

    /// The columns in text order; a column used twice is listed twice.
    pub fn columns(self) -> Vec<&'a str> {
        self.pieces.iter().filter_map(Piece::column).collect()
    }

    /// Number of columns.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.column().is_some()).count()
    }

    /// The text with the values of its columns filled in, in order.
    pub fn fill(&self, values: &[String]) -> String {
        let mut values = values.iter();
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Column(_) => text.push_str(values.next().map_or("", String::as_str)),
                Piece::Json(_) => {
                    let value = values.next().map_or("", String::as_str);
                    text.push_str(&serde_json::Value::from(value).to_string());
                }
            }
        }
        text
    }

    /// The values with which [`Template::fill`] gives this text, up to white space around a JSON
    /// string; `None` if there are none. A plain value ends before the next text of the template.
    pub fn values(&self, text: &str) -> Option<Vec<String>> {
        let (mut values, mut rest) = (Vec::new(), text);
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(plain) => rest = rest.strip_prefix(plain.as_str())?,
                Piece::Column(_) => {
                    let end = match self.pieces.get(at + 1) {
                        Some(Piece::Text(next)) => rest.find(next.as_str())?,
                        // Without a text between them, it is unclear where a value ends.
                        Some(_) => return None,
                        None => rest.len(),
                    };
                    values.push(rest[..end].to_owned());
                    rest = &rest[end..];
                }
                Piece::Json(_) => {
                    let mut strings = serde_json::Deserializer::from_str(rest).into_iter();
                    values.push(strings.next()?.ok()?);
                    rest = &rest[strings.byte_offset()..];
                }
            }
        }
        rest.trim().is_empty().then_some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_filled_in() {
        let values = ["why?".to_owned(), "so".to_owned()];
        let filled = |text: &str| Template::parse(text).unwrap().fill(&values);
        assert_eq!(filled("question"), "why?");
        assert_eq!(filled("Question: {q}\nAnswer: {a}!"), "Question: why?\nAnswer: so!");
        assert_eq!(filled("{{{q}}}"), "{why?}");
        let twice = Template::parse("{a}, {b}, {a}").unwrap();
        assert_eq!(twice.columns(), ["a", "b", "a"]);
        // Braces in a value are not interpreted.
        assert_eq!(Template::parse("{q}").unwrap().fill(&["{a}".to_owned()]), "{a}");
    }

    #[test]
    fn values_are_read_back_from_a_text() {
        let values = ["a \"b\"\n{c}".to_owned(), "Bath, 3".to_owned()];
        for text in ["{{\"x\": {x:json}, \"y\": {y:json}}}", "{x}\n\n{y}", "[{x}] {y:json}."] {
            let template = Template::parse(text).unwrap();
            let filled = template.fill(&values);
            assert_eq!(template.values(&filled).as_ref(), Some(&values.to_vec()), "{filled}");
        }
        let record = Template::parse("{{\"x\": {x:json}}}").unwrap();
        assert_eq!(record.fill(&values[..1]), r#"{"x": "a \"b\"\n{c}"}"#);
        assert_eq!(record.clone().columns(), ["x"]);
        for malformed in ["", "{\"x\": \"a", "{\"x\": 3}", "{\"x\": \"a\"} and", "{\"y\": \"a\"}"] {
            assert_eq!(record.values(malformed), None, "{malformed}");
        }
        assert_eq!(Template::parse("text").unwrap().values("a{}"), Some(vec!["a{}".to_owned()]));
        assert_eq!(Template::parse("{x}{y}").unwrap().values("ab"), None);
    }

    #[test]
    fn a_prompt_may_have_no_column() {
        let template = Template::parse_prompt("Letter:{}").unwrap();
        assert_eq!((template.fill(&[]).as_str(), template.len()), ("Letter:", 0));
        assert_eq!(Template::parse_prompt("column").unwrap().columns(), ["column"]);
        for text in ["{}", "{a} {}", "{{}}", "{a {}"] {
            assert!(Template::parse_prompt(text).is_err(), "{text}");
        }
    }

    #[test]
    fn broken_templates_are_refused() {
        for text in ["{", "}", "{}", "a {b", "{a} {b", "a } b", "{a{b}", "{{only braces}}"] {
            let error = Template::parse(text).map(|template| panic!("{template:?}")).unwrap_err();
            assert!(error.to_string().starts_with("a template is"), "{error}");
        }
    }
}
