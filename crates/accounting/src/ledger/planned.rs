//! What an unfinished run would guarantee if it were completed.
//!
//! # Statement
//!
//! Let a plan of n releases, fixed before the first, be (ε, δ)-DP. Let the run stop after any
//! number of releases; the decision to stop may depend on what was released. The releases made by
//! then are a function of all n releases, so they are (ε, δ)-DP too. The smaller ε of only the
//! releases that were made does not follow: it is proved only if their number did not depend on
//! them.

use super::{Ledger, RunBinding};
use crate::{Event, Mode, Part};

/// The assumption behind the ε of the releases made so far, if more were planned.
const STOPPED_BLINDLY: &str = "the run was not stopped because of anything that it released or \
                               showed, such as its model, losses or metrics";

impl Ledger {
    /// Whether fewer releases were made than planned.
    fn is_cut_short(&self) -> bool {
        self.terms.run.as_ref().is_some_and(|run| self.entries < run.entries)
    }

    /// The assumptions of the guarantee: those of the first line and, if fewer releases were made
    /// than planned, the assumption about how the run was stopped.
    pub(super) fn assumptions(&self) -> Vec<String> {
        let stopped = self.is_cut_short().then(|| STOPPED_BLINDLY.to_owned());
        self.terms.assumptions.iter().cloned().chain(stopped).collect()
    }

    /// The ledger of an unfinished run as it would be after its last planned release, or `None` for
    /// other ledgers. Each missing entry is the planned one or one that costs at least as much.
    pub fn as_planned(&self) -> Option<Ledger> {
        let run = self.terms.run.as_ref()?;
        let left = run.entries.checked_sub(self.entries).filter(|left| *left > 0)?;
        let mut spent = self.spent.clone();
        for part in self.missing(run, left) {
            spent.push(part.event, part.count);
        }
        Some(Ledger {
            path: self.path.clone(),
            file: None,
            length: self.length,
            terms: self.terms.clone(),
            spent,
            entries: run.entries,
            last_hash: self.last_hash.clone(),
            torn_lines: self.torn_lines,
        })
    }

    /// The last `left` entries of the run.
    fn missing(&self, run: &RunBinding, left: u64) -> Vec<Part> {
        match run.sampling_rate {
            Some(rate) if self.terms.mode != Mode::Paper => {
                let (mut parts, unknown) = last_steps(run, rate, left);
                parts.extend(self.announced(unknown, |_| true));
                parts
            }
            // The effective noise of a published method is not known in advance.
            _ => {
                // Embeddings come last, after labels and adaptation steps.
                let is_embedding = |event: &Event| matches!(event, Event::Gaussian { .. });
                let others_are_recorded = self.terms.announced.iter().all(|part| {
                    is_embedding(&part.event)
                        || self.spent.parts().iter().any(|spent| spent.event == part.event)
                });
                self.announced(left, |event| !others_are_recorded || is_embedding(event))
            }
        }
    }

    /// For each of `entries` of unknown kind, one of each announced entry.
    fn announced(&self, entries: u64, can_follow: impl Fn(&Event) -> bool) -> Vec<Part> {
        let parts = self.terms.announced.iter().filter(|part| can_follow(&part.event));
        parts
            .map(|part| Part { event: part.event, count: part.count.saturating_mul(entries) })
            .filter(|part| part.count > 0)
            .collect()
    }
}

