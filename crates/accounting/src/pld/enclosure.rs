//! A lower and an upper bound on one hockey-stick curve, and their crossings with a given δ.

use super::response::Responses;
use super::tail::Tail;
use crate::event::limits;
use crate::{Bounds, Error, Result};

/// Bounds on a curve. They are valid everywhere and tight near the ε they were computed for.
pub struct Enclosure<'a> {
    responses: &'a Responses,
    /// Lower and upper bound on the curve of everything except the responses, or `None` if there is
    /// nothing else.
    rest: Option<(Tail, Tail)>,
}

impl<'a> Enclosure<'a> {
    pub fn new(responses: &'a Responses, lower: Tail, upper: Tail) -> Self {
        Self { responses, rest: Some((lower, upper)) }
    }

    pub fn of_responses(responses: &'a Responses) -> Self {
        Self { responses, rest: None }
    }

    fn lower(&self, epsilon: f64) -> f64 {
        self.responses.delta(self.rest.as_ref().map(|r| &r.0), epsilon, -1.0)
    }

    fn upper(&self, epsilon: f64) -> f64 {
        self.responses.delta(self.rest.as_ref().map(|r| &r.1), epsilon, 1.0)
    }

    /// Bounds on δ(ε).
    pub fn delta(&self, epsilon: f64) -> Result<Bounds> {
        // Every loss has a rounding error, so the curve is read slightly to either side.
        let shift = self.loss_error();
        Bounds::ordered(self.lower(epsilon + shift), self.upper(epsilon - shift))
    }

    /// Bounds on ε(δ).
    pub fn epsilon(&self, delta: f64) -> Result<Bounds> {
        let shift = self.loss_error();
        let upper = self.meets_from_above(delta)?;
        let lower = self.meets_from_below(delta, upper);
        Bounds::ordered((lower - shift).max(0.0), if upper > 0.0 { upper + shift } else { 0.0 })
    }

    /// An ε at which the upper bound has fallen to δ, and therefore the true curve as well.
    fn meets_from_above(&self, delta: f64) -> Result<f64> {
        // Losses have a rounding error: the result is 0 only if a slightly smaller ε also suffices.
        if self.upper(-self.loss_error()) <= delta {
            return Ok(0.0);
        }
        let mut high = self.top_atom() + self.rest.as_ref().map_or(0.0, |r| r.1.end().max(0.0));
        let fallen = self.upper(high) <= delta;
        if !fallen {
            return Err(Error::LossTooLarge { limit: limits::EPSILON });
        }
        let mut low = 0.0;
        while high - low > 1e-13 * high {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if self.upper(middle) <= delta { high = middle } else { low = middle }
        }
        Ok(high)
    }

    /// An ε at which the lower bound has not yet fallen to δ, and therefore neither has the true
    /// curve. Far from the ε it was computed for, the lower bound is dominated by its error, so the
    /// search starts at the upper bound's result.
    fn meets_from_below(&self, delta: f64, upper: f64) -> f64 {
        let mut step = 1e-12 * upper.max(1e-3);
        let (mut low, mut high) = (upper, upper);
        while self.lower(low) <= delta {
            if low <= 0.0 {
                return 0.0;
            }
            high = low;
            low = (upper - step).max(0.0);
            step *= 1.5;
        }
        while high - low > 1e-13 * high {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if self.lower(middle) > delta { low = middle } else { high = middle }
        }
        low
    }

    fn top_atom(&self) -> f64 {
        self.responses.atoms().iter().map(|a| a.0).fold(0.0, f64::max)
    }

    fn loss_error(&self) -> f64 {
        let rest = self.rest.as_ref().map_or(0.0, |(a, b)| a.loss_error().max(b.loss_error()));
        rest + 1e-14 * self.top_atom()
    }
}
