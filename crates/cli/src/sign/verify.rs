//! `undertone verify`.

use super::manifest::{self, Manifest, NAME, beside, hash, run_files};
use super::minisign::PublicKey;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use undertone_accounting::ledger::Ledger;
use undertone_run::{RunPaths, read_settings};

/// Check the signature of a model folder or run, and every file that it covers
///
/// Fails with the names of the files that differ, are missing, or were added. Ledger, plan and
/// summary are checked where they lie beside the weights, as in a run folder, or are named; ε is
/// then computed from the ledger again.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone verify runs/first --key undertone.key.pub\n  \
     undertone verify ./adapter --key \
     RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3 --ledger ledger.jsonl")]
pub struct Verify {
    /// Folder of signed weights, or of their run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Public key: a file, or the key itself
    #[arg(long, value_name = "FILE|KEY")]
    key: String,
    /// Ledger of the run, with the file ledger.jsonl.head beside it
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Certificate of ε
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Report on the run
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Verify {
    pub fn run(self, output: Output) -> Outcome {
        let key = self.public_key()?;
        let folder = match self.folder.join(NAME).exists() {
            true => self.folder.clone(),
            false => manifest::weights(&RunPaths::new(&self.folder))?,
        };
        let (path, signature) = (folder.join(NAME), folder.join(format!("{NAME}.minisig")));
        let text = read(&path)?;
        let comment = key
            .verify(text.as_bytes(), &read(&signature)?)
            .map_err(|why| Failure::arguments(format!("{} {why}", signature.display())))?;
        let manifest = Manifest::parse(&text, &path)?;
        let mut differences = differing(&folder, &manifest)?;
        let mut checked = vec![format!("{} files beside the weights", manifest.model.len())];
        let mut absent = Vec::new();
        for (what, signed) in &manifest.run {
            match self.place(what, &folder) {
                Some(path) if hash(&path)? == *signed => checked.push(what.clone()),
                Some(path) => {
                    differences.push(format!("{what} ({}) differs", path.display()));
                }
                None => absent.push(what.clone()),
            }
        }
        for (what, given) in self.given() {
            if given.is_some() && !manifest.run.contains_key(what) {
                differences.push(format!("the {what} was not signed"));
            }
        }
        if differences.is_empty() {
            differences.extend(self.disproved(&manifest, &folder)?);
        }
        if !differences.is_empty() {
            return Err(Failure::arguments(format!(
                "{} is not what was signed: {}",
                folder.display(),
                differences.join("; ")
            )));
        }
        if output.json {
            output::json(&json!({
                "checked": checked, "not_checked": absent, "comment": comment,
                "guarantee": manifest.guarantee, "ledger_hash": manifest.ledger_hash,
                "budget": manifest.budget,
            }));
            return Ok(());
        }
        let mut rows = vec![("as signed", checked.join(", "))];
        if !absent.is_empty() {
            rows.push(("not checked, not here", absent.join(", ")));
        }
        rows.extend(manifest.ledger_hash.map(|hash| ("hash of the ledger", hash)));
        rows.extend(manifest.budget.map(|budget| {
            ("budget", format!("{}, line {} of its register", budget.dataset, budget.hash))
        }));
        rows.push(("comment", comment.replace('\t', ", ")));
        output::rows(&rows);
        output::line(match &manifest.guarantee {
            Some(guarantee) => format!("{guarantee}."),
            None => "No guarantee: the run was not private.".to_owned(),
        });
        Ok(())
    }

    fn public_key(&self) -> Outcome<PublicKey> {
        let path = Path::new(&self.key);
        let text = if path.exists() { read(path)? } else { self.key.clone() };
        PublicKey::parse(&text)
            .map_err(|why| Failure::arguments(format!("--key {} {why}", self.key)))
    }

    fn given(&self) -> [(&'static str, &Option<PathBuf>); 3] {
        [("ledger", &self.ledger), ("certificate", &self.certificate), ("report", &self.report)]
    }

    /// The path of one of the run's files: as given, or in the run folder that contains the
    /// weights.
    fn place(&self, what: &str, weights: &Path) -> Option<PathBuf> {
        let given = self.given().into_iter().find(|(name, _)| *name == what);
        if let Some(path) = given.and_then(|(_, path)| path.clone()) {
            return Some(path);
        }
        let run = RunPaths::new(weights.canonicalize().ok()?.parent()?);
        let mut own = run_files(&run).into_iter();
        own.find(|(name, path)| *name == what && path.exists()).map(|(_, path)| path)
    }

    /// How the ledger contradicts the manifest, if the ledger is present.
    fn disproved(&self, manifest: &Manifest, weights: &Path) -> Outcome<Option<String>> {
        let (Some(path), Some(stated)) = (self.place("ledger", weights), &manifest.guarantee)
        else {
            return Ok(None);
        };
        let ledger = Ledger::read(path)?;
        if Some(ledger.hash()) != manifest.ledger_hash.as_deref() {
            return Ok(Some("the head of the ledger differs".to_owned()));
        }
        let proved = ledger.guarantee(stated.delta)?.epsilon.upper;
        let agrees = proved <= stated.epsilon.upper * (1.0 + 1e-6);
        Ok((!agrees).then(|| {
            format!(
                "the ledger proves ε = {}, not the {} that is stated",
                output::up(proved),
                output::up(stated.epsilon.upper)
            )
        }))
    }
}

/// Which files beside the weights differ, are missing, or were added.
fn differing(folder: &Path, manifest: &Manifest) -> Outcome<Vec<String>> {
    let hashes = beside(folder)?;
    let mut all = Vec::new();
    for (name, signed) in &manifest.model {
        match hashes.get(name) {
            Some(own) if own == signed => {}
            Some(_) => all.push(format!("{name} differs")),
            None => all.push(format!("{name} is missing")),
        }
    }
    let added = hashes.keys().filter(|name| !manifest.model.contains_key(*name));
    all.extend(added.map(|name| format!("{name} was added")));
    Ok(all)
}

fn read(path: &Path) -> Outcome<String> {
    read_settings(path)
        .map_err(|e| Failure::arguments(format!("{} cannot be read: {e}", path.display())))
}
