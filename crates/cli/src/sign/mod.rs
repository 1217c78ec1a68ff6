//! `undertone sign` and `undertone verify`: tie a card's ε to the weights.

mod base64;
mod blake2b;
mod manifest;
mod minisign;
mod verify;

pub use verify::Verify;

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
pub use manifest::hash;
use manifest::{Manifest, NAME};
use minisign::SecretKey;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use undertone_run::{RunPaths, create_secret, read_settings, write_atomically};

/// Sign a finished run's weights together with its ledger, card and guarantee
///
/// Writes undertone.manifest.json (hashes of all files, the guarantee and the head of the ledger)
/// and its signature beside the weights, where they travel with the model. The signature is
/// ed25519 in minisign's format: `minisign -V` checks it too. It says who vouches for the files,
/// not that the training was observed.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone sign --new-key undertone.key\n  undertone sign \
     runs/first --key undertone.key --certificate certificate.json --report report.html")]
pub struct Sign {
    /// Folder of a finished run
    #[arg(value_name = "RUN", required_unless_present = "new_key")]
    run: Option<PathBuf>,
    /// File of the secret key
    #[arg(long, value_name = "FILE", required_unless_present = "new_key")]
    key: Option<PathBuf>,
    /// Certificate of ε, from `budget certify`
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Report on the run, made with `report --public`
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Make a key: the secret one in FILE, the public one in FILE.pub
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "key", "certificate", "report"])]
    new_key: Option<PathBuf>,
}

impl Sign {
    pub fn run(self, output: Output) -> Outcome {
        if let Some(path) = &self.new_key {
            return new_key(path, output);
        }
        let (Some(run), Some(key)) = (&self.run, &self.key) else {
            return Err(Failure::arguments("give a run and --key, or --new-key"));
        };
        let key = read_key(key)?;
        let mut more: Vec<(&str, &Path)> = Vec::new();
        if let Some(report) = &self.report {
            check_public(report)?;
            more.push(("report", report));
        }
        more.extend(self.certificate.as_deref().map(|path| ("certificate", path)));
        let manifest = Manifest::of(run, &more)?;
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(|e| Failure::arguments(format!("the manifest cannot be written: {e}")))?
            + "\n";
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature =
            key.sign(text.as_bytes(), &format!("timestamp:{since}\tfile:{NAME}\thashed"));
        let folder = manifest::weights(&RunPaths::new(run))?;
        let (path, beside) = (folder.join(NAME), folder.join(format!("{NAME}.minisig")));
        check_ours(&path, |text| Manifest::parse(text, &path).is_ok())?;
        check_ours(&beside, |text| text.starts_with("untrusted comment: "))?;
        write(&path, &text)?;
        write(&beside, &signature)?;
        if output.json {
            output::json(&json!({ "manifest": path, "public_key": key.public().base64() }));
            return Ok(());
        }
        let files = manifest.model.len() + manifest.run.len();
        output::line(format_args!("Signed {files} files: {}", path.display()));
        output::line(format_args!("Public key: {}", key.public().base64()));
        Ok(())
    }
}

/// Refuses to overwrite a file that `sign` did not write.
fn check_ours(path: &Path, is_ours: impl Fn(&str) -> bool) -> Outcome {
    match path.symlink_metadata().is_ok() && !read_settings(path).is_ok_and(|text| is_ours(&text)) {
        true => Err(Failure::arguments(format!(
            "{} exists, and was not written by sign; move it away",
            path.display()
        ))),
        false => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Outcome {
    Ok(write_atomically(path, |out| out.write_all(text.as_bytes()))?)
}

fn read_key(path: &Path) -> Outcome<SecretKey> {
    let problem = |why: String| Failure::arguments(format!("{} {why}", path.display()));
    let text = read_settings(path).map_err(|e| problem(format!("cannot be read: {e}")))?;
    SecretKey::parse(&text).map_err(problem)
}

/// Rejects a report with figures that no guarantee covers, since the manifest would contain its
/// hash.
fn check_public(path: &Path) -> Outcome {
    let text = read_settings(path)
        .map_err(|e| Failure::arguments(format!("{} cannot be read: {e}", path.display())))?;
    let is_report = text.contains(undertone_report::MARK);
    match is_report && text.contains(undertone_report::PUBLIC_NOTE) {
        true => Ok(()),
        false if is_report => Err(Failure::arguments(format!(
            "{} shows figures that no guarantee covers; make one for others with report --public",
            path.display()
        ))),
        false => Err(Failure::arguments(format!("{} is not a report", path.display()))),
    }
}

/// Makes a pair of keys. Neither file may exist.
fn new_key(path: &Path, output: Output) -> Outcome {
    let key = SecretKey::new().map_err(Failure::Arguments)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    let public = PathBuf::from(name);
    if public.symlink_metadata().is_ok() {
        return Err(Failure::arguments(format!("{} exists already", public.display())));
    }
    let mut file = create_secret(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::arguments(format!("{} exists already", path.display()))
        }
        _ => Failure::arguments(format!("{} could not be written: {e}", path.display())),
    })?;
    file.write_all(key.text().as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| Failure::write(path, e))?;
    write(&public, &key.public().text())?;
    if output.json {
        output::json(&json!({ "public_key": key.public().base64() }));
        return Ok(());
    }
    output::line(format_args!("Secret key: {} (keep it to yourself)", path.display()));
    output::line(format_args!("Public key: {}, {}", public.display(), key.public().base64()));
    Ok(())
}
