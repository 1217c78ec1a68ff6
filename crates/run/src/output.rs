//! Rules for which files a command may write, in one place: losing a file is worse than having to
//! name another one.

use crate::folder::RunPaths;
use crate::part_of;
use crate::{Error, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of bytes of an existing file to inspect.
const LOOKED_AT: u64 = 1 << 24;

/// Checks that a command may write `path`: a new file, or a regular file written earlier by the
/// same command, which `is_ours` recognizes from its text. Files that the command reads, and files
/// in the folder of a run or a model, are rejected.
pub fn check_output(path: &Path, reads: &[&Path], is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let refuse = |problem: &str| Err(Error::folder(path, problem));
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else { return refuse("is not a file; name a file") };
    let Ok(folder) = folder.canonicalize() else {
        return refuse("the folder of this file does not exist; create it first");
    };
    let place = folder.join(name);
    for read in reads {
        if same_file(&place, read) || same_file(&part_of(&place), read) {
            return refuse("is an input file and would be lost; name another file");
        }
    }
    if folder.ancestors().any(is_run_folder) {
        return refuse("is in a run folder, whose files would be lost; name another folder");
    }
    if is_model_folder(&folder) {
        return refuse("is in the folder of a model; name another folder");
    }
    match place.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(metadata) if metadata.is_dir() => refuse("is a folder; name a file"),
        Ok(metadata) if !metadata.is_file() => {
            refuse("is a link or a device, not a regular file; name another file")
        }
        Ok(_) => {
            let mut text = Vec::new();
            let file = std::fs::File::open(&place).map_err(Error::io(path))?;
            file.take(LOOKED_AT).read_to_end(&mut text).map_err(Error::io(path))?;
            match text.is_empty() || is_ours(&String::from_utf8_lossy(&text)) {
                true => Ok(()),
                false => refuse(
                    "exists and was written by something else; remove it, or name \
                                 another file",
                ),
            }
        }
    }
}

/// Checks that a command may create this folder: it must not exist, or be empty.
pub fn check_new_folder(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(metadata) if !metadata.is_dir() => Err(Error::folder(path, "is a file; name a folder")),
        Ok(_) => match std::fs::read_dir(path).map_err(Error::io(path))?.next() {
            None => Ok(()),
            Some(_) => Err(Error::folder(path, "already contains files; name a new folder")),
        },
    }
}

/// Whether two paths refer to the same file, even if the first does not exist yet.
fn same_file(place: &Path, other: &Path) -> bool {
    other.canonicalize().is_ok_and(|other| {
        place.canonicalize().map_or_else(|_| place == other, |place| place == other)
    })
}

fn is_run_folder(folder: &Path) -> bool {
    let paths = RunPaths::new(folder);
    let others = [paths.lock(), paths.ledger(), paths.summary()];
    paths.plan().exists() && others.iter().any(|path: &PathBuf| path.exists())
}

fn is_model_folder(folder: &Path) -> bool {
    let config = ["config.json", "adapter_config.json"].map(|name| folder.join(name).exists());
    let is_weights = |path: &Path| path.extension().is_some_and(|ending| ending == "safetensors");
    config.contains(&true)
        && std::fs::read_dir(folder)
            .is_ok_and(|mut files| files.any(|file| file.is_ok_and(|f| is_weights(&f.path()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_new_files_and_own_ones_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let ours = |text: &str| text.starts_with("ours");
        let check = |name: &str, reads: &[&Path]| check_output(&at(name), reads, ours);
        check("new.jsonl", &[]).unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("own"), "ours, of yesterday").unwrap();
        check("empty", &[]).unwrap();
        check("own", &[]).unwrap();

        let problem = |name: &str, reads: &[&Path]| check(name, reads).unwrap_err().to_string();
        fs::write(at("foreign"), "the thesis").unwrap();
        assert!(problem("foreign", &[]).contains("was written by something else"));
        assert!(problem("own", &[&at("own")]).contains("is an input file"));
        let part = part_of(&at("said"));
        fs::write(&part, "data").unwrap();
        assert!(problem("said", &[&part]).contains("is an input file"));
        assert!(problem("missing/said", &[]).contains("does not exist"));
        fs::create_dir(at("folder")).unwrap();
        assert!(problem("folder", &[]).contains("is a folder"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("foreign"), at("link")).unwrap();
            assert!(problem("link", &[]).contains("is a link"));
            std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
            assert!(problem("dangling", &[]).contains("is a link"));
            assert!(check_output(Path::new("/dev/null"), &[], ours).is_err());
        }
    }

    #[test]
    fn nothing_is_written_into_runs_and_models() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let model = run.join("model");
        fs::create_dir_all(&model).unwrap();
        let check = |path: PathBuf| check_output(&path, &[], |_| true);
        check(model.join("said.jsonl")).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        fs::write(model.join("model.safetensors"), "").unwrap();
        assert!(check(model.join("said.jsonl")).is_err());
        assert!(check(model.join("config.json")).is_err());
        check(run.join("report.html")).unwrap();
        fs::write(run.join("plan.toml"), "").unwrap();
        fs::write(run.join("ledger.jsonl"), "").unwrap();
        assert!(check(run.join("report.html")).is_err());
        assert!(check(run.join("ledger.jsonl")).is_err());
        check(folder.path().join("report.html")).unwrap();
    }
}
