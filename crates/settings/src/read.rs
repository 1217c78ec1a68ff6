//! Reading untrusted files: only regular files of bounded size. A FIFO would block forever, and a
//! device or a huge file would exhaust memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Maximum size of a settings file (JSON or TOML), in bytes.
pub const MOST_OF_SETTINGS: u64 = 64 << 20;

/// Opens a regular file, following symbolic links.
pub fn open_regular(path: &Path) -> Result<File> {
    // Check before opening: opening a FIFO blocks until there is a writer.
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(path)
}

/// Reads a regular file of at most `most` bytes.
pub fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it is larger than {} MB", most >> 20);
        return Err(Error::new(ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// Reads a settings file as UTF-8 text.
pub fn read_settings(path: &Path) -> Result<String> {
    let bytes = read_bytes(path, MOST_OF_SETTINGS)?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_irregular_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings");
        std::fs::write(&file, "four").unwrap();
        assert_eq!(read_bytes(&file, 4).unwrap(), b"four");
        assert!(read_bytes(&file, 3).unwrap_err().to_string().contains("larger"));
        assert!(read_settings(folder.path()).is_err());
        assert!(read_settings(Path::new("/dev/zero")).is_err());
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(read_settings(&file).unwrap_err().to_string().contains("UTF-8"));
    }
}
