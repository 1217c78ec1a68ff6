//! The run folder. Only one process at a time may write to it.
//!
//! ```text
//! plan.toml               the run file with all defaults, and the calibrated noise
//! ledger.jsonl            every release, recorded before it is made
//! metrics.jsonl           one line per step (depends on private data: do not publish)
//! events.out.tfevents.undertone    the same for TensorBoard, if requested
//! events.jsonl            the shareable figures for experiment trackers (or events.csv), if
//!                         requested
//! checkpoint.safetensors  weights and optimizer state, to resume from
//! best.safetensors        the same after the best epoch, if early stopping keeps it
//! secret.key              the secret from which noise is derived; only during the run
//! identity.json           what must match on resuming; only during the run
//! relevance.safetensors   the relevance map used to allocate the noise, if there is one
//! noise.svg               heat map of the noise by parameter (relevance.svg: of relevance)
//! model/                  the trained model, or adapter/, with a model card (README.md)
//! statistics.json         noisy histograms that steer the sampling of synthetic rows
//! synthetic/              synthetic rows, with a data card (README.md): see synthesis.rs
//! audit.json              results of attacks, if any were run (membership.svg: ROC curves)
//! private/                must not be published: class names read from the training file
//!                         (labels.json), private figures (summary.json), and the rows of a run on
//!                         data in memory (train.jsonl, validation.jsonl), to resume and audit it;
//!                         settings of private prediction (prediction.json), instead of a plan
//! summary.json            written last: a folder that has one is finished
//! ```

use crate::identity::Identity;
use crate::lease::Lease;
use crate::part_of;
use crate::synthesis::SyntheticPaths;
use crate::{Error, Result};
use crate::{Summary, write_json};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const SUMMARY: &str = "summary.json";
const PLAN: &str = "plan.toml";
const LOCK: &str = "run.lock";
const PRIVATE: &str = "private";
const LABELS: &str = "labels.json";

/// The last line of `plan.toml` once the ledger exists. The ledger's first line records the hash of
/// the plan without this line.
pub(crate) const BEGUN: &str = "\n# The run has begun: ledger.jsonl lists its releases.\n";

/// The paths of the files in a run folder.
#[derive(Clone, Debug)]
pub struct RunPaths(PathBuf);

impl RunPaths {
    /// The paths in this folder, whether or not the files exist.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The run file with all defaults filled in.
    pub fn plan(&self) -> PathBuf {
        self.0.join(PLAN)
    }

    /// The privacy ledger.
    pub fn ledger(&self) -> PathBuf {
        self.0.join("ledger.jsonl")
    }

    /// The ledger's head, used to detect a truncated ledger.
    fn ledger_head(&self) -> PathBuf {
        self.0.join("ledger.jsonl.head")
    }

    /// The metrics, one record per step.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The metrics' scalars for TensorBoard, which looks for `tfevents` in file names.
    pub fn tensorboard(&self) -> PathBuf {
        self.0.join("events.out.tfevents.undertone")
    }

    /// Figures that may be shared, for experiment trackers.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// The same figures as CSV.
    pub fn events_csv(&self) -> PathBuf {
        self.0.join("events.csv")
    }

    /// Results of attacks.
    pub fn audit(&self) -> PathBuf {
        self.0.join("audit.json")
    }

    /// The summary of a finished run.
    pub fn summary(&self) -> PathBuf {
        self.0.join(SUMMARY)
    }

    /// Files that must not be published, unlike other files of the run.
    pub fn private(&self) -> PathBuf {
        self.0.join(PRIVATE)
    }

    /// Class names read from the training file, if they may not be published.
    pub fn labels(&self) -> PathBuf {
        self.private().join(LABELS)
    }

    /// How many personal data of the training texts the model repeats.
    pub fn replay(&self) -> PathBuf {
        self.private().join("replay.json")
    }

    /// The settings of private prediction.
    pub fn prediction(&self) -> PathBuf {
        self.private().join("prediction.json")
    }

    /// Training rows of a run on data in memory.
    pub fn training_rows(&self) -> PathBuf {
        self.private().join("train.jsonl")
    }

    /// Validation rows of a run on data in memory.
    pub fn validation_rows(&self) -> PathBuf {
        self.private().join("validation.jsonl")
    }

    /// Weights and optimizer state.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// Weights and optimizer state after the best epoch of a run with early stopping.
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

    /// ROC curves of membership inference, if that attack was run.
    pub fn membership_figure(&self) -> PathBuf {
        self.0.join("membership.svg")
    }

    /// The trained model, if it is saved as a whole.
    pub fn model(&self) -> PathBuf {
        self.0.join("model")
    }

    /// The trained adapter or task head, if the base model is unchanged.
    pub fn adapter(&self) -> PathBuf {
        self.0.join("adapter")
    }

    /// Statistics that steer the sampling of synthetic rows.
    pub fn statistics(&self) -> PathBuf {
        self.0.join("statistics.json")
    }

