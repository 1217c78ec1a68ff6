//! Atomic writes: a file is either complete or absent, even after a crash.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Suffix of the temporary file that is later renamed to its final name.
const PART: &str = ".undertone-part";

/// Path of the temporary file that is renamed to `path` once complete.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(PART);
    path.with_file_name(name)
}

/// Writes a temporary file next to `path`, syncs it to disk, and renames it to `path`. Never writes
/// through a symbolic link.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let beside = part_of(path);
    let written = (|| {
        let file = match File::create_new(&beside) {
            // A leftover from an interrupted process.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                fs::remove_file(&beside)?;
                File::create_new(&beside)?
            }
            made => made?,
        };
        let mut writer = BufWriter::with_capacity(1 << 20, file);
        write(&mut writer)?;
        writer.into_inner().map_err(|e| e.into_error())?.sync_all()?;
        fs::rename(&beside, path)
    })();
    if let Err(source) = written {
        // Do not leave a partial file on a full disk.
        let _ = fs::remove_file(&beside);
        return Err(Error::io(path)(source));
    }
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        // Some file systems cannot sync a directory; the rename has already succeeded.
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Atomically writes a value as indented JSON.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::folder(path, format!("cannot be written as JSON: {e}")))?;
    write_atomically(path, |out| {
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")
    })
}
