//! The joint guarantee of several ledgers about the same data.
//!
//! # Statement
//!
//! Let mechanism i have a composition with dominating pairs (P_i, Q_i), where all mechanisms have
//! the same privacy unit and adjacency. Each mechanism may depend on what the earlier ones
//! released. Then the product of the pairs, that is, the composition of all entries, dominates all
//! mechanisms together. A unit whose data are in only some of the data sets loses no more than one
//! whose data are in all of them.
//!
//! This requires that the *parameters* of each mechanism (noise, sampling rate, steps) are chosen
//! independently of the releases of the earlier ones. The total states this as an assumption.
//!
//! Guarantees about different neighboring relations cannot be composed: ledgers with different
//! units or adjacencies are rejected. So are ledgers with different threat models, because their
//! adversaries see different things.

use super::{Ledger, failure};
use crate::{Accountant, Composition, Error, Guarantee, Mode, Result, epsilon};

const FIXED_BEFOREHAND: &str =
    "noise, sampling rate and steps of each run were fixed before another run's results were seen";

impl Ledger {
    /// δ of the guarantee, if the ledger belongs to a training run.
    pub fn delta(&self) -> Option<f64> {
        self.terms.run.as_ref().map(|run| run.delta)
    }

    /// The guarantee of everything recorded in all of the ledgers, at this δ.
    pub fn together(ledgers: &[&Ledger], delta: f64) -> Result<Guarantee> {
        let Some((first, others)) = ledgers.split_first() else {
            return Err(Error::invalid("number of ledgers", 0, "at least 1"));
        };
        if others.is_empty() {
            return first.guarantee(delta);
        }
        for (i, ledger) in ledgers.iter().enumerate() {
            ledger.check_beside(first)?;
            if ledgers[..i].iter().any(|other| ledger.is_copy_of(other)) {
                return Err(failure(&ledger.path, "is given twice; name each ledger once"));
            }
        }
        let mut spent = Composition::new(first.spent.adjacency);
        let mut assumptions: Vec<String> = Vec::new();
        for ledger in ledgers {
            ledger.spent.parts().iter().for_each(|part| spent.push(part.event, part.count));
            for assumption in ledger.assumptions() {
                if !assumptions.contains(&assumption) {
                    assumptions.push(assumption);
                }
            }
        }
        assumptions.push(FIXED_BEFOREHAND.to_owned());
        let mode = |mode: Mode| ledgers.iter().any(|ledger| ledger.terms.mode == mode);
        let mode = match (mode(Mode::Paper), mode(Mode::Seeded)) {
            (true, _) => Mode::Paper,
            (_, true) => Mode::Seeded,
            _ => Mode::Proved,
        };
        let epsilon = epsilon(&spent, delta, Accountant::Auto)?.epsilon;
        let (unit, threat) = (first.terms.unit, first.terms.threat);
        Ok(Guarantee {
            unit,
            adjacency: spent.adjacency,
            threat,
            epsilon,
            delta,
            mode,
            assumptions,
        })
    }

    /// Refuses a ledger whose guarantee is of a different kind.
    fn check_beside(&self, first: &Ledger) -> Result<()> {
        let (mine, theirs) = (&self.terms, &first.terms);
        let differs = if mine.unit != theirs.unit {
            "privacy unit"
        } else if mine.adjacency != theirs.adjacency {
            "adjacency"
        } else if mine.threat != theirs.threat {
            "threat model"
        } else {
            return Ok(());
        };
        Err(failure(
            &self.path,
            format!(
                "has another {differs} than {}: the two guarantees are not about the same change \
                 of the data, and cannot be added up",
                first.path.display()
            ),
        ))
    }

    fn is_copy_of(&self, other: &Ledger) -> bool {
        match self.terms.id.is_empty() {
            true => self.last_hash == other.last_hash,
            false => self.terms.id == other.terms.id,
        }
    }
}
