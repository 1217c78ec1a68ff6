//! The file by which the ranks of a job find rank 0. It contains the job's key, so only its owner
//! may read it, and it exists only until all ranks have joined.

use super::super::{Error, Result};
use super::Key;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const NAME: &str = "rendezvous.json";

/// The address of rank 0 and the job's key.
#[derive(Serialize, Deserialize)]
pub struct Meeting {
    /// The key in hexadecimal.
    key: String,
    pub host: String,
    /// The addresses at which rank 0 may be reached.
    pub addresses: Vec<String>,
    pub port: u16,
}

impl Meeting {
    pub fn new(key: &Key, host: String, addresses: Vec<String>, port: u16) -> Self {
        let key = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { key, host, addresses, port }
    }

    pub fn key(&self) -> Option<Key> {
        let byte = |i: usize| u8::from_str_radix(self.key.get(2 * i..2 * i + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
        Some(Key(bytes?.try_into().ok()?))
    }

    /// Writes the file, replacing one left by an earlier job.
    pub fn write(&self, folder: &Path) -> Result<Kept> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |e: std::io::Error| Error::Refused(format!("{path} cannot be written: {e}"))
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder).map_err(failed(folder))?;
        check_folder(folder)?;
        let path = folder.join(NAME);
        let part = folder.join(format!("{NAME}.{}", std::process::id()));
        let text = serde_json::to_string(self).unwrap_or_default();
        let _ = fs::remove_file(&part);
        let mut file = undertone_run::create_secret(&part).map_err(failed(&part))?;
        file.write_all(text.as_bytes()).map_err(failed(&part))?;
        file.sync_all().map_err(failed(&part))?;
        fs::rename(&part, &path).map_err(failed(&path))?;
        Ok(Kept { path, text })
    }

    /// Reads the file; `None` if it does not exist yet.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        check_folder(folder)?;
        let path = folder.join(NAME);
        let refused = |problem: &str| Error::Refused(format!("{} {problem}", path.display()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(refused(&format!("cannot be read: {e}"))),
        };
        #[cfg(unix)]
        if let Ok(metadata) = fs::metadata(&path)
            && std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0
        {
            return Err(refused("is readable by others and contains the job's key: remove it"));
        }
        serde_json::from_str(&text).map(Some).map_err(|_| refused("is not the file of a job"))
    }
}

/// Rejects a folder that others can write to: they could replace the file, and ranks would join
/// their job.
#[cfg_attr(not(unix), expect(unused_variables))]
fn check_folder(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    if let Ok(metadata) = fs::metadata(folder) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
        if mode & 0o022 != 0 {
            let name = folder.display();
            return Err(Error::Refused(format!(
                "other users can write to {name} (mode {mode:04o}) and could replace the file by \
                 which ranks find each other; run chmod go-w {name}, or choose another folder"
            )));
        }
    }
    Ok(())
}

/// The file while rank 0 is waiting for other ranks.
pub struct Kept {
    path: PathBuf,
    text: String,
}

impl Drop for Kept {
    /// Removes the file, unless another job has replaced it.
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
