//! The privacy ledger of a run, and the proof of recording that a release requires.

use crate::collective::Ranks;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Event, Guarantee, Part, PlannedSpending};

/// Proof that releases are recorded in the ledger: only [`RunLedger::record`] creates one. It
/// cannot be copied, and a release consumes it.
#[derive(Debug)]
pub struct Recorded {
    event: Event,
    count: u64,
}

impl Recorded {
    /// A proof without a ledger, for tests of functions that require one.
    #[cfg(test)]
    pub(crate) fn in_tests(event: Event, count: u64) -> Self {
        Self { event, count }
    }

    /// The event recorded in the ledger.
    pub fn event(&self) -> Event {
        self.event
    }

    /// Number of releases of the entry.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// One proof for each release of an entry with a count.
    pub fn each(self) -> impl Iterator<Item = Self> {
        let event = self.event;
        (0..self.count).map(move |_| Self { event, count: 1 })
    }

    /// Rejects a release that has less noise than the ledger states.
    pub fn covers(&self, noise_multiplier: f64) -> Result<()> {
        let recorded = match self.event {
            Event::PoissonGaussian { noise_multiplier, .. }
            | Event::MixtureOfGaussians { noise_multiplier, .. }
            | Event::Gaussian { noise_multiplier, .. } => noise_multiplier,
            _ => f64::INFINITY,
        };
        // Also rejects NaN in either value.
        if noise_multiplier >= recorded * (1.0 - 1e-9) {
            return Ok(());
        }
        Err(Error::Model(crate::model::Error::Request(format!(
            "the effective noise multiplier is {noise_multiplier}, not {recorded} as recorded: \
             nothing was released"
        ))))
    }
}

/// The privacy cost of a release. Nothing is released without one.
#[derive(Debug)]
pub enum Cost {
    /// The ledger has an entry for this release.
    Recorded(Recorded),
    /// The sum is a function of earlier releases and public data only.
    PostProcessing,
    /// No guarantee is given for the examples: they are public or synthetic, or the run is
    /// non-private.
    NonPrivate,
}

/// The ledger of a run. Each release has an index in it: on resuming, a release that was recorded
/// before a crash is not recorded again. It is repeated with the same sample and the same noise, so
/// it is the same release and costs privacy only once.
///
/// Rank 0 writes the file. A release is recorded on all ranks before any of them makes it: each
/// rank waits in [`RunLedger::record`] until rank 0 has written the entry.
#[derive(Debug)]
pub struct RunLedger {
    /// The ledger file; `None` on ranks other than 0.
    ledger: Option<Ledger>,
    path: PathBuf,
    ranks: Ranks,
    delta: f64,
    /// ε as a function of the step, if all entries are known in advance.
    planned: Option<PlannedSpending>,
    /// The number of entries and ε at that number, if they are not.
    computed: Option<(u64, f64)>,
    /// The index and the event of the last recorded release.
    last: Option<(u64, Event)>,
}

impl RunLedger {
    /// The ledger of a run on these ranks: the file on rank 0, nothing on the others. ε is stated
    /// at `delta`.
    pub fn new(ledger: Option<Ledger>, path: PathBuf, ranks: Ranks, delta: f64) -> Self {
        Self { ledger, path, ranks, delta, planned: None, computed: None, last: None }
    }

    /// The ledger of a run in a single process.
    pub fn alone(ledger: Ledger, path: &Path, delta: f64) -> Self {
        Self::new(Some(ledger), path.to_owned(), Ranks::alone(), delta)
    }

    /// A warning if some lines of the ledger were torn.
    pub fn warning(&self) -> Option<String> {
        self.ledger.as_ref()?.warning()
    }

    /// Announces the entries that will follow one another, one release each.
    pub fn plan(&mut self, parts: Vec<Part>) {
        let Some(ledger) = &self.ledger else { return };
        let adjacency = ledger.terms().adjacency;
        let mut planned = PlannedSpending::new(adjacency, parts, self.delta);
        for _ in 0..ledger.torn_lines() {
            planned = planned.with(&ledger.terms().announced);
        }
        self.planned = Some(planned);
    }

    /// Records release number `index` (starting at 0), unless it is already recorded: a resumed run
    /// makes the same release again, bit for bit. Returns on every rank once the entry is on disk.
    /// This is the only way to get a [`Recorded`], and so the only way to release private examples.
    pub fn record(&mut self, index: u64, event: Event, count: u64) -> Result<Recorded> {
        if let Some((last, recorded)) = self.last
            && last == index
            && recorded != event
        {
            return Err(Error::folder(
                &self.path,
                format!("has another release as entry {index}: nothing was released"),
            ));
        }
        if let Some(ledger) = &mut self.ledger
            && ledger.entries() <= index
        {
            ledger.append(event, count)?;
        }
        self.last = Some((index, event));
        self.ranks.barrier()?;
        Ok(Recorded { event, count })
    }

    /// Rejects a checkpoint that is newer than the ledger: the ledger then belongs to another run
    /// or is an older copy, and would state too small an ε.
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

