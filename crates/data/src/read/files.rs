//! Resolves a path to files: a single file, all files that match a pattern (`*`, `?`, `[…]`, `**`),
//! or the Parquet shards of a Hugging Face dataset folder.

use super::super::error::{Error, Result};
use super::memory;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of files read as one.
const MOST_FILES: usize = 100_000;

/// The files of a path, sorted by name.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if memory::rows(path).is_some() {
        return Ok(vec![path.to_owned()]);
    }
    if path.is_dir() {
        return shards(path);
    }
    let pattern =
        path.to_str().filter(|text| text.contains(['*', '?', '['])).filter(|_| !path.exists());
    let Some(pattern) = pattern else { return Ok(vec![path.to_owned()]) };
    let wrong = |reason: String| Error::Io { file: path.into(), reason };
    let mut matching = Vec::new();
    for entry in glob::glob(pattern).map_err(|e| wrong(format!("the pattern is wrong: {e}")))? {
        let entry = entry.map_err(|e| wrong(e.to_string()))?;
        if entry.is_file() {
            matching.push(entry);
        }
        if matching.len() > MOST_FILES {
            return Err(wrong(format!("it matches more than {MOST_FILES} files")));
        }
    }
    match matching.is_empty() {
        true => Err(Error::NoFiles { pattern: path.into() }),
        false => Ok(matching),
    }
}

/// The Parquet files of a dataset folder or of its `data` subfolder. If there are several splits,
/// the one named train.
fn shards(folder: &Path) -> Result<Vec<PathBuf>> {
    let none = || Error::Io {
        file: folder.into(),
        reason: "the folder has no .parquet files; name a file, or a pattern such as folder/*.csv"
            .into(),
    };
    for place in [folder.to_owned(), folder.join("data")] {
        let Ok(entries) = std::fs::read_dir(&place) else { continue };
        let is_parquet = |path: &PathBuf| {
            path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"))
                && path.is_file()
        };
        let mut files: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_parquet).collect();
        if files.is_empty() {
            continue;
        }
        files.sort();
        let splits: BTreeSet<String> = files.iter().map(|path| split(path)).collect();
        if splits.len() > 1 {
            if !splits.contains("train") {
                let names: Vec<&str> = splits.iter().map(String::as_str).collect();
                return Err(Error::Io {
                    file: folder.into(),
                    reason: format!(
                        "the folder has {}; name one with a pattern, such as {}/{}*.parquet",
                        names.join(", "),
                        place.display(),
                        names[0]
                    ),
                });
            }
            files.retain(|path| split(path) == "train");
        }
        complete(&files).map_err(|reason| Error::Io { file: folder.into(), reason })?;
        return Ok(files);
    }
    Err(none())
}

/// Rejects numbered shards if some are missing, since they would form a smaller dataset.
fn complete(files: &[PathBuf]) -> std::result::Result<(), String> {
    let numbers: Vec<(u64, u64)> = files.iter().filter_map(|path| numbers(path)).collect();
    let Some(&(_, total)) = numbers.first() else { return Ok(()) };
    if let Some((_, other)) = numbers.iter().find(|(_, other)| *other != total) {
        return Err(format!(
            "the folder has shards of {total} and shards of {other}, which are two versions of a \
             dataset; remove one of them"
        ));
    }
    let present: BTreeSet<u64> = numbers.iter().map(|&(number, _)| number).collect();
    match (0..total).find(|number| !present.contains(number)) {
        Some(missing) => Err(format!(
            "shard {missing:05}-of-{total:05} is missing; download it, or name the shards to read \
             with a pattern, such as folder/train-*.parquet"
        )),
        None => Ok(()),
    }
}

/// 1 and 3 for `train-00001-of-00003.parquet`.
fn numbers(path: &Path) -> Option<(u64, u64)> {
    let stem = path.file_stem()?.to_str()?;
    let (rest, total) = stem.rsplit_once("-of-")?;
    let (_, number) = rest.rsplit_once('-')?;
    Some((number.parse().ok()?, total.parse().ok()?))
}

/// The split of a shard: `train` for `train-00000-of-00002.parquet`.
fn split(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let numbered = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || "-of".contains(c));
    match stem.split_once('-') {
        Some((name, rest)) if numbered(rest) => name.to_owned(),
        _ => stem.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_folders_are_their_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("set/data")).unwrap();
        for name in ["b.tsv", "a.tsv", "c.csv", "[odd].tsv"] {
            std::fs::write(at(name), "text\n").unwrap();
        }
        assert_eq!(files(&at("*.tsv")).unwrap(), [at("[odd].tsv"), at("a.tsv"), at("b.tsv")]);
        assert_eq!(files(&at("a.tsv")).unwrap(), [at("a.tsv")]);
        assert_eq!(files(&at("[odd].tsv")).unwrap(), [at("[odd].tsv")], "a file is no pattern");
        assert_eq!(files(&at("missing.tsv")).unwrap(), [at("missing.tsv")]);
        assert!(matches!(files(&at("*.json")), Err(Error::NoFiles { .. })));
        assert!(files(&at("a[")).is_err() && files(&at("set")).is_err());
        let shard = |name: &str| at("set/data").join(name);
        for name in ["train-00001-of-00002", "train-00000-of-00002"] {
            std::fs::write(shard(&format!("{name}.parquet")), "").unwrap();
        }
        let both = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"].map(shard);
        assert_eq!(files(&at("set")).unwrap(), both);
        std::fs::write(shard("test-00000-of-00001.parquet"), "").unwrap();
        assert_eq!(files(&at("set")).unwrap(), both, "the split train");
        std::fs::remove_file(&both[1]).unwrap();
        let error = files(&at("set")).unwrap_err().to_string();
        assert!(error.contains("shard 00001-of-00002 is missing"), "{error}");
        assert_eq!(files(&shard("train-*.parquet")).unwrap(), both[..1], "as a pattern says");
        std::fs::write(shard("train-00001-of-00003.parquet"), "").unwrap();
        let error = files(&at("set")).unwrap_err().to_string();
        assert!(error.contains("two versions"), "{error}");
        for name in ["train-00000-of-00002.parquet", "train-00001-of-00003.parquet"] {
            std::fs::remove_file(shard(name)).unwrap();
        }
        std::fs::write(shard("dev-00000-of-00001.parquet"), "").unwrap();
        let error = files(&at("set")).unwrap_err().to_string();
        assert!(error.contains("dev, test"), "{error}");
    }
}
