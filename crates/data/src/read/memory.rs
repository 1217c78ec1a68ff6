//! Rows held in memory by another program, read under the path of a JSON Lines file.
//!
//! While a [`MemoryFile`] exists, everything that reads its path reads these rows, exactly as it
//! would read a file with one of these objects per line. A run on rows in memory therefore equals a
//! run on such a file, and the same code computes labels, privacy units and held-out rows.

use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Rows by column name.
type Objects = Arc<Vec<Map<String, Value>>>;

static FILES: LazyLock<RwLock<HashMap<PathBuf, Objects>>> = LazyLock::new(RwLock::default);

/// Rows in memory that are read under a path until this value is dropped.
#[derive(Debug)]
pub struct MemoryFile {
    path: PathBuf,
    rows: Objects,
}

impl MemoryFile {
    /// Places rows under a path, which must end in `.jsonl`. They replace any rows already under
    /// this path.
    pub fn new(path: PathBuf, rows: Vec<Map<String, Value>>) -> Self {
        let rows = Objects::new(rows);
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        files.insert(path.clone(), Arc::clone(&rows));
        Self { path, rows }
    }

    /// The path under which the rows are read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rows, one object each.
    pub fn rows(&self) -> &[Map<String, Value>] {
        &self.rows
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        if files.get(&self.path).is_some_and(|rows| Arc::ptr_eq(rows, &self.rows)) {
            files.remove(&self.path);
        }
    }
}

/// The rows in memory under this path, if there are any.
pub(super) fn rows(path: &Path) -> Option<Objects> {
    FILES.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Format, read};
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn values(path: &Path, columns: &[&str]) -> crate::Result<Vec<(u64, Vec<String>)>> {
        let rows = read::rows(path, Format::Jsonl, columns)?;
        rows.map(|row| row.map(|row| (row.line, row.values))).collect()
    }

    #[test]
    fn rows_in_memory_are_read_as_those_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("[odd]*.jsonl");
        let rows = [
            json!({"text": "a\nb", "label": 3, "meta": {"who": "x"}}),
            json!({"text": "", "label": 1.5, "meta": {"who": true}}),
        ];
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let columns = ["text", "label", "meta.who"];
        let memory = MemoryFile::new(path.clone(), rows.iter().cloned().map(object).collect());
        let from_memory = values(&path, &columns).unwrap();
        let names = read::columns(&path, Format::Jsonl).unwrap();
        assert!(!path.exists() && memory.path() == path && memory.rows().len() == 2);
        drop(memory);
        assert!(matches!(values(&path, &columns), Err(Error::NoFiles { .. })));
        std::fs::write(&path, text).unwrap();
        assert_eq!(values(&path, &columns).unwrap(), from_memory);
        assert_eq!(read::columns(&path, Format::Jsonl).unwrap(), names);
    }

    #[test]
    fn mistakes_are_those_of_a_file() {
        let path = PathBuf::from("mistakes-in-memory.jsonl");
        let rows = [json!({"text": "a"}), json!({"text": null}), json!({"text": [1]})];
        let memory = MemoryFile::new(path.clone(), rows.into_iter().map(object).collect());
        let error = values(&path, &["text"]).unwrap_err();
        assert!(matches!(error, Error::MissingValue { line: 2, .. }), "{error}");
        let error = values(&path, &["words"]).unwrap_err();
        assert!(matches!(error, Error::MissingColumn { .. }), "{error}");
        let empty = MemoryFile::new(path.clone(), Vec::new());
        // The replaced rows no longer count, and dropping them must not remove the new ones.
        drop(memory);
        assert!(matches!(values(&path, &["text"]), Err(Error::EmptyFile { .. })));
        drop(empty);
    }
}
