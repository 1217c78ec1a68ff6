//! The budget of one data set: what is spent, what is reserved, and what still fits.

use crate::compose::{at_delta, join, quieter};
use crate::entry::{Cap, Cost, DataSet, Reservation, Settlement};
use crate::error::{Error, Result};
use undertone_accounting::calibrate::least_noise;
use undertone_accounting::{Accountant, Bounds, Composition, Event, Unit, rounded_up};

/// A data set with all its runs.
#[derive(Clone, Debug)]
pub struct Account {
    /// The data set as registered.
    pub set: DataSet,
    /// Time of registration, in seconds since 1970.
    pub since: u64,
    /// The current cap.
    pub cap: Cap,
    /// Why no further run is allowed, if the data set is closed.
    pub closed: Option<String>,
    /// The runs, in the order of their reservations.
    pub bookings: Vec<Booking>,
}

/// A reservation and its outcome.
#[derive(Clone, Debug)]
pub struct Booking {
    /// The planned cost.
    pub reservation: Reservation,
    /// Time of the reservation, in seconds since 1970.
    pub at: u64,
    /// Hash of the reservation's line.
    pub hash: String,
    /// The outcome.
    pub status: Status,
}

/// The outcome of a reservation.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// The run is not known to have ended: the planned cost counts.
    Open,
    /// Settled at the given time: the actual cost counts.
    Settled(u64, Settlement),
    /// Released at the given time, for a reason: nothing counts.
    Released(u64, String),
}

/// Whether a planned run fits into the remaining budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fit {
    /// ε of all runs together, at the cap's δ.
    Within(f64),
    /// The run does not fit.
    Over {
        /// ε of all runs together; infinite if it is more than the accountant certifies.
        total: f64,
        /// The largest ε, at the run's own δ, of a run with the same steps and more noise that
        /// would fit, if there is one.
        would_fit: Option<f64>,
    },
}

impl Booking {
    /// The cost that counts: the actual cost if settled, otherwise the planned one.
    pub fn counts(&self) -> Option<&Cost> {
        match &self.status {
            Status::Open => Some(&self.reservation.cost),
            Status::Settled(_, settlement) => Some(&settlement.cost),
            Status::Released(..) => None,
        }
    }
}

impl Account {
    /// A new data set.
    pub fn new(set: DataSet, since: u64) -> Self {
        Self { cap: set.cap, set, since, closed: None, bookings: Vec::new() }
    }

    /// Everything that counts: settled runs and open reservations.
    pub fn committed(&self) -> Composition {
        self.composition(|_| true)
    }

    /// The releases of settled runs only.
    pub fn spent(&self) -> Composition {
        self.composition(|status| matches!(status, Status::Settled(..)))
    }

    fn composition(&self, counts: impl Fn(&Status) -> bool) -> Composition {
        let mut all = Composition::new(self.set.adjacency);
        for booking in self.bookings.iter().filter(|booking| counts(&booking.status)) {
            for part in booking.counts().iter().flat_map(|cost| cost.releases.parts()) {
                all.push(part.event, part.count);
            }
        }
        all
    }

    /// Bounds on ε of some of the releases, at the cap's δ; 0 without releases.
    pub fn epsilon_of(&self, releases: &Composition) -> Result<Bounds> {
        at_delta(releases, self.cap.delta)
    }

    /// Rejects a cost whose guarantee is of a different kind than the data set's budget.
    pub fn check_kind(&self, cost: &Cost) -> Result<()> {
        let name = &self.set.name;
        if cost.unit != self.set.unit {
            return Err(Error::refused(format!(
                "the run protects {}, but the budget of {name} is for {}: their ε cannot be \
                 composed; {}",
                unit_words(cost.unit),
                unit_words(self.set.unit),
                match self.set.unit {
                    Unit::User => "name the column of users in data.author",
                    Unit::Example => "leave data.author out, or add a data set with --unit user",
                }
            )));
        }
        if cost.releases.adjacency != self.set.adjacency || cost.threat != self.set.threat {
            return Err(Error::refused(format!(
                "the run has another adjacency or threat model than the budget of {name}, so their \
                 ε cannot be composed"
            )));
        }
        if cost.delta > self.cap.delta {
            return Err(Error::refused(format!(
                "the run's δ is {:e}, but the cap of {name} allows at most δ = {:e}; set \
                 privacy.delta to at most that",
                cost.delta, self.cap.delta
            )));
        }
        Ok(())
    }