    /// Whether a release after the first `releases` is recorded, and so would be repeated.
    pub fn holds_more_than(&self, releases: u64) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.entries() > releases)
    }

    /// The guarantee for all recorded releases, on rank 0.
    pub fn guarantee(&self) -> Result<Option<Guarantee>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        Ok(Some(ledger.guarantee(self.delta)?))
    }

    /// The guarantee after the last planned release, on rank 0; `None` if all are recorded.
    pub fn guarantee_of_plan(&self) -> Result<Option<Guarantee>> {
        let planned = self.ledger.as_ref().and_then(Ledger::as_planned);
        Ok(planned.map(|planned| planned.guarantee(self.delta)).transpose()?)
    }

    /// An upper bound on ε for all recorded releases: from the plan, at most 2 % above the
    /// ledger's, or from the ledger if it has grown. `None` on ranks other than 0.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Batch, Example, Target};
    use crate::gradient::Clip;
    use crate::method::central::DpSgd;
    use crate::model::TaskHead;
    use crate::model::architecture::{Architecture, Dimensions};
    use crate::noise::{Noise, Secret};
    use crate::step::optimizer::Settings;
    use crate::step::{AllocationMethod, Learner, Protection, StepSettings};
    use undertone_accounting::ledger::Terms;
    use undertone_accounting::{Adjacency, Mode, Threat, Unit};

    fn event(noise_multiplier: f64) -> Event {
        Event::PoissonGaussian { noise_multiplier, sampling_rate: 0.1 }
    }

    fn ledger(folder: &Path) -> RunLedger {
        let path = folder.join("ledger.jsonl");
        let terms = Terms {
            id: String::new(),
            run: None,
            unit: Unit::Example,
            adjacency: Adjacency::AddRemove,
            threat: Threat::Central,
            mode: Mode::Proved,
            assumptions: Vec::new(),
            announced: vec![Part { event: event(0.5), count: 1 }],
        };
        RunLedger::alone(Ledger::create(&path, terms).unwrap(), &path, 1e-5)
    }

    /// An entry is written once, no matter how often the same release is repeated, and no other
    /// release is mistaken for it.
    #[test]
    fn a_release_is_recorded_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = ledger(folder.path());
        for _ in 0..2 {
            assert_eq!(ledger.record(0, event(1.0), 1).unwrap().event(), event(1.0));
        }
        assert!(ledger.record(0, event(0.9), 1).is_err(), "another release");
        ledger.record(1, event(0.9), 1).unwrap();
        let text = std::fs::read_to_string(folder.path().join("ledger.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(ledger.record(2, event(0.4), 1).is_err(), "costlier than announced");
    }

    /// Nothing changes if the noise is less than recorded, or if the cost is of the wrong kind.
    #[test]
    fn a_release_needs_what_it_costs() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = ledger(folder.path());
        let dimensions = Dimensions {
            layers: 1,
            hidden: 8,
            heads: 2,
            inner: 8,
            vocabulary: 20,
            positions: 8,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let head = TaskHead::SequenceClassification;
        let model = Architecture::Bert.random(dimensions, head, &labels, 3).unwrap();
        let dp_sgd = DpSgd::new(&Clip::Flat(1.0), &model.parameters);
        let method = AllocationMethod::Proved(Box::new(dp_sgd));
        let protection = Protection { method, noise: Noise::new(&Secret::from_seed(1)) };
        let mut private = Learner::new(model.clone(), Settings::default(), Some(protection));
        let mut plain = Learner::new(model, Settings::default(), None);
        let example = Example {
            tokens: vec![1, 2, 3],
            target: Target::Class(0),
            unit: 0,
            ..Example::default()
        };
        let batch = Batch::pack([&example]);
        let weights = |learner: &Learner| -> Vec<f32> {
            let all = learner.model.parameters.iter();
            all.flat_map(|(_, parameter)| parameter.value.to_vec().unwrap()).collect()
        };
        let release = |learner: &mut Learner, cost: Cost| {
            let settings =
                StepSettings { number: 0, noise_multiplier: 1.0, divisor: 1.0, learning_rate: 0.1 };
            let before = weights(learner);
            let step = learner.begin_step(settings).unwrap();
            let mut sum = learner.empty_sum();
            learner.accumulate(&step, &batch, None, &mut sum).unwrap();
            let done = learner.release(sum, step, cost);
            assert_eq!(done.is_err(), before == weights(learner), "{done:?}");
            done.is_ok()
        };
        let mut recorded =
            |index, sigma| Cost::Recorded(ledger.record(index, event(sigma), 1).unwrap());
        assert!(!release(&mut private, recorded(0, 1.1)), "less noise than recorded");
        assert!(!release(&mut private, Cost::PostProcessing), "noise that nobody recorded");
        assert!(release(&mut private, recorded(1, 1.0)));
        assert!(release(&mut private, recorded(2, 0.9)), "more noise than recorded");
        assert!(!release(&mut plain, recorded(3, 1.0)), "recorded, and without noise");
        assert!(release(&mut plain, Cost::PostProcessing));
        assert!(release(&mut plain, Cost::NonPrivate));
    }
}
