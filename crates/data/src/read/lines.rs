//! Numbered lines of UTF-8 text, of bounded length.

use super::super::error::{Error, Result};
use super::input::Input;
use super::meter::Meter;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// Maximum number of bytes in a row. A longer row means that rows are not separated by line breaks,
/// and reading further would exhaust memory.
pub(super) const MOST_BYTES: usize = 64 << 20;

const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Reads a file line by line.
pub(super) struct Lines {
    file: PathBuf,
    input: Input,
    number: u64,
    most_bytes: usize,
}

/// Number and line break of a line.
pub(super) struct Line {
    /// Line number, from 1.
    pub number: u64,
    /// The line break that followed; empty at the end of the file.
    pub ending: &'static str,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Lines> {
        let input = Input::open(path)?;
        Ok(Lines { file: path.into(), input, number: 0, most_bytes: MOST_BYTES })
    }

    /// Reads the next line into `text`, without its line break and any byte order mark.
    pub fn read(&mut self, text: &mut String) -> Result<Option<Line>> {
        let mut bytes = std::mem::take(text).into_bytes();
        bytes.clear();
        let most = self.most_bytes as u64 + 1;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut bytes);
        let read = read.map_err(|e| Error::io(&self.file, &e))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if bytes.len() > self.most_bytes {
            return Err(self.too_long(self.number));
        }
        let ending = match bytes.as_slice() {
            [.., b'\r', b'\n'] => "\r\n",
            [.., b'\n'] => "\n",
            _ => "",
        };
        bytes.truncate(bytes.len() - ending.len());
        if self.number == 1 && bytes.starts_with(MARK) {
            bytes.drain(..MARK.len());
        }
        *text = String::from_utf8(bytes)
            .map_err(|_| Error::BadUtf8 { file: self.file.clone(), line: self.number })?;
        Ok(Some(Line { number: self.number, ending }))
    }

    pub fn too_long(&self, line: u64) -> Error {
        Error::LineTooLong { file: self.file.clone(), line, limit: self.most_bytes }
    }

    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn meter(&self) -> &Meter {
        self.input.meter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], most_bytes: usize) -> Result<Vec<(u64, String, &'static str)>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, bytes).unwrap();
        let mut lines = Lines::open(&file)?;
        lines.most_bytes = most_bytes;
        let (mut text, mut all) = (String::new(), Vec::new());
        while let Some(line) = lines.read(&mut text)? {
            all.push((line.number, text.clone(), line.ending));
        }
        assert_eq!(lines.meter().done(), lines.meter().total());
        Ok(all)
    }

    #[test]
    fn breaks_of_every_kind_and_the_mark_are_taken_off() {
        let all = lines(b"\xEF\xBB\xBFa\r\n\nb", 100).unwrap();
        assert_eq!(all, [(1, "a".into(), "\r\n"), (2, "".into(), "\n"), (3, "b".into(), "")]);
        assert_eq!(lines(b"", 100).unwrap(), []);
    }

    #[test]
    fn bad_bytes_are_found_at_their_line() {
        assert!(matches!(lines(b"a\nb\xFF\n", 100), Err(Error::BadUtf8 { line: 2, .. })));
    }

    #[test]
    fn a_line_is_bounded() {
        assert!(lines(b"1234\n123", 5).is_ok());
        assert!(matches!(
            lines(b"1234\n123456789", 5),
            Err(Error::LineTooLong { line: 2, limit: 5, .. })
        ));
    }
}
