//! The run folder, which one process at a time may write to.
//!
//! ```text
//! plan.toml               the run file with every default, and the calibrated noise
//! ledger.jsonl            every release, recorded before it is made
//! metrics.jsonl           one line for each step (depends on private data: do not publish)
//! events.out.tfevents.undertone    the same for TensorBoard, if asked for
//! checkpoint.safetensors  weights and optimiser state, to resume from
//! best.safetensors        the same after the best epoch, if a run that may stop early keeps it
//! secret.key              the secret that noise is derived from; only while the run lasts
//! identity.json           what must be the same on resuming; only while the run lasts
//! relevance.safetensors   the relevance map that the noise was allocated by, if there is one
//! noise.svg               heat map of the noise by parameter (relevance.svg: of relevance)
//! model/                  the trained model, or adapter/, with a model card (README.md)
//! audit.json              results of attacks, if any were made (membership.svg: ROC curves)
//! private/                what must not be published: class names found in the training file
//!                         (labels.json), and private figures (summary.json)
//! summary.json            written last: a folder that has one is finished
//! ```

use crate::atomic::part_of;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::lease::Lease;
use crate::{Summary, write_json};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const SUMMARY: &str = "summary.json";
const PLAN: &str = "plan.toml";
const LOCK: &str = "run.lock";
const PRIVATE: &str = "private";
const LABELS: &str = "labels.json";

/// The last line of plan.toml once the ledger exists. The ledger's first line has the hash of the
/// plan without it.
pub(crate) const BEGUN: &str = "\n# The run has begun: ledger.jsonl lists its releases.\n";

/// The paths of the files in a run folder.
#[derive(Clone, Debug)]
pub struct RunPaths(PathBuf);

impl RunPaths {
    /// The files of this folder, whether or not they exist.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The run file with every default filled in.
    pub fn plan(&self) -> PathBuf {
        self.0.join(PLAN)
    }

    /// The privacy ledger.
    pub fn ledger(&self) -> PathBuf {
        self.0.join("ledger.jsonl")
    }

    /// The ledger's head, by which a truncated ledger is detected.
    fn ledger_head(&self) -> PathBuf {
        self.0.join("ledger.jsonl.head")
    }

    /// The metrics, one record a step.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The scalars of the metrics for TensorBoard, which looks for `tfevents` in names of files.
    pub fn tensorboard(&self) -> PathBuf {
        self.0.join("events.out.tfevents.undertone")
    }

    /// Results of attacks.
    pub fn audit(&self) -> PathBuf {
        self.0.join("audit.json")
    }

    /// The summary of a finished run.
    pub fn summary(&self) -> PathBuf {
        self.0.join(SUMMARY)
    }

    /// What must not be published, although other files of its kind may be.
    pub fn private(&self) -> PathBuf {
        self.0.join(PRIVATE)
    }

    /// Class names that were found in the training file, where they may not be published.
    pub fn labels(&self) -> PathBuf {
        self.private().join(LABELS)
    }