    /// Whether a planned cost fits under the cap.
    pub fn fit(&self, cost: &Cost) -> Result<Fit> {
        self.check_kind(cost)?;
        cost.releases.validate()?;
        let committed = self.committed();
        let total = self.epsilon_of(&join(&committed, &cost.releases))?.upper;
        if total <= self.cap.epsilon {
            return Ok(Fit::Within(total));
        }
        Ok(Fit::Over { total, would_fit: self.largest_that_fits(&committed, cost) })
    }

    /// ε at the run's δ of the same releases with just enough additional noise to fit, rounded
    /// down.
    fn largest_that_fits(&self, committed: &Composition, cost: &Cost) -> Option<f64> {
        // The accountant's certified range bounds the noise.
        let most = cost.releases.parts().iter().map(|part| match part.event {
            Event::Gaussian { noise_multiplier, sensitivity } => {
                1e8 * sensitivity / noise_multiplier
            }
            Event::PoissonGaussian { noise_multiplier, .. }
            | Event::MixtureOfGaussians { noise_multiplier, .. }
            | Event::Selection { noise_multiplier, .. } => 999.0 / noise_multiplier,
            Event::RandomizedResponse { .. } | Event::Exponential { .. } => 1e6,
            // Noise does not change the δ of a threshold.
            Event::Threshold { .. } => f64::INFINITY,
        });
        let most = most.fold(1e9, f64::min);
        if most <= 1.0 {
            return None;
        }
        let Cap { epsilon, delta } = self.cap;
        let compose = |factor: f64| join(committed, &quieter(&cost.releases, factor));
        let calibrated =
            least_noise(epsilon, delta, Accountant::Auto, (1.0, most), compose).ok()?;
        let alone = at_delta(&quieter(&cost.releases, calibrated.noise), cost.delta).ok()?.upper;
        let rounded = (alone * 1e3).floor() / 1e3;
        (rounded > 0.0).then_some(rounded)
    }

    /// Why a run may not start at this time, regardless of its cost.
    pub fn check_open(&self, at: u64) -> Result<()> {
        let name = &self.set.name;
        if let Some(reason) = &self.closed {
            return Err(Error::refused(format!(
                "the budget of {name} is closed ({reason}); no further run is allowed"
            )));
        }
        match self.set.expires {
            Some(expires) if at > expires => Err(Error::refused(format!(
                "the budget of {name} expired on {}; no further run is allowed",
                crate::date(expires)
            ))),
            _ => Ok(()),
        }
    }

    /// The message for a run that does not fit.
    pub fn over_cap(&self, cost: &Cost, total: f64, would_fit: Option<f64>) -> Error {
        let committed = self.epsilon_of(&self.committed());
        let taken = committed.map_or(f64::INFINITY, |bounds| bounds.upper);
        let alone = at_delta(&cost.releases, cost.delta).map_or(f64::INFINITY, |b| b.upper);
        let advice = match would_fit {
            Some(fits) => format!("the same steps with privacy.epsilon = {fits} would fit"),
            None => "no run of these steps fits".to_owned(),
        };
        Error::refused(format!(
            "the run would cost ε = {} at δ = {:e} and bring {} to ε = {}, over its cap of {}; ε = \
             {} is spent or reserved, and {advice}",
            shown(alone),
            cost.delta,
            self.set.name,
            shown(total),
            self.cap,
            shown(taken),
        ))
    }
}

/// ε rounded up, or that there is no bound.
pub(crate) fn shown(epsilon: f64) -> String {
    if epsilon.is_finite() { rounded_up(epsilon) } else { "more than 1000".to_owned() }
}

fn unit_words(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "single examples",
        Unit::User => "users with all their examples",
    }
}
