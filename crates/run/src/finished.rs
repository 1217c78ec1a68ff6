//! Checks that the files of a run folder belong together.
//!
//! The plan, ledger, summary and audit all describe one run. A file that was edited, truncated or
//! copied from another run contradicts the others, and the folder is rejected so that no report
//! certifies it. An attacker who rewrites all files consistently is not detected; to rule that out,
//! publish the hash of the ledger's last line.

use crate::folder::BEGUN;
use crate::{
    Audit, MOST_OF_SETTINGS, MethodName, ModeName, NcclUse, Resolved, RunFile, RunPaths, Summary,
    is_locked, read_bytes, read_settings,
};
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use undertone_accounting::ledger::{Ledger, RunBinding};
use undertone_accounting::{Guarantee, Mode};

/// A finished run whose files are consistent.
#[derive(Debug)]
pub struct FinishedRun {
    /// The run's summary.
    pub summary: Summary,
    /// The text of plan.toml.
    pub plan_text: String,
    /// Every release; `None` for a non-private run.
    pub ledger: Option<Ledger>,
    /// The ledger's guarantee at the plan's δ.
    pub guarantee: Option<Guarantee>,
    /// Results of attacks.
    pub audit: Audit,
}

/// SHA-256 of a file's bytes, in hexadecimal.
fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl RunPaths {
    /// The hash of `plan.toml` recorded in the ledger's first line, taken before the run began.
    pub fn plan_hash(&self) -> Result<String> {
        let path = self.plan();
        let bytes = read_bytes(&path, MOST_OF_SETTINGS).map_err(Error::io(&path))?;
        Ok(hash_of(bytes.strip_suffix(BEGUN.as_bytes()).unwrap_or(&bytes)))
    }

    /// Reads the ledger of a run that has begun; rejects one that belongs to another plan.
    pub fn read_ledger(&self) -> Result<Ledger> {
        let ledger = Ledger::read(self.ledger())?;
        if let Some(bound) = &ledger.terms().run
            && self.plan().exists()
            && bound.plan != self.plan_hash()?
        {
            return Err(Error::folder(
                &self.ledger(),
                "belongs to another plan than the plan.toml beside it; bring back the files of one \
                 run",
            ));
        }
        Ok(ledger)
    }
}

impl FinishedRun {
    /// Reads the folder of a finished run; rejects one whose files contradict each other.
    pub fn read(folder: &Path) -> Result<Self> {
        let paths = RunPaths::new(folder);
        let summary = paths.read_summary()?;
        forget_secrets(&paths)?;
        let plan_text = read_settings(&paths.plan()).map_err(Error::io(&paths.plan()))?;
        let plan = RunFile::parse(&plan_text, &[])
            .map_err(|e| Error::folder(&paths.plan(), e.to_string()))?;
        check_plan(&paths, &plan, &summary)?;
        let (ledger, guarantee) = proved(&paths, &plan, &summary)?;
        let audit = Audit::read(&paths.audit())?;
        Ok(Self { summary, plan_text, ledger, guarantee, audit })
    }
}

/// Removes the secret of a run that finished but was interrupted before removing it: anyone who
/// reads the secret can subtract the noise.
fn forget_secrets(paths: &RunPaths) -> Result<()> {
    if is_locked(paths.folder()) {
        return Ok(());
    }
    paths.forget_secrets()
}

/// Checks that `plan.toml` matches the plan in `summary.json`, ignoring settings that do not affect
/// the results.
fn check_plan(paths: &RunPaths, plan: &RunFile, summary: &Summary) -> Result<()> {
    let text = |plan: &RunFile| {
        let mut plan = plan.clone();
        plan.format = None;
        plan.compute.checkpoint_every = None;
        plan.compute.tensorboard = false;
        plan.compute.nccl = NcclUse::Auto;
        plan.to_toml()
    };
    if text(plan)? != text(&summary.plan)? {
        return Err(Error::folder(&paths.plan(), "is another plan than the one in summary.json"));
    }
    let resolved = RunFile::read_resolved(&paths.plan())?;
    let stated = &summary.resolved;
    // Published MVG calibrates its noise on the model after the plan has been written.
    let calibrated_later =
        plan.privacy.method == MethodName::Mvg && plan.privacy.mode == ModeName::Paper;
    let same = match calibrated_later {
        false => resolved == *stated,
        true => {
            (resolved.units, resolved.steps_per_epoch) == (stated.units, stated.steps_per_epoch)
        }
    };
    let planned = steps(plan, stated);
    let taken = match (&summary.stopped, summary.early_stop, plan.training.stop_early) {
        (Some(stopped), None, _) => {
            stopped.planned_steps == planned && (1..planned).contains(&summary.steps)
        }
        (None, None, None) => summary.steps == planned,
        (None, Some(stop), Some(_)) => {
            let epochs = stop.epochs.saturating_mul(stated.steps_per_epoch);
            summary.steps == epochs && epochs <= planned && (1..=stop.epochs).contains(&stop.kept)
        }
        _ => false,
    };
    if !same || !taken {
        return Err(Error::folder(
            &paths.summary(),
            "has other units, steps or noise than plan.toml",
        ));
    }
    Ok(())
}

