//! `identity.json`: what must match when a run is resumed.

use serde::{Deserialize, Serialize};

/// What must match when a run is resumed; kept in the run folder for the duration of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Hash of all inputs that determine the releases.
    pub run: String,
    /// Everything that determines floating-point rounding: version, device, threads, kernels.
    pub machine: String,
    /// Number of processes (ranks) whose sums are added, which also affects rounding.
    #[serde(default = "one")]
    pub ranks: usize,
    /// Maximum number of ranks used by the run so far; it may have started with more than now.
    #[serde(default = "one")]
    pub most_ranks: usize,
}

/// More ranks than any cluster has.
const TOO_MANY_RANKS: usize = 1 << 20;

impl Identity {
    /// Whether the numbers of ranks can be those of a run.
    pub fn is_plausible(&self) -> bool {
        self.ranks > 0 && (self.ranks..TOO_MANY_RANKS).contains(&self.most_ranks)
    }
}

fn one() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_of_ranks_are_told() {
        let of = |ranks, most_ranks| Identity {
            run: String::new(),
            machine: String::new(),
            ranks,
            most_ranks,
        };
        assert!(of(1, 1).is_plausible() && of(2, 8).is_plausible());
        for (ranks, most_ranks) in [(0, 1), (2, 1), (1, usize::MAX / 2)] {
            assert!(!of(ranks, most_ranks).is_plausible(), "{ranks} {most_ranks}");
        }
    }
}
