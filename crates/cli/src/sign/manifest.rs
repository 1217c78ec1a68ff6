//! The manifest that is signed: what was trained, what it guarantees, and the hash of each file.
//!
//! It is stored beside the weights and distributed with them. It ties the ε of a model card to the
//! weights, the ledger, and the certificate and report, if given: none of them can be replaced
//! without detection.

use crate::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use undertone_accounting::Guarantee;
use undertone_run::{FinishedRun, Registered, RunPaths, open_regular};

/// Name of the manifest in the folder of the weights; the signature's name ends with `.minisig`.
pub const NAME: &str = "undertone.manifest.json";

/// The signed content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout of the manifest.
    pub format: u32,
    /// Version of the program that wrote the manifest.
    pub version: String,
    /// The guarantee proved by the run's ledger; `None` for a run without a guarantee.
    pub guarantee: Option<Guarantee>,
    /// Hash of the last line of the ledger.
    pub ledger_hash: Option<String>,
    /// The data set and reservation of the run's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// SHA-256 of every file beside the manifest, by name.
    pub model: BTreeMap<String, String>,
    /// SHA-256 of the run's other shareable files, by their role.
    pub run: BTreeMap<String, String>,
}

/// The run's budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The data set, as name@version.
    pub dataset: String,
    /// Hash of the reservation's line in the register.
    pub hash: String,
}

/// The layout that this version writes.
const FORMAT: u32 = 1;

/// The run's own files that a manifest covers.
pub fn run_files(paths: &RunPaths) -> [(&'static str, PathBuf); 3] {
    [("ledger", paths.ledger()), ("plan", paths.plan()), ("summary", paths.summary())]
}

/// The folder of a run's weights.
pub fn weights(paths: &RunPaths) -> Outcome<PathBuf> {
    let folders = [paths.adapter(), paths.model()];
    folders.into_iter().find(|folder| folder.is_dir()).ok_or_else(|| {
        Failure::arguments(format!("{} holds no trained weights", paths.folder().display()))
    })
}

impl Manifest {
    /// The manifest of a finished run and additional files.
    pub fn of(run: &Path, more: &[(&str, &Path)]) -> Outcome<Self> {
        let paths = RunPaths::new(run);
        let FinishedRun { summary, ledger, guarantee, .. } = FinishedRun::read(run)?;
        let mut files = BTreeMap::new();
        for (what, path) in run_files(&paths) {
            if path.exists() {
                files.insert(what.to_owned(), hash(&path)?);
            }
        }
        for (what, path) in more {
            files.insert((*what).to_owned(), hash(path)?);
        }
        let budget = |Registered { dataset, hash, .. }| Budget { dataset, hash };
        Ok(Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            guarantee: guarantee.filter(|_| summary.private),
            ledger_hash: ledger.map(|ledger| ledger.hash().to_owned()),
            budget: summary.resolved.registered.map(budget),
            model: beside(&weights(&paths)?)?,
            run: files,
        })
    }

    /// Reads the text of a manifest.
    pub fn parse(text: &str, path: &Path) -> Outcome<Self> {
        let manifest: Self = serde_json::from_str(text).map_err(|e| {
            Failure::arguments(format!("{} is not a manifest: {e}", path.display()))
        })?;
        match manifest.format {
            FORMAT => Ok(manifest),
            _ => Err(Failure::arguments(format!(
                "{} was written by another version of the program",
                path.display()
            ))),
        }
    }
}

/// The hashes of all files in a folder of weights, by their names relative to it. Hidden files, the
/// manifest and its signature are left out. Links are rejected, because their targets may change.
pub fn beside(folder: &Path) -> Outcome<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    collect(folder, "", &mut hashes)?;
    Ok(hashes)
}

fn collect(folder: &Path, above: &str, hashes: &mut BTreeMap<String, String>) -> Outcome {
    let unreadable =
        |e: std::io::Error| Failure::arguments(format!("{} cannot be read: {e}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Failure::arguments(format!(
                "{} has a file whose name is not UTF-8",
                folder.display()
            )));
        };
        let (path, kind) = (entry.path(), entry.file_type().map_err(unreadable)?);
        if name.starts_with('.') || above.is_empty() && name.starts_with(NAME) {
            continue;
        }
        let name = format!("{above}{name}");
        if kind.is_dir() {
            collect(&path, &format!("{name}/"), hashes)?;
        } else if kind.is_file() {
            hashes.insert(name, hash(&path)?);
        } else {
            return Err(Failure::arguments(format!(
                "{} is no regular file; replace it by what it stands for",
                path.display()
            )));
        }
    }
    Ok(())
}

/// SHA-256 of a file, in hexadecimal.
pub fn hash(path: &Path) -> Outcome<String> {
    let unreadable =
        |e: std::io::Error| Failure::arguments(format!("{} cannot be read: {e}", path.display()));
    let mut file = open_regular(path).map_err(unreadable)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(unreadable)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => hash.update(&buffer[..count]),
        }
    }
}