    /// Weights and optimiser state.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// Weights and optimiser state after the best epoch of a run that may stop early.
    pub fn best_checkpoint(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    /// The relevance map of Rap-FT.
    pub fn relevance(&self) -> PathBuf {
        self.0.join("relevance.safetensors")
    }

    /// Heat map of the noise by parameter.
    pub fn noise_figure(&self) -> PathBuf {
        self.0.join("noise.svg")
    }

    /// Heat map of the relevance by parameter.
    pub fn relevance_figure(&self) -> PathBuf {
        self.0.join("relevance.svg")
    }

    /// ROC curves of membership inference, if it was made.
    pub fn membership_figure(&self) -> PathBuf {
        self.0.join("membership.svg")
    }

    /// The trained model, where it is saved as a whole.
    pub fn model(&self) -> PathBuf {
        self.0.join("model")
    }

    /// The trained adapter or task head, where the base model is unchanged.
    pub fn adapter(&self) -> PathBuf {
        self.0.join("adapter")
    }

    /// The file that the training process keeps locked.
    pub fn lock(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    /// The file that shows other machines that a process is training in the folder.
    fn lease(&self) -> PathBuf {
        self.0.join("run.lease")
    }

    fn secret(&self) -> PathBuf {
        self.0.join("secret.key")
    }

    fn identity(&self) -> PathBuf {
        self.0.join("identity.json")
    }

    /// Every file and folder that a run writes, except its lock and lease.
    fn all(&self) -> [PathBuf; 18] {
        [
            self.plan(),
            self.ledger(),
            self.ledger_head(),
            self.metrics(),
            self.tensorboard(),
            self.checkpoint(),
            self.best_checkpoint(),
            self.secret(),
            self.identity(),
            self.relevance(),
            self.noise_figure(),
            self.relevance_figure(),
            self.model(),
            self.adapter(),
            self.audit(),
            self.membership_figure(),
            self.private(),
            self.summary(),
        ]
    }

    /// Removes secret and identity of a finished run. A link is removed, not what it leads to.
    pub fn forget_secrets(&self) -> Result<()> {
        for path in [self.secret(), self.identity()] {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(&path)(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes what a run has written, and then the folder if nothing else is in it.
    pub fn remove_run(&self) -> Result<()> {
        let ledger = ["ledger.jsonl.new", "ledger.jsonl.head.new"].map(|name| self.0.join(name));
        let own: Vec<PathBuf> = self.all().into_iter().chain([self.lock(), self.lease()]).collect();
        // What an interrupted process has not given its name yet.
        let parts = own.iter().map(|path| part_of(path));
        for path in parts.chain(ledger).chain(own.iter().cloned()) {
            let removed = match path.symlink_metadata() {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
                Ok(_) => fs::remove_file(&path),
                Err(_) => continue,
            };
            removed.map_err(Error::io(&path))?;
        }
        match fs::remove_dir(&self.0) {
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => Err(Error::folder(
                &self.0,
                "holds files that are not of a run; move them away, or choose another folder",
            )),
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&self.0)(e)),
            _ => Ok(()),
        }
    }

    /// Whether the run is finished.
    pub fn is_finished(&self) -> bool {
        self.summary().exists()
    }

    /// File name of the summary, for messages.
    pub fn summary_name() -> &'static str {
        SUMMARY
    }

    /// File name of the plan.
    pub fn plan_name() -> &'static str {
        PLAN
    }

    /// Reads the summary of a finished run, with its private part if that is there.
    pub fn read_summary(&self) -> Result<Summary> {
        let text = |path: &Path| crate::read_settings(path).map_err(Error::io(path));
        let (shared, private) = (self.summary(), self.private().join(SUMMARY));
        let private = match private.exists() {
            true => Some((private.as_path(), text(&private)?)),
            false => None,
        };
        Summary::parse((&shared, &text(&shared)?), private.as_ref().map(|(p, t)| (*p, t.as_str())))
    }

    /// Writes the summary, which makes the run a finished one, after its private part.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        self.write_private(SUMMARY, &summary.private_fields(&self.summary())?)?;
        write_json(&self.summary(), &summary.shared())
    }

    /// Keeps class names that may not be published.
    pub fn keep_labels(&self, names: &[String]) -> Result<()> {
        self.write_private(LABELS, &names)
    }

    fn write_private(&self, name: &str, value: &impl serde::Serialize) -> Result<()> {
        fs::create_dir_all(self.private()).map_err(Error::io(&self.private()))?;
        write_json(&self.private().join(name), value)
    }

    /// Notes in plan.toml that the run has begun. From then on its ledger must be there.
    pub fn mark_begun(&self) -> Result<()> {
        let path = self.plan();
        let text = crate::read_settings(&path).map_err(Error::io(&path))?;
        match text.ends_with(BEGUN) {
            true => Ok(()),
            false => crate::write_atomically(&path, |out| out.write_all((text + BEGUN).as_bytes())),
        }
    }

    /// Whether plan.toml says that the run has begun.
    pub fn is_marked_begun(&self) -> Result<bool> {
        let path = self.plan();
        let text = crate::read_settings(&path).map_err(Error::io(&path))?;
        Ok(text.ends_with(BEGUN))
    }
}

