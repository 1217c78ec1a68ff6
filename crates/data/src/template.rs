//! Templates for prompts and completions: `Question: {question}\nAnswer:`.
//!
//! A text without braces is the name of a column, whose value is used as is. `{{` and `}}` are
//! literal braces.

use super::error::{Error, Result};

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(String),
    Column(&'a str),
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
                    pieces.push(Piece::Column(name));
                    after
                }
            };
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        match pieces.iter().any(|piece| matches!(piece, Piece::Column(_))) {
            true => Ok(Self { pieces }),
            false => wrong("text with at least one column in braces"),
        }
    }

    /// The columns in text order; a column used twice is listed twice.
    pub fn columns(self) -> Vec<&'a str> {
        let column = |piece: &Piece<'a>| match piece {
            Piece::Column(name) => Some(*name),
            Piece::Text(_) => None,
        };
        self.pieces.iter().filter_map(column).collect()
    }

    /// Number of columns.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Column(_))).count()
    }

    /// The text with the values of its columns filled in, in order.
    pub fn fill(&self, values: &[String]) -> String {
        let mut values = values.iter();
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Column(_) => text.push_str(values.next().map_or("", String::as_str)),
            }
        }
        text
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
    fn broken_templates_are_refused() {
        for text in ["{", "}", "{}", "a {b", "{a} {b", "a } b", "{a{b}", "{{only braces}}"] {
            let error = Template::parse(text).map(|found| panic!("{found:?}")).unwrap_err();
            assert!(error.to_string().starts_with("a template is"), "{error}");
        }
    }
}
