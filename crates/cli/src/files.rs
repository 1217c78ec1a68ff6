//! Files that must not be written over.

use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};

/// Where a path leads, also if nothing is there yet.
fn place(path: &Path) -> PathBuf {
    if let Ok(place) = path.canonicalize() {
        return place;
    }
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    parent
        .canonicalize()
        .unwrap_or_else(|_| parent.to_owned())
        .join(path.file_name().unwrap_or_default())
}

/// Refuses to write a file that is something else too: what is read, or what another argument
/// names.
pub fn refuse_same(out: &Path, other: &Path, what: &str) -> Outcome {
    if place(out) == place(other) {
        return Err(Failure::arguments(format!(
            "--out {} is {what}, which would be lost; name another file",
            out.display()
        )));
    }
    Ok(())
}

/// Refuses to write over what a run keeps in its folder; reports may be written anew.
pub fn refuse_file_of_run(out: &Path, run: &Path) -> Outcome {
    let is_report = out.extension().is_some_and(|ending| ending == "html" || ending == "md");
    let is_inside = place(out).starts_with(place(run));
    if is_inside
        && out.exists()
        && (!is_report || out.file_name().is_some_and(|name| name == "README.md"))
    {
        return Err(Failure::arguments(format!(
            "--out {} is a file of the run {}, which would be lost; name another file",
            out.display(),
            run.display()
        )));
    }
    Ok(())
}
