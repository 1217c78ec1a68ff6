//! Strings and numbers of JSON Lines and JSON arrays, at their places.
//!
//! A JSON string has no line breaks, so a file is read line by line in both cases; the open objects
//! and lists are remembered from one line to the next.

use super::RawValue;
use serde::de::IgnoredAny;

pub(super) struct Json {
    /// Whether the file is one array; otherwise, every line is an object.
    is_array: bool,
    open: Vec<Open>,
}

enum Open {
    List,
    /// An object, its current key, and whether the next string is a key.
    Object {
        key: String,
        before_key: bool,
    },
}

/// How deep values may be nested.
const DEEPEST: usize = 128;

impl Json {
    pub fn new(is_array: bool) -> Json {
        Json { is_array, open: Vec::new() }
    }

    pub fn is_array(&self) -> bool {
        self.is_array
    }

    pub fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// The strings and numbers of a line, from byte `at`.
    ///
    /// If a line is invalid, nothing is left open and no row has begun.
    pub fn values(
        &mut self,
        text: &str,
        mut at: usize,
        row: &mut u64,
    ) -> Result<Vec<RawValue>, String> {
        if !self.is_array && !text[at..].trim().is_empty() {
            // What is not whole leaves nothing open.
            type Object = std::collections::HashMap<String, IgnoredAny>;
            serde_json::from_str::<Object>(&text[at..]).map_err(|e| e.to_string())?;
        }
        let bytes = text.as_bytes();
        let (mut values, before) = (Vec::new(), *row);
        while at < bytes.len() {
            match bytes[at] {
                b'{' => {
                    *row += u64::from(self.open.len() == usize::from(self.is_array));
                    self.open.push(Open::Object { key: String::new(), before_key: true });
                }
                b'[' => self.open.push(Open::List),
                b'}' | b']' => drop(self.open.pop()),
                b':' => self.set_before_key(false),
                b',' => self.set_before_key(true),
                b'"' => {
                    let (value, points, end) =
                        string(text, at).inspect_err(|_| self.abandon(row, before))?;
                    at = end;
                    match self.open.last_mut() {
                        Some(Open::Object { key, before_key: true }) => *key = value,
                        _ => values.push(self.value(value, points, false, *row)),
                    }
                    continue;
                }
                b'-' | b'0'..=b'9' => {
                    let is_part =
                        |b: &u8| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    let length = bytes[at..].iter().position(is_part).unwrap_or(bytes.len() - at);
                    let value = text[at..at + length].to_owned();
                    values.push(self.value(value, vec![(0, at)], true, *row));
                    at += length;
                    continue;
                }
                _ => {}
            }
            if self.open.len() > DEEPEST {
                self.abandon(row, before);
                return Err(format!("values are nested more than {DEEPEST} deep"));
            }
            at += 1;
        }
        Ok(values)
    }

    fn abandon(&mut self, row: &mut u64, before: u64) {
        self.open.clear();
        *row = before;
    }

    fn set_before_key(&mut self, to: bool) {
        if let Some(Open::Object { before_key, .. }) = self.open.last_mut() {
            *before_key = to;
        }
    }

    fn value(
        &self,
        value: String,
        points: Vec<(usize, usize)>,
        is_number: bool,
        row: u64,
    ) -> RawValue {
        let keys = self.open.iter().filter_map(|open| match open {
            Open::Object { key, .. } => Some(key.as_str()),
            Open::List => None,
        });
        let path = keys.collect::<Vec<_>>().join(".");
        let column = if path.is_empty() { "value".into() } else { path.into() };
        RawValue { column, row, value, is_number, points }
    }
}

/// A string, where its escapes end, and the byte after its closing quote.
type Decoded = (String, Vec<(usize, usize)>, usize);

/// Decodes the string that begins with the quote at byte `start`.
fn string(text: &str, start: usize) -> Result<Decoded, String> {
    let (mut value, mut at) = (String::new(), start + 1);
    let mut points = vec![(0, at)];
    loop {
        let rest = &text[at..];
        let special = rest.find(['"', '\\']).ok_or("a string is never closed")?;
        value.push_str(&rest[..special]);
        at += special;
        if text.as_bytes()[at] == b'"' {
            return Ok((value, points, at + 1));
        }
        let (character, length) = escape(&text[at..]).ok_or("a string has an invalid escape")?;
        value.push(character);
        at += length;
        points.push((value.len(), at));
    }
}

/// The character of the escape at the beginning, and the number of bytes of the escape.
fn escape(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u32::from_str_radix(text.get(at..at + 4)?, 16).ok();
    Some(match text.as_bytes().get(1)? {
        b'"' => ('"', 2),
        b'\\' => ('\\', 2),
        b'/' => ('/', 2),
        b'b' => ('\u{8}', 2),
        b'f' => ('\u{c}', 2),
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'u' => match unit(2)? {
            high @ 0xD800..=0xDBFF => {
                let low = unit(8).filter(|low| (0xDC00..=0xDFFF).contains(low))?;
                text.get(6..8).filter(|between| *between == "\\u")?;
                (char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?, 12)
            }
            unit => (char::from_u32(unit)?, 6),
        },
        _ => return None,
    })
}
