//! How the learning rate rises and falls.

use serde::{Deserialize, Serialize};

/// The course of the learning rate after it has risen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateSchedule {
    /// It stays.
    #[default]
    Constant,
    /// It falls along a line to zero.
    Linear,
    /// It falls along half a wave to zero.
    Cosine,
}

impl RateSchedule {
    /// The share of the largest rate in a step (from 0) of so many; it rises along a line in the
    /// first `warmup` of them. Never zero.
    pub fn share(self, step: u64, steps: u64, warmup: f64) -> f64 {
        let rising = (warmup * steps as f64).ceil();
        let taken = step as f64 + 1.0;
        if taken <= rising {
            return taken / (rising + 1.0);
        }
        // In (0, 1]: the last step still moves the weights.
        let left = 1.0 - (step as f64 - rising) / (steps as f64 - rising).max(1.0);
        match self {
            Self::Constant => 1.0,
            Self::Linear => left,
            Self::Cosine => 0.5 - 0.5 * (std::f64::consts::PI * left).cos(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_to_the_top_and_falls() {
        for schedule in [RateSchedule::Constant, RateSchedule::Linear, RateSchedule::Cosine] {
            let shares: Vec<f64> = (0..100).map(|step| schedule.share(step, 100, 0.1)).collect();
            assert!(shares.iter().all(|share| *share > 0.0 && *share <= 1.0));
            assert!(shares[..10].windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(shares[10], 1.0);
            assert!(shares[10..].windows(2).all(|pair| pair[0] >= pair[1]));
            let last = shares[99];
            assert!(if schedule == RateSchedule::Constant { last == 1.0 } else { last < 0.02 });
        }
        assert_eq!(RateSchedule::Linear.share(0, 1, 0.0), 1.0);
    }
}
