//! A finished run, read from its folder.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_accounting::Guarantee;
use undertone_accounting::ledger::Ledger;
use undertone_run::{
    Audience, Audit, Evaluation, FinishedRun, Record, RunPaths, SampledFacts, Statistics, Summary,
    read_metrics,
};

/// Synthetic rows of a run.
#[derive(Clone, Debug)]
pub(crate) struct Synthetic {
    pub facts: SampledFacts,
    pub noise_std: Option<f64>,
    pub evaluation: Evaluation,
}

impl Synthetic {
    /// The synthetic rows in a run's folder, if there are any.
    fn read(paths: &RunPaths) -> Result<Option<Self>> {
        let facts = paths.synthetic().facts();
        if !facts.exists() {
            return Ok(None);
        }
        Ok(Some(Self {
            facts: SampledFacts::read(&facts)?,
            noise_std: Statistics::read(&paths.statistics())?.noise_std,
            evaluation: Evaluation::read(paths)?,
        }))
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name in the report.
    pub name: String,
    pub(crate) folder: PathBuf,
    pub(crate) summary: Summary,
    pub(crate) records: Vec<Record>,
    pub(crate) audit: Audit,
    /// How synthetic rows were sampled, and figures about them.
    pub(crate) synthetic: Option<Synthetic>,
    pub(crate) plan_text: String,
    pub(crate) ledger: Option<Arc<Ledger>>,
    pub(crate) guarantee: Option<Guarantee>,
    contradiction: Option<String>,
}

impl Run {
    /// The run without anything computed from private data without noise.
    pub(crate) fn shared(&self) -> Self {
        let mut summary = self.summary.shared();
        // For a run that is not private, this is not post-processing.
        if let Some(records) = summary.records.as_mut().filter(|_| !self.summary.private) {
            records.loudest_over_quietest = None;
        }
        let has_metrics = summary.metrics.validation.is_some();
        let of_epoch = |record: &Record| Record {
            units: 0,
            loss: None,
            gradient_norm: None,
            clipped: None,
            ..record.clone()
        };
        let records = self.records.iter().filter(|_| has_metrics).map(of_epoch).collect();
        // Rows of a run without a guarantee may repeat private ones.
        let mut synthetic = self.synthetic.clone().filter(|_| self.no_guarantee().is_none());
        if let Some(synthetic) = &mut synthetic {
            synthetic.evaluation.figures.retain(|figure| figure.seen_by == Audience::Public);
        }
        Self { summary, records, audit: Audit::default(), synthetic, ..self.clone() }
    }

    /// Whether the model was evaluated but this report must not show the results.
    pub(crate) fn hides_metrics(&self) -> bool {
        self.summary.metrics.validation.is_none() && self.summary.plan.data.validation.is_some()
    }

    /// Reads a folder, and checks that its files agree with each other.
    pub fn open(folder: &Path) -> Result<Self> {
        let paths = RunPaths::new(folder);
        for (path, file) in
            [(paths.summary(), RunPaths::summary_name()), (paths.plan(), RunPaths::plan_name())]
        {
            if !path.exists() {
                return Err(Error::Unfinished { folder: folder.to_owned(), file });
            }
        }
        let FinishedRun { summary, plan_text, ledger, guarantee, audit } =
            FinishedRun::read(folder)?;
        let contradiction = contradiction(&audit, ledger.as_ref())?;
        Ok(Self {
            name: name_of(folder),
            folder: folder.to_owned(),
            records: read_metrics(&paths.metrics())?,
            synthetic: Synthetic::read(&paths)?,
            audit,
            contradiction,
            summary,
            plan_text,
            ledger: ledger.map(Arc::new),
            guarantee,
        })
    }

    /// Reads several folders. Runs whose folders share a name are named by their paths.
    pub fn open_all(folders: &[PathBuf]) -> Result<Vec<Self>> {
        let mut runs =
            folders.iter().map(|folder| Self::open(folder)).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
        for run in &mut runs {
            if names.iter().filter(|name| **name == run.name).count() > 1 {
                run.name = run.folder.display().to_string();
            }
        }
        Ok(runs)
    }

    /// The guarantee proved by the ledger; `None` if the run has no ledger.
    pub fn guarantee(&self) -> Option<&Guarantee> {
        self.guarantee.as_ref()
    }

    /// The reason why nothing is guaranteed; `None` if the run has a guarantee.
    pub fn no_guarantee(&self) -> Option<String> {
        if self.summary.private && self.contradiction.is_some() {
            return self.contradiction.clone();
        }
        let said = self.summary.not_private_because.clone();
        let unsaid = || "summary.json says that the run is not private".to_owned();
        (!self.summary.private).then(|| said.unwrap_or_else(unsaid))
    }

    pub(crate) fn ledger_path(&self) -> PathBuf {
        RunPaths::new(&self.folder).ledger()
    }
}

/// A contradiction between the canary audit and the ledger's ε, if there is one.
fn contradiction(audit: &Audit, ledger: Option<&Ledger>) -> Result<Option<String>> {
    let (Some(one_run), Some(ledger)) = (&audit.one_run, ledger) else { return Ok(None) };
    let refuted = one_run.promised_curve_is_refuted;
    let result = &one_run.found;
    let proved = ledger.guarantee(result.delta)?.epsilon.upper;
    // Without the figure, which comes from the data: public reports contain this sentence too.
    let said = if result.epsilon_lower > proved {
        "canaries show a larger ε than the ledger proves"
    } else if refuted == Some(true) {
        "canaries were distinguished better than the ledger's privacy curve allows"
    } else {
        return Ok(None);
    };
    Ok(Some(format!(
        "{said} (by an audit with {:.0} % confidence); repeat it with more canaries, and do not \
         release the model meanwhile",
        100.0 * result.confidence
    )))
}

fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}
