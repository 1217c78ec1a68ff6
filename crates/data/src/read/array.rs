//! Reads a JSON array of objects, one element at a time.
//!
//! Elements are delimited by scanning brackets and quotes, so that at most one of them is in
//! memory, and each is then parsed separately.

use super::super::error::{Error, Result};
use super::input::Input;
use super::lines::MOST_BYTES;
use super::meter::Meter;
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Whether a file's first byte, after any byte order mark and white space, opens an array.
pub(super) fn begins_array(path: &Path) -> Result<bool> {
    let mut bytes = Bytes::open(path)?;
    Ok(bytes.next_visible()? == Some(b'['))
}

/// The elements of an array, as raw bytes.
pub(super) struct Elements {
    bytes: Bytes,
    most_bytes: usize,
    begun: bool,
    ended: bool,
}

impl Elements {
    pub fn open(path: &Path) -> Result<Elements> {
        let mut bytes = Bytes::open(path)?;
        bytes.next_visible()?;
        bytes.take();
        Ok(Elements { bytes, most_bytes: MOST_BYTES, begun: false, ended: false })
    }

    pub fn file(&self) -> &Path {
        &self.bytes.file
    }

    pub fn meter(&self) -> &Meter {
        self.bytes.input.meter()
    }

    /// Reads the next element into `text`; returns the line on which it starts.
    pub fn read(&mut self, text: &mut Vec<u8>) -> Result<Option<u64>> {
        text.clear();
        if self.ended {
            return Ok(None);
        }
        let mut next = self.bytes.next_visible()?;
        if next == Some(b']') {
            self.bytes.take();
            return self.end();
        }
        if self.begun {
            // Consume the comma after the previous element.
            self.bytes.take();
            next = self.bytes.next_visible()?;
        }
        self.begun = true;
        let line = self.bytes.line;
        if matches!(next, None | Some(b',' | b']')) {
            return Err(self.bad("an element is missing"));
        }
        self.element(line, text)?;
        Ok(Some(line))
    }

    /// Reads up to a comma or closing bracket outside quotes and inner brackets.
    fn element(&mut self, line: u64, text: &mut Vec<u8>) -> Result<()> {
        let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
        loop {
            let Some(byte) = self.bytes.peek()? else {
                return Err(self.bad("the array is not closed"));
            };
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ if quoted => {}
                b',' | b']' if depth == 0 => return Ok(()),
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            text.push(byte);
            self.bytes.take();
            if text.len() > self.most_bytes {
                let file = self.bytes.file.clone();
                return Err(Error::LineTooLong { file, line, limit: self.most_bytes });
            }
        }
    }

    /// Checks that only white space follows the array.
    fn end(&mut self) -> Result<Option<u64>> {
        self.ended = true;
        match self.bytes.next_visible()? {
            None => Ok(None),
            Some(_) => Err(self.bad("text follows the array")),
        }
    }

    fn bad(&self, problem: &'static str) -> Error {
        Error::BadArray { file: self.bytes.file.clone(), line: self.bytes.line, problem }
    }
}

/// The bytes of a file, with the current line number.
struct Bytes {
    file: PathBuf,
    input: Input,
    line: u64,
}

impl Bytes {
    fn open(path: &Path) -> Result<Bytes> {
        let mut bytes = Bytes { file: path.into(), input: Input::open(path)?, line: 1 };
        // A byte order mark starts with a byte that cannot start a JSON text.
        if bytes.peek()? == Some(0xEF) {
            for mark in [0xEF, 0xBB, 0xBF] {
                if bytes.peek()? == Some(mark) {
                    bytes.take();
                }
            }
        }
        Ok(bytes)
    }

    fn peek(&mut self) -> Result<Option<u8>> {
        let buffer = self.input.fill_buf().map_err(|e| Error::io(&self.file, &e))?;
        Ok(buffer.first().copied())
    }

    /// Consumes the peeked byte.
    fn take(&mut self) {
        if self.input.fill_buf().is_ok_and(|buffer| buffer.first() == Some(&b'\n')) {
            self.line += 1;
        }
        self.input.consume(1);
    }

    /// Skips white space.
    fn next_visible(&mut self) -> Result<Option<u8>> {
        while let Some(byte) = self.peek()? {
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.take();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str, most_bytes: usize) -> Result<Vec<(u64, String)>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        std::fs::write(&file, text).unwrap();
        assert!(begins_array(&file).unwrap(), "{text}");
        let mut elements = Elements::open(&file)?;
        elements.most_bytes = most_bytes;
        let (mut element, mut all) = (Vec::new(), Vec::new());
        while let Some(line) = elements.read(&mut element)? {
            all.push((line, String::from_utf8(element.clone()).unwrap().trim().to_owned()));
        }
        Ok(all)
    }

    #[test]
    fn brackets_and_quotes_end_no_element_inside_it() {
        let text = "\u{feff} [\n {\"a\": \"],\\\"}{\"},\n\n [1, {\"b\": [2]}], 3 ] \n";
        let expected = [(2, "{\"a\": \"],\\\"}{\"}"), (4, "[1, {\"b\": [2]}]"), (4, "3")];
        let expected = expected.map(|(line, text)| (line, text.to_owned()));
        assert_eq!(elements(text, 100).unwrap(), expected);
        assert_eq!(elements("[]", 100).unwrap(), []);
    }

    #[test]
    fn an_element_is_bounded() {
        assert!(elements("[12345]", 5).is_ok());
        assert!(matches!(
            elements("[1,\n123456]", 5),
            Err(Error::LineTooLong { line: 2, limit: 5, .. })
        ));
    }

    #[test]
    fn an_array_that_is_none_is_refused_at_its_line() {
        for (text, problem) in [
            ("[1\n,", "element is missing"),
            ("[1,,2]", "element is missing"),
            ("[1,]", "element is missing"),
            ("[\n\n{\"a\": 1", "not closed"),
            ("[\"]", "not closed"),
            ("[1] 2", "follows"),
            ("[", "element is missing"),
        ] {
            let error = elements(text, 100).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
