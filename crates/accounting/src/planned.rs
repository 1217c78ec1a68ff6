//! ε after each release of a plan, cheap enough to compute after every step.

use crate::{Accountant, Adjacency, Bounds, Composition, Part, Result, epsilon};
use std::collections::HashMap;

/// The largest relative excess of the bound over ε.
pub const TOLERANCE: f64 = 0.015;

/// ε over the releases of a plan.
///
/// Releases only add to ε, so ε after b releases bounds ε after any n ≤ b. Each part of the plan is
/// bisected around n until both ends of the interval agree to `TOLERANCE`; the answer is ε at the
/// upper end. Each end is computed once. Ends depend only on the plan and on n, so an interrupted
/// run reports the same ε as an uninterrupted one.
#[derive(Clone, Debug)]
pub struct PlannedSpending {
    before: Composition,
    parts: Vec<Part>,
    delta: f64,
    computed: HashMap<u64, Bounds>,
}

impl PlannedSpending {
    /// The spending of these releases, in this order.
    pub fn new(adjacency: Adjacency, parts: Vec<Part>, delta: f64) -> Self {
        let before = Composition::new(adjacency);
        Self { before, parts, delta, computed: HashMap::new() }
    }

    /// Adds releases outside the plan, such as torn lines of a ledger.
    pub fn with(mut self, besides: &[Part]) -> Self {
        besides.iter().for_each(|part| self.before.push(part.event, part.count));
        self.computed.clear();
        self
    }

    /// A certified upper bound on ε after the first `releases` releases. It is never below the
    /// accountant's own upper bound, and at most 2 % above it (exact at the end of a part).
    pub fn after(&mut self, releases: u64) -> Result<f64> {
        let (mut low, mut high) = (0, 0_u64);
        for part in &self.parts {
            (low, high) = (high, high.saturating_add(part.count));
            if releases <= high {
                break;
            }
        }
        let releases = releases.min(high);
        loop {
            let end = self.bounds(high)?;
            if releases == high {
                return Ok(end.upper);
            }
            // Bounds are monotone only up to their width, so the width is added once more.
            let padded = end.upper + end.gap();
            if padded <= self.bounds(low)?.lower * (1.0 + TOLERANCE) {
                return Ok(padded);
            }
            let middle = low + (high - low) / 2;
            match releases <= middle {
                true => high = middle,
                false => low = middle,
            }
        }
    }

    /// Bounds on ε after exactly `releases` releases.
    fn bounds(&mut self, releases: u64) -> Result<Bounds> {
        if let Some(known) = self.computed.get(&releases) {
            return Ok(*known);
        }
        let (mut all, mut left) = (self.before.clone(), releases);
        for part in &self.parts {
            let count = part.count.min(left);
            all.push(part.event, count);
            left -= count;
        }
        let bounds = match all.releases() {
            0 => Bounds::exact(0.0),
            _ => epsilon(&all, self.delta, Accountant::Auto)?.epsilon,
        };
        self.computed.insert(releases, bounds);
        Ok(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn steps(noise_multiplier: f64, count: u64) -> Part {
        Part { event: Event::PoissonGaussian { noise_multiplier, sampling_rate: 0.02 }, count }
    }

    /// Compares with the accountant at every step, for a rising, a falling and an even schedule, a
    /// plain release before them, and very little or very much noise.
    #[test]
    fn every_step_is_bounded_and_within_two_percent() {
        let map =
            Part { event: Event::Gaussian { noise_multiplier: 6.0, sensitivity: 1.0 }, count: 1 };
        for plan in [
            vec![steps(0.9, 60), steps(0.9, 60)],
            vec![map, steps(1.2, 50), steps(0.7, 50)],
            vec![steps(0.5, 40), steps(2.0, 40)],
            vec![steps(0.3, 40)],
            vec![steps(20.0, 40)],
        ] {
            let mut planned = PlannedSpending::new(Adjacency::AddRemove, plan.clone(), 1e-5);
            let mut ledger = Composition::new(Adjacency::AddRemove);
            let (mut released, mut last) = (0, 0.0);
            assert_eq!(planned.after(0).unwrap(), 0.0);
            for part in &plan {
                for _ in 0..part.count {
                    ledger.push(part.event, 1);
                    released += 1;
                    let truth = epsilon(&ledger, 1e-5, Accountant::Auto).unwrap().epsilon;
                    let shown = planned.after(released).unwrap();
                    assert!(shown >= truth.upper, "{released}: {shown} is below {truth:?}");
                    assert!(shown <= truth.upper * 1.02, "{released}: {shown}, not {truth:?}");
                    assert!(shown >= last * (1.0 - 1e-3), "{released}: it falls from {last}");
                    last = shown;
                }
                let truth = epsilon(&ledger, 1e-5, Accountant::Auto).unwrap().epsilon;
                assert_eq!(last, truth.upper, "exact at the end of an epoch");
            }
        }
    }

    /// A few hundred computations serve a hundred thousand steps, and none is repeated.
    ///
    #[test]
    fn most_steps_cost_nothing() {
        let mut planned =
            PlannedSpending::new(Adjacency::AddRemove, vec![steps(0.9, 100_000)], 1e-6);
        for step in (1..=100_000).step_by(7) {
            planned.after(step).unwrap();
        }
        assert!(planned.computed.len() < 800, "{}", planned.computed.len());
    }

    #[test]
    fn asked_in_another_order_it_says_the_same() {
        let plan = vec![steps(0.8, 300)];
        let of = |order: &mut dyn Iterator<Item = u64>| {
            let mut planned = PlannedSpending::new(Adjacency::AddRemove, plan.clone(), 1e-5);
            let mut said: Vec<(u64, f64)> =
                order.map(|step| (step, planned.after(step).unwrap())).collect();
            said.sort_by_key(|(step, _)| *step);
            said
        };
        let forwards = of(&mut (1..=300));
        assert_eq!(of(&mut (1..=300).rev()), forwards);
        assert_eq!(of(&mut (150..=300)), forwards[149..]);
    }
}
