//! The hash of a model's weights.

use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// SHA-256 of the names and contents of the safetensors files in a folder, in hexadecimal. The
/// model card and other files may change without changing the hash.
pub fn weights_hash(folder: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(Error::io(folder))?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "safetensors"));
    files.sort();
    if files.is_empty() {
        return Err(Error::folder(folder, "holds no weights (*.safetensors)"));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for path in &files {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let mut file = crate::open_regular(path).map_err(Error::io(path))?;
        let length = file.metadata().map_err(Error::io(path))?.len();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(length.to_le_bytes());
        loop {
            match file.read(&mut buffer).map_err(Error::io(path))? {
                0 => break,
                count => hash.update(&buffer[..count]),
            }
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
