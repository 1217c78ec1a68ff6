//! The privacy ledger of a run, and the terms that central and local DP have in common.

use super::Begin;
use crate::collective::Ranks;
use crate::data::Labels;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::train::Prepared;
use std::path::PathBuf;
use undertone_accounting::ledger::{Ledger, RunBinding, Terms};
use undertone_accounting::{Event, Guarantee, Mode, Part, PlannedSpending, Unit};
use undertone_run::{OnBadRow, Resolved};

/// The ledger of a run. Each release has an index in it: a release that was recorded before a
/// crash is not recorded again on resuming. It is repeated with the same sample and the same noise,
/// so it is the same release, and costs once.
///
/// Rank 0 writes the file. A release is recorded on all ranks before any of them makes it: each
/// waits in [`RunLedger::record`] until rank 0 has written the entry.
pub struct RunLedger {
    /// The file; none on other ranks than 0.
    ledger: Option<Ledger>,
    path: PathBuf,
    ranks: Ranks,
    delta: f64,
    /// ε over the steps, where every entry is known ahead.
    planned: Option<PlannedSpending>,
    /// ε at a number of entries, where it is not.
    computed: Option<(u64, f64)>,
}

impl RunLedger {
    /// Creates the ledger, or opens the one that the run began with, whose terms must be the same.
    /// Its first line is bound to the run, whose finished ledger has `entries` entries.
    pub fn open(begin: &Begin, terms: Terms, delta: f64, entries: u64) -> Result<Self> {
        let Begin { plan, prepared, resolved, folder, secret, ranks, .. } = begin;
        let ranks = (*ranks).clone();
        let Some(folder) = folder else {
            let (path, planned, computed) = (PathBuf::new(), None, None);
            return Ok(Self { ledger: None, path, ranks, delta, planned, computed });
        };
        let path = folder.ledger();
        let run = RunBinding {
            plan: folder.plan_hash()?,
            units: resolved.units as u64,
            sampling_rate: resolved.sampling_rate,
            steps: resolved.steps_per_epoch * u64::from(plan.training.epochs),
            noise_multipliers: resolved.noise_multipliers.clone(),
            delta,
            entries,
            device: prepared.model.device().machine(),
        };
        let terms = Terms { id: secret.ledger_id(), run: Some(run), ..terms };
        let ledger = Ledger::open_or_create(&path, terms.clone())?;
        if *ledger.terms() != terms {
            return Err(Error::folder(
                &path,
                "was begun with another plan or other data; resume with what the run began with",
            ));
        }
        // Before the first release: whoever deletes the ledger after this cannot start over.
        folder.mark_begun()?;
        Ok(Self { ledger: Some(ledger), path, ranks, delta, planned: None, computed: None })
    }

    /// Says which entries will follow one another, one release each.
    pub fn plan(&mut self, parts: Vec<Part>) {
        let Some(ledger) = &self.ledger else { return };
        let adjacency = ledger.terms().adjacency;
        let mut planned = PlannedSpending::new(adjacency, parts, self.delta);
        for _ in 0..ledger.torn_lines() {
            planned = planned.with(&ledger.terms().announced);
        }
        self.planned = Some(planned);
    }

    /// Records release number `index` (from 0), unless it is recorded already. Returns on every
    /// rank when the entry is on disk.
    pub fn record(&mut self, index: u64, event: Event, count: u64) -> Result<()> {
        if let Some(ledger) = &mut self.ledger
            && ledger.entries() <= index
        {
            ledger.append(event, count)?;
        }
        Ok(self.ranks.barrier()?)
    }

    /// Refuses a checkpoint that is newer than the ledger: the ledger is then of another run, or an
    /// older copy, and would state too small an ε.
    pub fn check_that_it_holds(&self, releases: u64) -> Result<()> {
        let Some(entries) = self.ledger.as_ref().map(Ledger::entries) else { return Ok(()) };
        if entries >= releases {
            return Ok(());
        }
        Err(Error::folder(
            &self.path,
            format!(
                "has {entries} entries, but the checkpoint was taken after {releases} releases: \
                 restore the ledger that belongs to it"
            ),
        ))
    }