/// The last `left` entries of training steps with the noise of their epochs, from the last epoch
/// backwards, and the number of entries before the first step.
fn last_steps(run: &RunBinding, sampling_rate: f64, left: u64) -> (Vec<Part>, u64) {
    let epochs = run.noise_multipliers.len() as u64;
    // With correlated noise an entry stands for a block of steps, all with the same noise.
    let per_epoch = run.steps.min(run.entries).div_ceil(epochs.max(1));
    let (mut parts, mut left) = (Vec::new(), left);
    for &noise_multiplier in run.noise_multipliers.iter().rev() {
        let count = per_epoch.min(left);
        left -= count;
        if count > 0 {
            let event = Event::of_step(noise_multiplier, sampling_rate, run.examples_per_user);
            parts.push(Part { event, count });
        }
    }
    (parts, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Terms;
    use crate::{Adjacency, Threat, Unit};

    const RATE: f64 = 0.02;

    fn step(noise_multiplier: f64) -> Event {
        Event::PoissonGaussian { noise_multiplier, sampling_rate: RATE }
    }

    fn run(noise_multipliers: &[f64], steps: u64, entries: u64) -> RunBinding {
        RunBinding {
            plan: String::new(),
            units: 1000,
            sampling_rate: Some(RATE),
            examples_per_user: None,
            steps,
            noise_multipliers: noise_multipliers.to_vec(),
            delta: 1e-5,
            entries,
            device: String::new(),
        }
    }

    /// Wherever the run stops, the plan's ε equals that of the complete ledger.
    fn assert_planned(run: RunBinding, entries: &[Event], mode: Mode) {
        let folder = tempfile::tempdir().unwrap();
        let terms = Terms {
            id: String::new(),
            run: Some(run),
            unit: Unit::Example,
            adjacency: Adjacency::AddRemove,
            threat: Threat::Central,
            mode,
            assumptions: Vec::new(),
            announced: vec![
                Part { event: step(0.7), count: 1 },
                Part {
                    event: Event::Gaussian { noise_multiplier: 6.0, sensitivity: 1.0 },
                    count: 1,
                },
            ],
        };
        let mut ledger = Ledger::create(folder.path().join("ledger.jsonl"), terms).unwrap();
        let mut stated = Vec::new();
        for event in entries {
            stated.push(ledger.as_planned().unwrap().guarantee(1e-5).unwrap().epsilon);
            ledger.append(*event, 1).unwrap();
        }
        assert!(ledger.as_planned().is_none(), "the run is complete");
        let whole = ledger.guarantee(1e-5).unwrap().epsilon;
        for (entries, planned) in stated.iter().enumerate() {
            assert!(planned.upper >= whole.upper * (1.0 - 1e-9), "{entries}: {planned:?}");
            let loose = mode == Mode::Paper || entries == 0;
            assert!(loose || planned.upper <= whole.upper * (1.0 + 1e-9), "{entries}: {planned:?}");
        }
    }

    /// The ε of the releases made so far states its assumption; the ε of the plan does not need it.
    #[test]
    fn the_guarantee_of_a_stopped_run_assumes_that_it_was_stopped_blindly() {
        let folder = tempfile::tempdir().unwrap();
        let terms = Terms {
            id: String::new(),
            run: Some(run(&[0.9], 2, 2)),
            unit: Unit::Example,
            adjacency: Adjacency::AddRemove,
            threat: Threat::Central,
            mode: Mode::Proved,
            assumptions: vec!["a".to_owned()],
            announced: vec![Part { event: step(0.9), count: 1 }],
        };
        let mut ledger = Ledger::create(folder.path().join("ledger.jsonl"), terms).unwrap();
        ledger.append(step(0.9), 1).unwrap();
        assert_eq!(ledger.guarantee(1e-5).unwrap().assumptions, ["a", STOPPED_BLINDLY]);
        let planned = ledger.as_planned().unwrap().guarantee(1e-5).unwrap();
        assert_eq!(planned.assumptions, ["a"]);
        ledger.append(step(0.9), 1).unwrap();
        assert_eq!(ledger.guarantee(1e-5).unwrap().assumptions, ["a"]);
    }

    #[test]
    fn a_stopped_run_is_told_the_cost_of_its_plan() {
        let uniform = vec![step(0.9); 12];
        assert_planned(run(&[0.9, 0.9], 12, 12), &uniform, Mode::Proved);
        let schedule = [vec![step(1.4); 6], vec![step(0.7); 6]].concat();
        assert_planned(run(&[1.4, 0.7], 12, 12), &schedule, Mode::Proved);
        let map = Event::Gaussian { noise_multiplier: 6.0, sensitivity: 1.0 };
        let with_map = [vec![map], uniform.clone()].concat();
        assert_planned(run(&[0.9, 0.9], 12, 13), &with_map, Mode::Proved);
        // Four steps with correlated noise are one entry.
        assert_planned(run(&[0.9, 0.9], 12, 3), &uniform[..3], Mode::Proved);
        // For a published method, only the least noise is known in advance.
        assert_planned(run(&[0.9, 0.9], 12, 12), &uniform, Mode::Paper);
    }
}