fn steps(plan: &RunFile, resolved: &Resolved) -> u64 {
    resolved.steps_per_epoch.saturating_mul(u64::from(plan.training.epochs))
}

/// Returns the ledger and the guarantee that it proves; rejects a plan or summary that states
/// anything else.
fn proved(
    paths: &RunPaths,
    plan: &RunFile,
    summary: &Summary,
) -> Result<(Option<Ledger>, Option<Guarantee>)> {
    let (path, at) = (paths.ledger(), paths.summary());
    let wrong = |path: &Path, problem: &str| Err(Error::folder(path, problem));
    if plan.privacy.method == MethodName::None {
        if summary.private || summary.guarantee.is_some() {
            return wrong(&at, "states a guarantee, but the plan is non-private");
        }
        if path.exists() {
            return wrong(&path, "is the ledger of another run: the plan is non-private");
        }
        return Ok((None, None));
    }
    let Some(stated) = &summary.guarantee else {
        return wrong(&at, "has no guarantee, though the run has a ledger");
    };
    let ledger = paths.read_ledger()?;
    if summary.ledger_hash.as_deref().is_some_and(|hash| hash != ledger.hash()) {
        return wrong(
            &path,
            "is not the ledger that the run ended with; the hash in summary.json is another",
        );
    }
    check_binding(&path, &ledger, summary)?;
    if plan.privacy.delta.is_some_and(|delta| delta != stated.delta) {
        return wrong(&at, "states a guarantee at another δ than the plan's");
    }
    let recomputed = ledger.guarantee(stated.delta)?;
    let of_plan = ledger.as_planned().map(|planned| planned.guarantee(stated.delta)).transpose()?;
    let stated_of_plan = summary.stopped.as_ref().and_then(|it| it.guarantee_of_plan.as_ref());
    let same_plan = match (stated_of_plan, &of_plan) {
        (None, None) => true,
        (Some(stated), Some(recomputed)) => is_same(stated, recomputed),
        _ => false,
    };
    if !is_same(stated, &recomputed) || !same_plan {
        return wrong(&at, "states another guarantee than the ledger beside it proves");
    }
    let stated_mode = match (plan.privacy.mode, plan.training.seed) {
        (ModeName::Paper, _) => Mode::Paper,
        (ModeName::Proved, Some(_)) => Mode::Seeded,
        (ModeName::Proved, None) => Mode::Proved,
    };
    if recomputed.mode != stated_mode {
        return wrong(&path, "was written in another mode than the plan's");
    }
    if summary.private && recomputed.mode != Mode::Proved {
        return wrong(&at, "says that the run is private, but its ledger guarantees nothing");
    }
    Ok((Some(ledger), Some(recomputed)))
}

/// Whether two guarantees are the same up to rounding.
fn is_same(stated: &Guarantee, recomputed: &Guarantee) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
    close(stated.epsilon.upper, recomputed.epsilon.upper)
        && close(stated.epsilon.lower, recomputed.epsilon.lower)
        && (stated.unit, stated.adjacency, stated.threat, stated.mode)
            == (recomputed.unit, recomputed.adjacency, recomputed.threat, recomputed.mode)
}

/// Checks that the ledger's first line describes this run and that it has an entry for each
/// release.
fn check_binding(path: &Path, ledger: &Ledger, summary: &Summary) -> Result<()> {
    let Summary { resolved, guarantee, .. } = summary;
    let Some(bound) = &ledger.terms().run else {
        return Err(Error::folder(path, "does not name the run that it belongs to"));
    };
    let RunBinding { units, sampling_rate, steps, noise_multipliers, delta, entries, .. } = bound;
    let same = *units == resolved.units as u64
        && *sampling_rate == resolved.sampling_rate
        && bound.examples_per_user == resolved.examples.map(|examples| examples.per_user)
        && *steps == self::steps(&summary.plan, resolved)
        && guarantee.as_ref().is_none_or(|stated| stated.delta == *delta);
    let calibrated_later = summary.plan.privacy.method == MethodName::Mvg
        && summary.plan.privacy.mode == ModeName::Paper;
    if !same || !(calibrated_later || *noise_multipliers == resolved.noise_multipliers) {
        return Err(Error::folder(
            path,
            "is of a run with other units, steps, noise or δ than summary.json states",
        ));
    }
    if ledger.entries() < *entries && summary.stopped.is_none() {
        return Err(Error::folder(
            path,
            format!(
                "has {} entries, but the run has made {entries} releases; bring back the whole \
                 ledger",
                ledger.entries()
            ),
        ));
    }
    Ok(())
}