    /// The synthetic rows.
    pub fn synthetic(&self) -> SyntheticPaths {
        SyntheticPaths::new(self.0.join("synthetic"))
    }

    /// Figures about synthetic rows that depend on private data.
    pub fn private_evaluation(&self) -> PathBuf {
        self.private().join("evaluation.json")
    }

    /// The file that the training process keeps locked.
    pub fn lock(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    /// The lease file, which shows other machines that a process is training in the folder.
    fn lease(&self) -> PathBuf {
        self.0.join("run.lease")
    }

    fn secret(&self) -> PathBuf {
        self.0.join("secret.key")
    }

    fn identity(&self) -> PathBuf {
        self.0.join("identity.json")
    }

    /// All files and folders that a run writes, except its lock and lease.
    fn all(&self) -> [PathBuf; 22] {
        [
            self.plan(),
            self.ledger(),
            self.ledger_head(),
            self.metrics(),
            self.tensorboard(),
            self.events(),
            self.events_csv(),
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
            self.statistics(),
            self.synthetic().folder().to_owned(),
            self.summary(),
        ]
    }

    /// Removes the secret and identity of a finished run. A link is removed, not its target.
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

    /// Everything that a run may have written, the temporary files of a killed process first.
    fn written(&self) -> Vec<PathBuf> {
        let own: Vec<PathBuf> = self.all().into_iter().chain([self.lock(), self.lease()]).collect();
        let ledger = ["ledger.jsonl.new", "ledger.jsonl.head.new"].map(|name| self.0.join(name));
        own.iter().map(|path| part_of(path)).chain(ledger).chain(own.clone()).collect()
    }

    /// Removes everything a run has written, and then the folder if it is empty.
    pub fn remove_run(&self) -> Result<()> {
        for path in self.written() {
            let removed = match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path),
                Ok(_) => fs::remove_file(&path),
                Err(_) => continue,
            };
            removed.map_err(Error::io(&path))?;
        }
        match fs::remove_dir(&self.0) {
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => Err(Error::folder(
                &self.0,
                "contains files that do not belong to a run; move them away, or choose another \
                 folder",
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

    /// Reads the summary of a finished run, including its private part if present.
    pub fn read_summary(&self) -> Result<Summary> {
        let text = |path: &Path| crate::read_settings(path).map_err(Error::io(path));
        let (shared, private) = (self.summary(), self.private().join(SUMMARY));
        let private = match private.exists() {
            true => Some((private.as_path(), text(&private)?)),
            false => None,
        };
        Summary::parse((&shared, &text(&shared)?), private.as_ref().map(|(p, t)| (*p, t.as_str())))
    }

    /// Writes the private part of the summary, then the summary itself, which marks the run as
    /// finished.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        self.write_private(SUMMARY, &summary.private_fields(&self.summary())?)?;
        write_json(&self.summary(), &summary.shared())
    }

    /// Saves class names that may not be published.
    pub fn keep_labels(&self, names: &[String]) -> Result<()> {
        self.write_private(LABELS, &names)
    }

    /// Saves rows that are not in a file, one object per line, readable only by the file's owner:
    /// under [`RunPaths::training_rows`] or [`RunPaths::validation_rows`].
    pub fn keep_rows(&self, path: &Path, rows: &[serde_json::Map<String, Value>]) -> Result<()> {
        fs::create_dir_all(self.private()).map_err(Error::io(&self.private()))?;
        crate::write_secret_atomically(path, |out| {
            for row in rows {
                serde_json::to_writer(&mut *out, row)?;
                out.write_all(b"\n")?;
            }
            Ok(())
        })
    }

    /// Saves the settings of private prediction.
    pub fn keep_prediction(&self, settings: &impl serde::Serialize) -> Result<()> {
        self.write_private("prediction.json", settings)
    }

    fn write_private(&self, name: &str, value: &impl serde::Serialize) -> Result<()> {
        fs::create_dir_all(self.private()).map_err(Error::io(&self.private()))?;
        write_json(&self.private().join(name), value)
    }

    /// Notes in `plan.toml` that the run has begun. From then on, the ledger must exist.
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

/// The run whose folder contains this model or adapter; `None` for a folder that was moved, as
/// published ones are.
pub fn run_of(model: &Path) -> Option<RunPaths> {
    let model = model.canonicalize().ok()?;
    let run = RunPaths::new(model.parent()?);
    [run.model(), run.adapter()].contains(&model).then_some(run)
}

/// Class names kept private by the run whose folder contains this model or adapter.
pub fn private_labels(model: &Path) -> Result<Option<Vec<String>>> {
    let Some(path) = run_of(model).map(|run| run.labels()).filter(|path| path.exists()) else {
        return Ok(None);
    };
    let text = crate::read_settings(&path).map_err(Error::io(&path))?;
    let damaged = |e| Error::folder(&path, format!("is not a list of class names: {e}"));
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

/// Whether a process is training in the folder.
pub fn is_locked(folder: &Path) -> bool {
    File::open(RunPaths::new(folder).lock()).is_ok_and(|lock| lock.try_lock_shared().is_err())
}

/// A run folder, locked until dropped.
#[derive(Debug)]
pub struct RunFolder {
    paths: RunPaths,
    /// Released before the lock.
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
    /// Creates and locks the folder of a new run. The folder may exist but must not contain a run.
    pub fn create(path: &Path) -> Result<Self> {
        if path.is_file() {
            return Err(Error::folder(path, "is a file; give the name of a folder"));
        }
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let folder = Self::lock_folder(path)?;
        if folder.plan().exists() || folder.ledger().exists() {
            return Err(Error::folder(
                path,
                "already contains a run; resume it with --resume, or choose another folder",
            ));
        }
        // `symlink_metadata`, so that nothing is written through a link, wherever it points.
        if let Some(existing) = folder.all().iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(Error::folder(
                existing,
                "exists, and the run would overwrite it; choose another folder",
            ));
        }
        Ok(folder)
    }

    /// Refuses a folder that contains files other than those of a run, which would be mixed with
    /// the run's files. Hidden files do not count.
    pub fn check_nothing_foreign(path: &Path) -> Result<()> {
        let own = RunPaths::new(path).written();
        let Ok(entries) = fs::read_dir(path) else { return Ok(()) };
        for entry in entries {
            let entry = entry.map_err(Error::io(path))?;
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !is_hidden && !own.contains(&path.join(entry.file_name())) {
                return Err(Error::folder(
                    path,
                    format!(
                        "holds other files, such as {}; choose a new folder, or use --force to \
                         write the run among them",
                        crate::printable_line(&entry.file_name().to_string_lossy())
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Opens and locks the folder of a run that has begun.
    pub fn open(path: &Path) -> Result<Self> {
        if !RunPaths::new(path).plan().is_file() {
            return Err(Error::folder(path, "contains no run to resume or finish"));
        }
        Self::open_begun(path)
    }

    /// Opens and locks the folder of private prediction, which has no plan.
    pub fn open_prediction(path: &Path) -> Result<Self> {
        if !RunPaths::new(path).prediction().is_file() {
            return Err(Error::folder(path, "contains no private prediction to resume"));
        }
        Self::open_begun(path)
    }

    fn open_begun(path: &Path) -> Result<Self> {
        let folder = Self::lock_folder(path)?;
        if let Some(link) = folder.all().iter().find(|path| path.is_symlink()) {
            return Err(Error::folder(link, "is a symbolic link; restore the run's own file"));
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
        // `undertone watch` briefly takes the lock to see whether a process holds it.
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

    /// Fails if another machine has taken over the folder.
    pub fn check_lease(&self) -> Result<()> {
        self.lease.check(self.folder())
    }

    /// Whether something may have been released, in which case the run can only be resumed with its
    /// secret. Any one of these files is proof, since others may have been lost.
    pub fn has_begun(&self) -> bool {
        [self.ledger(), self.ledger_head(), self.metrics(), self.checkpoint()]
            .iter()
            .any(|path| path.exists())
    }

    /// Saves the secret of an unseeded run, readable only by the file's owner. The file must be
    /// new.
    pub fn keep_secret(&self, secret: &[u8; 32]) -> Result<()> {
        let path = self.secret();
        let mut file = crate::create_secret(&path).map_err(Error::io(&path))?;
        file.write_all(secret).and_then(|()| file.sync_all()).map_err(Error::io(&path))
    }

    /// Reads the secret of a run being resumed.
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

    /// Saves what must match on resuming.
    pub fn keep_identity(&self, identity: &Identity) -> Result<()> {
        write_json(&self.identity(), identity)
    }

    /// Refuses to resume a run with a different plan, data, secret or machine. Returns the identity
    /// so far, which may have a different number of ranks.
    pub fn check_identity(&self, identity: &Identity) -> Result<Identity> {
        let path = self.identity();
        let text = crate::read_settings(&path).map_err(Error::io(&path))?;
        let begun: Identity = serde_json::from_str(&text)
            .map_err(|e| Error::folder(&path, format!("is damaged ({e}); start a new run")))?;
        if !begun.is_plausible() {
            let problem = "is damaged (impossible numbers of ranks); start a new run";
            return Err(Error::folder(&path, problem));
        }
        if begun.run != identity.run {
            return Err(Error::folder(
                self.folder(),
                "was started with another plan, other data or another secret; resume with the \
                 original ones",
            ));
        }
        if begun.machine != identity.machine {
            let problem = format!(
                "was started on \"{}\", but this is \"{}\": rounding would differ; resume there, \
                 with the same number of threads (RAYON_NUM_THREADS)",
                begun.machine, identity.machine
            );
            return Err(Error::folder(self.folder(), problem));
        }
        Ok(begun)
    }
}
