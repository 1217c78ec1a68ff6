//! How a budget was spent over time, and when it will be exhausted at the current pace.

use crate::account::{Account, Status};
use crate::compose::{at_delta, join, quieter};
use crate::error::Result;
use undertone_accounting::calibrate::least_noise;
use undertone_accounting::{Accountant, Composition, Event};

/// ε at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds since 1970.
    pub at: u64,
    /// Upper bound on ε of settled runs.
    pub spent: f64,
    /// Upper bound on ε of settled runs and open reservations.
    pub committed: f64,
}

/// Maximum number of points: each takes two accountant queries.
const POINTS: usize = 40;

const DAY: u64 = 86_400;

impl Account {
    /// ε at the cap's δ at each change, from the registration of the data set until `now`.
    pub fn course(&self, now: u64) -> Result<Vec<Point>> {
        let mut times: Vec<u64> = self.bookings.iter().map(|booking| booking.at).collect();
        times.extend(self.bookings.iter().filter_map(|booking| match booking.status {
            Status::Open => None,
            Status::Settled(at, _) | Status::Released(at, _) => Some(at),
        }));
        times.sort_unstable();
        times.dedup();
        let every = times.len().div_ceil(POINTS).max(1);
        let last = times.len().saturating_sub(1);
        let kept = times.iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last);
        let mut points = vec![Point { at: self.since, spent: 0.0, committed: 0.0 }];
        for (_, &at) in kept {
            let (spent, committed) = self.at(at);
            let (spent, committed) =
                (self.epsilon_of(&spent)?.upper, self.epsilon_of(&committed)?.upper);
            points.push(Point { at, spent, committed });
        }
        let last = points[points.len() - 1];
        points.push(Point { at: now.max(last.at), ..last });
        Ok(points)
    }

    /// What was settled, and what was settled or reserved, at some time.
    fn at(&self, time: u64) -> (Composition, Composition) {
        let mut spent = Composition::new(self.set.adjacency);
        let mut committed = spent.clone();
        for booking in self.bookings.iter().filter(|booking| booking.at <= time) {
            let planned = &booking.reservation.cost.releases;
            match &booking.status {
                Status::Settled(at, settlement) if *at <= time => {
                    spent = join(&spent, &settlement.cost.releases);
                    committed = join(&committed, &settlement.cost.releases);
                }
                Status::Released(at, _) if *at <= time => {}
                _ => committed = join(&committed, planned),
            }
        }
        (spent, committed)
    }

    /// The largest ε, at the cap's δ, of one more Gaussian release that fits; `None` if none does.
    /// This describes the remaining budget better than a difference of two ε, since ε is not
    /// additive.
    pub fn room(&self) -> Result<Option<f64>> {
        let committed = self.committed();
        let event = Event::Gaussian { noise_multiplier: 1.0, sensitivity: 1.0 };
        let release = Composition::new(self.set.adjacency).with(event, 1);
        let (epsilon, delta) = (self.cap.epsilon, self.cap.delta);
        let compose = |noise: f64| join(&committed, &quieter(&release, noise));
        let calibrated = least_noise(epsilon, delta, Accountant::Auto, (0.02, 1e6), compose);
        let Ok(calibrated) = calibrated else { return Ok(None) };
        Ok(Some(at_delta(&quieter(&release, calibrated.noise), delta)?.upper))
    }

    /// The day on which the cap is reached if the same mix of runs continues at the pace of the
    /// time since the data set was added. `None` before there are two runs and a day of history, or
    /// if it is more than a hundred years ahead.
    pub fn exhausted_at(&self, now: u64) -> Result<Option<u64>> {
        let committed = self.committed();
        let elapsed = now.saturating_sub(self.since);
        let counting = self.bookings.iter().filter(|booking| booking.counts().is_some()).count();
        if counting < 2 || elapsed < DAY {
            return Ok(None);
        }
        // Repeat all of it, in steps of a hundredth.
        let times = |hundredths: u64| {
            let mut all = Composition::new(committed.adjacency);
            for part in committed.parts() {
                let count = u128::from(part.count) * u128::from(hundredths);
                all.push(part.event, u64::try_from(count.div_ceil(100)).unwrap_or(u64::MAX));
            }
            all
        };
        let fits = |hundredths: u64| {
            let all = times(hundredths);
            all.validate().is_ok()
                && self.epsilon_of(&all).is_ok_and(|bounds| bounds.upper <= self.cap.epsilon)
        };
        let (mut low, mut high) = (100, 200);
        while fits(high) {
            if elapsed.saturating_mul(high) / 100 > 36_525 * DAY {
                return Ok(None);
            }
            (low, high) = (high, 2 * high);
        }
        while high - low > low.div_ceil(50) {
            let middle = (low + high) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        Ok(Some(self.since + elapsed.saturating_mul(low) / 100))
    }
}
