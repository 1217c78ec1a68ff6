//! The rows of an owner's file, and the id under which each of them is released.
//!
//! A row is the unit of the owner's ledgers, so each row has exactly one release under a task and a
//! purpose, whatever its text. Ids and noise are functions of the raw bytes of a row's text and of
//! its number among the rows with the same text: the tokenizer comes from the provider, and may map
//! any two texts to the same tokens.

use super::purpose::Purpose;
use crate::error::{Error, Result};
use crate::frame::RecordId;
use crate::hex::{Hash, keyed_hash};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use undertone::data::{self, Format, format_of};

/// A row as it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The text, or both texts of a pair.
    pub texts: Vec<String>,
    pub label: Option<String>,
    pub line: u64,
}

impl Row {
    /// A row with a single text that is not from a file.
    pub fn of_text(text: &str) -> Self {
        Self { texts: vec![text.to_owned()], label: None, line: 0 }
    }

    /// Reads a file without contacting the provider, so the provider cannot observe an unreadable
    /// file.
    pub fn read(
        file: &Path,
        format: Option<Format>,
        texts: &[String],
        label: Option<&str>,
    ) -> Result<Vec<Self>> {
        let columns: Vec<&str> = texts.iter().map(String::as_str).chain(label).collect();
        let mut rows = Vec::new();
        for row in data::read::rows(file, format_of(file, format)?, &columns)? {
            let data::read::Row { line, mut values } = row?;
            let last = label.and_then(|_| values.pop());
            if let (Some(column), Some("")) = (label, last.as_deref()) {
                let (file, column) = (file.into(), column.to_owned());
                return Err(Error::Data(data::Error::MissingValue { file, line, column }));
            }
            rows.push(Self { texts: values, label: last, line });
        }
        Ok(rows)
    }
}

/// A keyed hash by which the owner's folder recognizes a text or a label.
pub type Tag = [u8; 16];

/// The released rows of each text: number among equal texts, and label.
pub type Known = HashMap<Tag, Vec<(u64, Tag)>>;

/// A row with its position among the releases of a task and a purpose.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    pub row: &'a Row,
    /// The label's number in the task.
    pub class: Option<u32>,
    pub text: Tag,
    pub label: Tag,
    /// Number among the rows with the same text.
    pub occurrence: u64,
    /// Whether it has been released before.
    pub is_known: bool,
    pub id: RecordId,
}

/// The keys of ids and noise.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub secret: &'a [u8; 32],
    pub task: &'a Hash,
    pub purpose: Purpose,
}

impl Key<'_> {
    /// A keyed hash of a row's texts and other data.
    fn hash(&self, about: &[u8], more: &[u8], texts: &[String]) -> Hash {
        let mut parts = vec![about, self.task.as_slice(), self.purpose.name().as_bytes(), more];
        parts.extend(texts.iter().map(String::as_bytes));
        keyed_hash(self.secret, &parts)
    }

    fn tag(&self, about: &[u8], more: &[u8], texts: &[String]) -> Tag {
        let hash = self.hash(about, more, texts);
        std::array::from_fn(|i| hash[i])
    }

    /// The secret from which a row's noise and the coin of its label are drawn.
    pub fn noise(&self, source: &Source) -> Hash {
        self.hash(b"noise of a row", &source.occurrence.to_le_bytes(), &source.row.texts)
    }

    /// Gives each row its number among the rows with the same text, and thereby its id.
    ///
    /// Rows that have been released keep their number: rows with the same label as before come
    /// first, then other rows of the same text, whose label has changed since and is not sent
    /// again. Otherwise a reordered file could send one row's label under two coins. All other rows
    /// are new.
    pub fn sources<'a>(
        &self,
        rows: &'a [Row],
        classes: &[Option<u32>],
        known: &Known,
    ) -> Vec<Source<'a>> {
        let mut sources: Vec<Source> = Vec::with_capacity(rows.len());
        let mut by_text: HashMap<Tag, Vec<usize>> = HashMap::new();
        for (at, (row, class)) in rows.iter().zip(classes).enumerate() {
            let text = self.tag(b"text", &[], &row.texts);
            let number = class.map_or(Vec::new(), |class| class.to_le_bytes().to_vec());
            let label = self.tag(b"label", &number, &row.texts);
            by_text.entry(text).or_default().push(at);
            let (class, id) = (*class, RecordId::default());
            sources.push(Source { row, class, text, label, occurrence: 0, is_known: false, id });
        }
        for (text, same) in by_text {
            number(&mut sources, &same, known.get(&text).map_or(&[][..], Vec::as_slice));
        }
        for source in &mut sources {
            let number = source.occurrence.to_le_bytes();
            source.id = self.tag(b"row", &number, &source.row.texts);
        }
        sources
    }
}

