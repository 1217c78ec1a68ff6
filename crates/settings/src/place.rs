//! Paths as they are stored and shown, in the notations of all systems.

use std::path::{Path, PathBuf};

/// The absolute path of an existing file or folder, with symbolic links resolved.
///
/// On Windows, [`Path::canonicalize`] returns `\\?\C:\models`, which other programs may not
/// understand; this returns `C:\models`.
pub fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    path.canonicalize().map(without_verbatim_prefix)
}

#[cfg(not(windows))]
fn without_verbatim_prefix(path: PathBuf) -> PathBuf {
    path
}

#[cfg(windows)]
fn without_verbatim_prefix(path: PathBuf) -> PathBuf {
    let shorter = path.to_str().and_then(|text| match text.strip_prefix(r"\\?\UNC\") {
        Some(share) => Some(PathBuf::from(format!(r"\\{share}"))),
        None => text.strip_prefix(r"\\?\").map(PathBuf::from),
    });
    // Without the prefix, long paths and reserved names may refer to something else.
    shorter.filter(|shorter| shorter.canonicalize().is_ok_and(|same| same == path)).unwrap_or(path)
}

/// The last component of a path, in the notation of any system: the name of a model's folder,
/// without the folders above it, which may reveal who trained it.
pub fn last_component(path: &str) -> &str {
    const SEPARATORS: [char; 2] = ['/', '\\'];
    path.trim_end_matches(SEPARATORS).rsplit(SEPARATORS).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_path_names_the_same_folder_and_has_no_prefix() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("one")).unwrap();
        let real = real_path(&folder.path().join("one").join("..").join("one")).unwrap();
        assert!(real.is_absolute() && real.ends_with("one"), "{}", real.display());
        assert!(!real.to_string_lossy().starts_with(r"\\?\"), "{}", real.display());
        assert_eq!(real.canonicalize().unwrap(), folder.path().join("one").canonicalize().unwrap());
        assert!(real_path(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn the_last_component_is_found_in_any_notation() {
        for path in ["bert", "models/bert", "/home/ann/bert/", r"C:\Users\ann\bert", r"D:/bert\"] {
            assert_eq!(last_component(path), "bert", "{path}");
        }
    }
}
