//! Atomic writes: a file is either complete or absent, even after a crash.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
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
    write_new(path, |path| File::create_new(path), write)
}

/// [`write_atomically`] for a file that only its owner can read, like one of [`create_secret`].
pub fn write_secret_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    write_new(path, create_secret, write)
}

/// Creates a file that only its owner can read. It must be new: an existing one may be readable by
/// others, or be a link to a location where others can read it.
///
/// On Windows, the file has the permissions of its folder.
pub fn create_secret(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn write_new(
    path: &Path,
    create: impl Fn(&Path) -> std::io::Result<File>,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let beside = part_of(path);
    let written = (|| {
        let file = match create(&beside) {
            // A leftover from an interrupted process.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                fs::remove_file(&beside)?;
                create(&beside)?
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
    // The parent of a bare file name is empty.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        // Some file systems cannot sync a directory; the rename has already succeeded. Windows
        // cannot even open one like this.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_what_is_left_over_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(part_of(&path), "left over").unwrap();
        write_atomically(&path, |out| out.write_all(b"first")).unwrap();
        // On Windows, whether an open file can be replaced depends on the file system.
        let _reader = cfg!(unix).then(|| File::open(&path).unwrap());
        write_atomically(&path, |out| out.write_all(b"second")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        let failing = |_: &mut BufWriter<File>| Err(std::io::ErrorKind::StorageFull.into());
        assert!(write_atomically(&path, failing).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert!(!part_of(&path).exists());
    }

    #[test]
    fn secrets_are_new_files_that_only_their_owner_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("secret"), folder.path().join("other"));
        create_secret(&path).unwrap().write_all(b"secret").unwrap();
        assert!(create_secret(&path).is_err());
        write_secret_atomically(&other, |out| out.write_all(b"secret")).unwrap();
        for path in [path, other] {
            assert_eq!(fs::read(&path).unwrap(), b"secret");
            #[cfg(unix)]
            {
                let permissions = fs::metadata(&path).unwrap().permissions();
                let mode = std::os::unix::fs::PermissionsExt::mode(&permissions);
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            }
        }
    }
}
