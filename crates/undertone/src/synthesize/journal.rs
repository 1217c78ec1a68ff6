//! `journal.jsonl`: every sampled text, as a row or with the reason why it was rejected. Rounds of
//! texts are appended whole, so that sampling resumes after the last complete round.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use undertone_run::SyntheticFormat;

/// Most bytes of a journal's first line.
const HEAD: u64 = 1 << 20;

/// The settings on which every sampled text depends: the journal's first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of the folder's layout.
    pub format: u32,
    pub rows: u64,
    pub temperature: f64,
    pub top_p: f64,
    /// Format in which the rows are written.
    pub data_format: SyntheticFormat,
    /// Number of texts per round. Resuming keeps it, even on a device with another default.
    pub batch: usize,
    /// The template of a row's texts.
    pub completion: String,
    /// Maximum number of tokens per text.
    pub most_tokens: u64,
    pub sampling_seed: u64,
}

impl Settings {
    /// The settings with which a journal was begun; `None` if there is no readable journal.
    pub fn recorded(journal: &Path) -> Option<Self> {
        let mut first = String::new();
        BufReader::new(File::open(journal).ok()?.take(HEAD)).read_line(&mut first).ok()?;
        let settings: Self = serde_json::from_str(&first).ok()?;
        Some(settings).filter(|settings| settings.batch > 0)
    }
}

/// A sampled text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Number of the text, starting at 0.
    pub attempt: u64,
    /// Index of its class.
    pub class: usize,
    /// The values of its text columns, if it is a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Vec<String>>,
    /// Why it was rejected, otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
}

/// The journal, open for appending.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The entries present when the journal was opened, each with the file's length after it.
    before: std::collections::VecDeque<(Entry, u64)>,
    /// Length of the file up to the last entry in use.
    length: u64,
}

impl Journal {
    /// Opens the journal of sampling with these settings, or creates it. The settings are the first
    /// line, which may be shared.
    pub fn open(path: &Path, settings: &impl Serialize) -> Result<Self> {
        let first = line(path, settings)?;
        // `symlink_metadata`, so that nothing is written through a link.
        if path.symlink_metadata().is_err() {
            let folder = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
            undertone_run::write_atomically(path, |out| out.write_all(&first))?;
        } else if path.is_symlink() {
            return Err(Error::folder(path, "is a symbolic link; remove it"));
        }
        let text = undertone_run::read_bytes(path, u64::MAX).map_err(Error::io(path))?;
        let mut file = OpenOptions::new().write(true).open(path).map_err(Error::io(path))?;
        let mut lines = text.split_inclusive(|&byte| byte == b'\n');
        let head = lines.next().unwrap_or_default();
        if head != first {
            return Err(Error::folder(
                path,
                "was started with other settings of [synthesis] or by another version; remove the \
                 folder synthetic/ to sample again",
            ));
        }
        let (mut before, mut length) = (std::collections::VecDeque::new(), head.len() as u64);
        for line in lines {
            // An incomplete line was still being written when the process was killed.
            if line.last() != Some(&b'\n') {
                break;
            }
            let Ok(entry) = serde_json::from_slice::<Entry>(line) else { break };
            length += line.len() as u64;
            before.push_back((entry, length));
        }
        let length = head.len() as u64;
        file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), file, before, length })
    }

    /// The entries of a round, if all of them were recorded for these classes.
    pub fn recorded(&mut self, first: u64, classes: &[usize]) -> Option<Vec<Entry>> {
        let expected = (first..).zip(classes);
        let same = self.before.len() >= classes.len()
            && (self.before.iter().zip(expected))
                .all(|((entry, _), (at, class))| entry.attempt == at && entry.class == *class);
        if !same {
            self.before.clear();
            return None;
        }
        let round: Vec<(Entry, u64)> = self.before.drain(..classes.len()).collect();
        self.length = round.last().map_or(self.length, |(_, length)| *length);
        Some(round.into_iter().map(|(entry, _)| entry).collect())
    }

    /// Appends a round, after the last one in use: an incomplete round is overwritten.
    pub fn append(&mut self, round: &[Entry]) -> Result<()> {
        let mut bytes = Vec::new();
        for entry in round {
            bytes.extend(line(&self.path, entry)?);
        }
        let write = |file: &mut File, length: u64| -> std::io::Result<()> {
            file.set_len(length)?;
            file.seek(SeekFrom::Start(length))?;
            file.write_all(&bytes)?;
            file.sync_data()
        };
        write(&mut self.file, self.length).map_err(Error::io(&self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn line(path: &Path, value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)
        .map_err(|e| Error::folder(path, format!("cannot be written as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}