    /// Whether a release after the first `releases` is recorded, and so would be made again.
    pub fn holds_more_than(&self, releases: u64) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.entries() > releases)
    }

    /// The guarantee of all recorded releases, on rank 0.
    pub fn guarantee(&self) -> Result<Option<Guarantee>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        Ok(Some(ledger.guarantee(self.delta)?))
    }

    /// An upper bound on ε of all recorded releases: by the plan, at most 2 % above the ledger's,
    /// or by the ledger, when it has grown. None on other ranks than 0.
    pub fn spent(&mut self) -> Result<Option<f64>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let entries = ledger.entries();
        if let Some(planned) = &mut self.planned {
            return Ok(Some(planned.after(entries)?));
        }
        match self.computed {
            Some((at, epsilon)) if at == entries => Ok(Some(epsilon)),
            _ => {
                let epsilon = ledger.guarantee(self.delta)?.epsilon.upper;
                self.computed = Some((entries, epsilon));
                Ok(Some(epsilon))
            }
        }
    }

    /// The hash of the ledger's last line, on rank 0.
    pub fn hash(&self) -> Option<String> {
        Some(self.ledger.as_ref()?.hash().to_owned())
    }
}

/// The privacy unit of a plan.
pub fn unit(plan: &Plan) -> Unit {
    if plan.data.author.is_some() { Unit::User } else { Unit::Example }
}

/// The mode in the ledger's terms: proved, as published, or seeded.
pub fn mode(plan: &Plan, published: bool) -> Mode {
    match (published, plan.training.seed) {
        (true, _) => Mode::Paper,
        (false, Some(_)) => Mode::Seeded,
        (false, None) => Mode::Proved,
    }
}

/// Why the ledger's guarantee does not cover a private run, if it does not.
pub fn not_private_because(seed: Option<u64>, unaccounted: Option<&str>) -> Option<String> {
    match seed {
        Some(seed) => Some(format!("anyone who knows the seed ({seed}) can subtract the noise")),
        None => unaccounted.map(str::to_owned),
    }
}

/// What is assumed about classes that were found in the training file. A class that one unit alone
/// has would change the shape of the model, and the numbers of the classes after it.
fn of_found_labels(plan: &Plan, labels: &Labels) -> String {
    match plan.data.publish_labels {
        true => format!(
            "the names of the classes ({}), which were found in the training file, are public",
            labels.names().join(", ")
        ),
        false => format!(
            "the training file has the same {} classes with and without any one unit, and their \
             number is public; their names are not released",
            labels.len()
        ),
    }
}

/// The assumptions of the guarantee, in the order of the ledger: those of every private run, with
/// those of the method among them.
pub fn assumptions(
    plan: &Plan,
    resolved: &Resolved,
    prepared: &Prepared,
    of_method: Vec<String>,
) -> Vec<String> {
    let mut assumptions = vec![
        match plan.data.hold_out {
            None => {
                format!("the number of units in the training file ({}) is public", resolved.units)
            }
            Some(_) => format!(
                "the number of units of the training file that are not held out ({}) is public",
                resolved.units
            ),
        },
        "the model that the run began from does not depend on the training file".to_owned(),
        "metrics.jsonl, the folder private/, an event file for TensorBoard, secret.key, identity.json, audit.json and \
         its drawings, a relevance map without noise, the progress that was shown, and the time \
         and memory that the run took are not released: they depend on the data without noise"
            .to_owned(),
        "rounding of f32 and bf16 arithmetic, by which one unit moves the gradients of the others, \
         its own norm and adaptive clipping's count of norms in their last digits, reveals nothing"
            .to_owned(),
        "the noise, drawn in f32 and rounded to a grid, is taken for the Gaussian that it is to \
         about 2e-7 of itself"
            .to_owned(),
    ];
    if let Some(name) = plan.data.augment.as_ref().and_then(|augment| augment.infill.as_ref()) {
        assumptions.push(format!(
            "{name}, which fills in copies of texts, does not depend on the training file"
        ));
    }
    if let (true, Some(file)) = (plan.data.validation_is_public, &plan.data.validation) {
        let file = file.display();
        assumptions.push(format!("{file} is public and does not depend on the training file"));
    }
    // That none was skipped is told of the data, too.
    if plan.data.on_bad_row == OnBadRow::Skip {
        assumptions.push(format!(
            "the number of rows of the training file that were skipped ({}), which have another \
             number of fields than the header or are no JSON, is public",
            prepared.data.skipped
        ));
    }
    if let (true, Some(labels)) = (prepared.labels_were_found, &prepared.data.labels) {
        assumptions.push(of_found_labels(plan, labels));
    }
    assumptions.extend(of_method);
    if plan.training.dropout {
        assumptions.push(
            "dropout masks, which are hashed from a secret number and not drawn one by one, tell \
             nothing of each other"
                .to_owned(),
        );
    }
    assumptions
}