/// Numbers the rows of one text, given its earlier releases.
fn number(sources: &mut [Source], same: &[usize], known: &[(u64, Tag)]) {
    let mut by_label: HashMap<Tag, BTreeSet<u64>> = HashMap::new();
    known.iter().for_each(|(number, label)| {
        by_label.entry(*label).or_default().insert(*number);
    });
    let mut unmatched = Vec::new();
    for &at in same {
        match by_label.get_mut(&sources[at].label).and_then(BTreeSet::pop_first) {
            Some(occurrence) => {
                (sources[at].occurrence, sources[at].is_known) = (occurrence, true);
            }
            None => unmatched.push(at),
        }
    }
    let taken: BTreeSet<u64> = known.iter().map(|(number, _)| *number).collect();
    let mut changed: BTreeSet<u64> = by_label.into_values().flatten().collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    for at in unmatched {
        match changed.pop_first() {
            Some(occurrence) => {
                (sources[at].occurrence, sources[at].is_known) = (occurrence, true);
            }
            None => sources[at].occurrence = free.next().unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(purpose: Purpose) -> Key<'static> {
        Key { secret: &[7; 32], task: &[9; 32], purpose }
    }

    fn rows(texts: &[&str]) -> Vec<Row> {
        texts.iter().map(|text| Row::of_text(text)).collect()
    }

    /// Numbers each text and label of a file, and adds new ones to the known ones.
    fn numbered(file: &[(&str, u32)], known: &mut Known) -> Vec<(u64, bool)> {
        let rows = rows(&file.iter().map(|(text, _)| *text).collect::<Vec<_>>());
        let classes: Vec<Option<u32>> = file.iter().map(|(_, class)| Some(*class)).collect();
        let sources = key(Purpose::Contribution).sources(&rows, &classes, known);
        for source in sources.iter().filter(|source| !source.is_known) {
            known.entry(source.text).or_default().push((source.occurrence, source.label));
        }
        sources.iter().map(|source| (source.occurrence, source.is_known)).collect()
    }

    #[test]
    fn every_row_has_an_id_of_its_own() {
        let all = rows(&["a", "b", "a", "", "", "a"]);
        let mut ids: Vec<RecordId> = Vec::new();
        for purpose in [Purpose::Contribution, Purpose::Query] {
            let sources = key(purpose).sources(&all, &[None; 6], &Known::new());
            let numbers: Vec<u64> = sources.iter().map(|source| source.occurrence).collect();
            assert_eq!(numbers, [0, 0, 1, 0, 1, 2]);
            ids.extend(sources.iter().map(|source| source.id));
        }
        // A pair differs from the concatenation of its texts.
        let pair = vec![Row { texts: vec!["a".into(), "b".into()], label: None, line: 2 }];
        ids.push(key(Purpose::Query).sources(&pair, &[None], &Known::new())[0].id);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    /// Noise and coin belong to the row, not to its label.
    #[test]
    fn a_label_changes_neither_id_nor_noise() {
        let all = rows(&["a"]);
        let of = |class| {
            let key = key(Purpose::Contribution);
            let source = key.sources(&all, &[Some(class)], &Known::new()).remove(0);
            (source.id, key.noise(&source))
        };
        assert_eq!(of(0), of(1));
    }

    /// For any order of the file: a released row is not released again, and no label is sent under
    /// two coins.
    #[test]
    fn rows_are_known_again_by_text_and_label() {
        let mut known = Known::new();
        assert_eq!(numbered(&[("a", 1)], &mut known), [(0, false)]);
        assert_eq!(numbered(&[("a", 0), ("a", 1)], &mut known), [(1, false), (0, true)]);
        assert_eq!(numbered(&[("a", 1), ("a", 0)], &mut known), [(0, true), (1, true)]);
        // A changed label is not sent.
        assert_eq!(numbered(&[("a", 2), ("a", 1)], &mut known), [(1, true), (0, true)]);
        assert_eq!(numbered(&[("b", 2), ("a", 2)], &mut known), [(0, false), (0, true)]);
        assert_eq!(
            numbered(&[("a", 2), ("a", 0), ("a", 1), ("a", 2)], &mut known),
            [(2, false), (1, true), (0, true), (3, false)]
        );
    }

    /// A killed process may have stored some of a text's releases, but not the first ones.
    #[test]
    fn gaps_are_filled() {
        let mut known = Known::new();
        numbered(&[("a", 0), ("a", 1), ("a", 2)], &mut known);
        known.values_mut().for_each(|releases| releases.retain(|(number, _)| *number == 1));
        assert_eq!(
            numbered(&[("a", 0), ("a", 1), ("a", 2)], &mut known),
            [(0, false), (1, true), (2, false)]
        );
    }

    #[test]
    fn a_file_is_read_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Row::read(&file, None, &["text".into()], Some("label"))
        };
        let rows = read("label,text\n1,\"a\nb\"\n0,\n0,\n").unwrap();
        let texts: Vec<(&str, Option<&str>)> =
            rows.iter().map(|row| (row.texts[0].as_str(), row.label.as_deref())).collect();
        assert_eq!(texts, [("a\nb", Some("1")), ("", Some("0")), ("", Some("0"))]);
        assert!(read("label,text\n,a\n").unwrap_err().to_string().contains("label"));
        assert!(read("label,text\n1\n").is_err());
    }
}