/// Class names that the run in whose folder this model or adapter lies keeps private; none for a
/// folder that was moved, as published ones are.
pub fn private_labels(model: &Path) -> Result<Option<Vec<String>>> {
    let Ok(model) = model.canonicalize() else { return Ok(None) };
    let Some(run) = model.parent().map(RunPaths::new) else { return Ok(None) };
    let path = run.labels();
    if ![run.model(), run.adapter()].contains(&model) || !path.exists() {
        return Ok(None);
    }
    let text = crate::read_settings(&path).map_err(Error::io(&path))?;
    let damaged = |e| Error::folder(&path, format!("is not a list of class names: {e}"));
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

/// Whether a process is training in the folder.
pub fn is_locked(folder: &Path) -> bool {
    File::open(RunPaths::new(folder).lock()).is_ok_and(|lock| lock.try_lock_shared().is_err())
}

/// A run folder, locked until it is dropped.
#[derive(Debug)]
pub struct RunFolder {
    paths: RunPaths,
    /// Given back before the lock.
    lease: Lease,
    _lock: File,
}

impl std::ops::Deref for RunFolder {
    type Target = RunPaths;

    fn deref(&self) -> &RunPaths {
        &self.paths
    }
}

impl RunFolder {
    /// Creates and locks the folder of a new run. It may exist, but must hold no run.
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let folder = Self::lock_folder(path)?;
        if folder.plan().exists() || folder.ledger().exists() {
            return Err(Error::folder(
                path,
                "holds a run already; resume it with --resume, or choose another folder",
            ));
        }
        // `symlink_metadata`: nothing is written through a link either, wherever it leads.
        if let Some(there) = folder.all().iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(Error::folder(
                there,
                "is there already, and the run would write over it; choose another folder",
            ));
        }
        Ok(folder)
    }

    /// Opens and locks the folder of a run that has begun.
    pub fn open(path: &Path) -> Result<Self> {
        if !RunPaths::new(path).plan().is_file() {
            return Err(Error::folder(
                path,
                "holds no run that has begun; start one without --resume",
            ));
        }
        let folder = Self::lock_folder(path)?;
        if let Some(link) = folder.all().iter().find(|path| path.is_symlink()) {
            return Err(Error::folder(link, "is a symbolic link; bring back the run's own file"));
        }
        Ok(folder)
    }

    fn lock_folder(path: &Path) -> Result<Self> {
        let paths = RunPaths::new(path);
        let file = paths.lock();
        if file.is_symlink() {
            return Err(Error::folder(&file, "is a symbolic link; remove it"));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&file)
            .map_err(Error::io(&file))?;
        // `undertone watch` takes the lock for a moment to see whether a process holds it.
        let wait = || std::thread::sleep(std::time::Duration::from_millis(30));
        if lock.try_lock().is_err() && (0..3).all(|_| (wait(), lock.try_lock().is_err()).1) {
            return Err(Error::folder(
                path,
                "is in use by another run; wait for it, or choose another folder",
            ));
        }
        let lease = Lease::take(&paths.lease(), path)?;
        Ok(Self { paths, lease, _lock: lock })
    }

    /// Fails if another machine has taken the folder over.
    pub fn check_lease(&self) -> Result<()> {
        self.lease.check(self.folder())
    }

    /// Whether something may have been released; then the run can only be resumed with its secret.
    /// Any one of these files proves it: others may have been lost.
    pub fn has_begun(&self) -> bool {
        [self.ledger(), self.ledger_head(), self.metrics(), self.checkpoint()]
            .iter()
            .any(|path| path.exists())
    }

    /// Saves the secret of a run without a seed, readable by the file's owner only. The file must
    /// be new: an earlier one may be readable by others, or a link to where others can read.
    pub fn keep_secret(&self, secret: &[u8; 32]) -> Result<()> {
        let path = self.secret();
        let mut options = OpenOptions::new();
        options.create_new(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path).map_err(Error::io(&path))?;
        file.write_all(secret).and_then(|()| file.sync_all()).map_err(Error::io(&path))
    }

    /// Reads the secret of a run that is resumed.
    pub fn read_secret(&self) -> Result<[u8; 32]> {
        let path = self.secret();
        let mut bytes = [0; 32];
        let whole = crate::open_regular(&path).and_then(|mut file| file.read_exact(&mut bytes));
        whole.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof => Error::folder(
                &path,
                format!("the run's secret is gone ({e}), so it cannot resume; start a new run"),
            ),
            _ => Error::io(&path)(e),
        })?;
        Ok(bytes)
    }

    /// Saves what must be the same on resuming.
    pub fn keep_identity(&self, identity: &Identity) -> Result<()> {
        write_json(&self.identity(), identity)
    }

    /// Refuses to resume a run with another plan, other data, another secret or another machine.
    /// Returns the identity that it had so far, which may be of another number of ranks.
    pub fn check_identity(&self, identity: &Identity) -> Result<Identity> {
        let path = self.identity();
        let text = crate::read_settings(&path).map_err(Error::io(&path))?;
        let begun: Identity = serde_json::from_str(&text)
            .map_err(|e| Error::folder(&path, format!("is damaged ({e}); start a new run")))?;
        if begun.run != identity.run {
            return Err(Error::folder(
                self.folder(),
                "was begun with another plan, other data or another secret; resume with what it \
                 began with",
            ));
        }
        if begun.machine != identity.machine {
            let problem = format!(
                "was begun on \"{}\" and this is \"{}\": rounding would differ; resume there, or \
                 with as many threads (RAYON_NUM_THREADS)",
                begun.machine, identity.machine
            );
            return Err(Error::folder(self.folder(), problem));
        }
        Ok(begun)
    }
}
