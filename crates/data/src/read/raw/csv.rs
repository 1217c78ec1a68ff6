//! Fields of CSV records, quoted as in RFC 4180, at their places.

use super::super::Separator;
use super::{RawValue, column, plain};
use std::sync::Arc;

pub(super) struct Csv {
    stated: Separator,
    separator: Option<char>,
    /// `None` before the header.
    columns: Option<Vec<Arc<str>>>,
}

impl Csv {
    pub fn new(stated: Separator) -> Csv {
        Csv { stated, separator: None, columns: None }
    }

    /// The values of the record from byte `skipped`, none for the header, and whether their number
    /// is wrong. `None` if a quoted field extends beyond the text.
    pub fn values(
        &mut self,
        text: &str,
        skipped: usize,
        row: &mut u64,
    ) -> Result<Option<(Vec<RawValue>, bool)>, &'static str> {
        let body = text.strip_suffix('\n').map_or(text, |t| t.strip_suffix('\r').unwrap_or(t));
        if body.len() <= skipped {
            return Ok(Some((Vec::new(), false)));
        }
        let separator =
            *self.separator.get_or_insert_with(|| self.stated.of_header(&body[skipped..]));
        let columns = self.columns.as_deref().unwrap_or_default();
        let (mut values, mut at): (Vec<RawValue>, usize) = (Vec::new(), skipped);
        loop {
            let column = column(columns, values.len());
            let value = match body[at..].starts_with('"') {
                true => {
                    let Some((value, end)) = quoted(text, at, column, *row + 1) else {
                        return Ok(None);
                    };
                    at = end;
                    value
                }
                false => {
                    let length = body[at..].find(separator).unwrap_or(body.len() - at);
                    let range = at..at + length;
                    at = range.end;
                    plain(body, range, column, *row + 1)
                }
            };
            values.push(value);
            match body.get(at..).and_then(|rest| rest.chars().next()) {
                None => break,
                Some(next) if next == separator => at += 1,
                Some(_) => return Err("text follows a closing quote"),
            }
        }
        if self.columns.is_none() {
            self.columns = Some(values.into_iter().map(|value| value.value.into()).collect());
            return Ok(Some((Vec::new(), false)));
        }
        *row += 1;
        let is_damaged = values.len() != columns.len();
        Ok(Some((values, is_damaged)))
    }
}

/// The field that begins with the quote at byte `start`, and the byte after its closing quote.
fn quoted(text: &str, start: usize, column: Arc<str>, row: u64) -> Option<(RawValue, usize)> {
    let (mut value, mut at) = (String::new(), start + 1);
    let mut points = vec![(0, at)];
    loop {
        let quote = at + text[at..].find('"')?;
        value.push_str(&text[at..quote]);
        at = quote + 1;
        if !text[at..].starts_with('"') {
            return Some((RawValue { column, row, value, is_number: false, points }, at));
        }
        value.push('"');
        at += 1;
        points.push((value.len(), at));
    }
}
