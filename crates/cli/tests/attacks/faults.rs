//! File system errors: no space, file size limits, too many open files, and streams that are
//! closed, full or not read.

use super::commands::CASES;
use super::invoke::{Stream, Surroundings, invoke};
use super::random::Random;
use super::world::World;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file system error prepared for a command.
pub struct Fault {
    pub surroundings: Surroundings,
    /// An output file on a full device: the path of the link and the file's name.
    full: Option<(PathBuf, PathBuf)>,
    /// Nothing can be created in the folder (except by root).
    read_only: bool,
}

impl Fault {
    /// Draws an error for the command with this index.
    pub fn draw(random: &mut Random, world: &World, case: usize) -> Self {
        let stream = *random.pick(&[Stream::Out, Stream::Err]);
        let mut fault = Self { surroundings: Surroundings::Ordinary, full: None, read_only: false };
        let written = written(world, case);
        match random.below(10) {
            0 => fault.surroundings = Surroundings::FileSize(random.below(64) as u32),
            1 => fault.surroundings = Surroundings::OpenFiles(4 + random.below(16) as u32),
            2 => fault.surroundings = Surroundings::Closed(*random.pick(&[Stream::In, stream])),
            3 => fault.surroundings = Surroundings::Deaf(stream),
            4 => fault.read_only = true,
            5..=8 if !written.is_empty() => {
                let file = random.pick(written).clone();
                let mut name = file.clone().into_os_string();
                name.push(random.pick(&["", ".part", ".new"]));
                fault.full = Some((name.into(), file));
            }
            _ => fault.surroundings = Surroundings::Full(stream),
        }
        fault
    }

    /// Makes the folder read-only, or adds a link to a full device.
    pub fn prepare(&self, folder: &Path) {
        if self.read_only {
            fs::set_permissions(folder, Permissions::from_mode(0o555)).unwrap();
        }
        if let Some((link, _)) = &self.full {
            let link = folder.join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&link);
            symlink("/dev/full", link).unwrap();
        }
    }

    /// Makes the folder removable again.
    pub fn end(&self, folder: &Path) {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }

    /// Whether the output file is still missing.
    pub fn is_answer_lost(&self, folder: &Path) -> bool {
        self.full.as_ref().is_some_and(|(_, file)| {
            !folder.join(file).symlink_metadata().is_ok_and(|data| data.is_file())
        })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.full {
            Some((link, _)) => write!(f, "no space for {}", link.display()),
            None if self.read_only => write!(f, "the folder is read-only"),
            None => write!(f, "{:?}", self.surroundings),
        }
    }
}

/// The files that a command writes on success.
fn written(world: &World, case: usize) -> &'static [PathBuf] {
    static WRITTEN: [OnceLock<Vec<PathBuf>>; CASES.len()] =
        [const { OnceLock::new() }; CASES.len()];
    WRITTEN[case].get_or_init(|| {
        let case = &CASES[case];
        let copy = world.copy(case.line);
        let before = files(copy.path());
        let ended = invoke(copy.path(), &case.arguments(), Surroundings::Ordinary);
        assert!(ended.is_success(), "{}: {}", case.line, ended.said());
        let after = files(copy.path());
        let new = after.difference(&before).filter(|file| !file.ends_with("run.lock"));
        new.filter(|file| file.extension().is_none_or(|e| e != "lock")).cloned().collect()
    })
}

/// The files below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                all.insert(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    all
}
