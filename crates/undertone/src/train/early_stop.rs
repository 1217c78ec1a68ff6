//! Early stopping on a public validation file.
//!
//! # What is proved
//!
//! Let M be the whole planned run: T steps (in local DP, all planned releases), with the noise
//! calibrated for all of them. The decision to stop after an epoch, and the choice of the epoch
//! whose weights are kept, are functions of the weights after each epoch and of the validation
//! file. The weights are functions of M's releases; the file is public and does not depend on the
//! training file, which is declared ([`validation_is_public`]) and recorded as an assumption. So
//! the output of a stopped run is a function of what M would have released: its first steps, up to
//! a step that they themselves determine. **It is post-processing of M, and has M's (ε, δ).**
//!
//! The smaller ε of only the steps taken is not claimed. The step at which a run stops depends on
//! its releases, which depend on the private data. Composition theorems for a number of steps that
//! is fixed in advance, such as numerical composition of privacy-loss distributions, do not cover
//! this case. So the remaining planned releases, although not made, are recorded in the ledger
//! before the run stops ([`Procedure::record_rest`]), and the ledger, from which ε is computed,
//! contains all of M.
//!
//! With a private validation file, the decision is a function of the metrics that were released
//! with noise (`evaluation.epsilon`), which the ledger contains, and not of the file itself.
//! Without them it would be a release that no ledger contains, so such a run is rejected.
//!
//! [`validation_is_public`]: undertone_run::DataSection::validation_is_public
//! [`Procedure::record_rest`]: crate::method::Procedure::record_rest

use crate::evaluate::Metrics;
use undertone_run::{KeptEpoch, Record, StopEarly};

/// The state of early stopping after the epochs so far.
#[derive(Clone, Debug)]
pub struct EarlyStop {
    settings: StopEarly,
    /// Score and number (starting at 1) of the best epoch; the earliest one in case of a tie.
    best: Option<(f64, u64)>,
    /// The last evaluated epoch.
    last: u64,
}

impl EarlyStop {
    /// Resumes from the records of a run, or starts from scratch if there are none. `releases` says
    /// whether the run releases metrics, which then decide alone.
    pub fn after(settings: StopEarly, records: &[Record], releases: bool) -> Self {
        let mut stop = Self { settings, best: None, last: 0 };
        for record in records {
            if let Some(score) = score_of(record, releases) {
                stop.observe(record.epoch, score);
            }
        }
        stop
    }

    /// Records the score of an epoch and returns whether it is the best so far.
    pub fn observe(&mut self, epoch: u64, score: f64) -> bool {
        self.last = epoch;
        let better = self.best.is_none_or(|(best, _)| score > best);
        if better {
            self.best = Some((score, epoch));
        }
        better
    }

    /// Whether none of the last `patience` epochs improved on the best one before them.
    pub fn is_over(&self) -> bool {
        self.best.is_some_and(|(_, epoch)| self.last - epoch >= u64::from(self.settings.patience))
    }

    /// The epoch whose weights are kept, starting at 1.
    pub fn kept(&self) -> u64 {
        match (self.settings.keep, self.best) {
            (KeptEpoch::Best, Some((_, epoch))) => epoch,
            _ => self.last,
        }
    }

    /// Whether the weights of the best epoch must be available at the end.
    pub fn keeps_best(&self) -> bool {
        self.settings.keep == KeptEpoch::Best
    }
}

/// The score by which a run may stop: that of the released metric if the run releases metrics, and
/// otherwise that of the metrics on a public file.
pub fn score_of(record: &Record, releases: bool) -> Option<f64> {
    match releases {
        true => record.released.map(|metric| metric.score()),
        false => record.validation.as_ref().map(score),
    }
}

/// A score that is larger for better models.
pub fn score(metrics: &Metrics) -> f64 {
    let score = match metrics {
        Metrics::Classification(scores) => scores.accuracy,
        Metrics::Language(scores) => -scores.loss,
    };
    // A diverged model gets the worst score.
    if score.is_nan() { f64::NEG_INFINITY } else { score }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::LanguageMetrics;

    fn metrics(loss: f64) -> Metrics {
        Metrics::Language(LanguageMetrics { examples: 1, tokens: 1, loss, perplexity: loss.exp() })
    }

    fn record(epoch: u64, loss: Option<f64>) -> Record {
        Record {
            step: 10 * epoch,
            epoch,
            units: 1,
            loss: None,
            learning_rate: 1.0,
            gradient_norm: None,
            clipped: None,
            epsilon: None,
            validation: loss.map(metrics),
            released: None,
            clip: None,
            noise_by_parameter: Vec::new(),
        }
    }

    /// Given the losses by epoch, returns the epoch after which training stops and the one that is
    /// kept.
    fn stopped(losses: &[f64], patience: u32, keep: KeptEpoch) -> (u64, u64) {
        let mut stop = EarlyStop::after(StopEarly { patience, keep }, &[], false);
        for (epoch, &loss) in (1..).zip(losses) {
            stop.observe(epoch, score(&metrics(loss)));
            if stop.is_over() {
                break;
            }
        }
        (stop.last, stop.kept())
    }

    #[test]
    fn it_stops_when_patience_is_over() {
        let losses = [3.0, 2.0, 2.5, 1.0, 1.0, 1.5, 0.5];
        assert_eq!(stopped(&losses, 1, KeptEpoch::Best), (3, 2));
        assert_eq!(stopped(&losses, 2, KeptEpoch::Best), (6, 4), "as good is not better");
        assert_eq!(stopped(&losses, 2, KeptEpoch::Last), (6, 6));
        assert_eq!(stopped(&losses, 3, KeptEpoch::Best), (7, 7));
        assert_eq!(stopped(&[f64::NAN, f64::NAN, 1.0], 2, KeptEpoch::Best), (3, 3));
        assert_eq!(stopped(&[f64::NAN; 4], 2, KeptEpoch::Best), (3, 1));
    }

    /// With released metrics, what the private file says without noise decides nothing.
    #[test]
    fn released_metrics_decide_alone() {
        let record = |epoch: u64, loss: f64, accuracy: Option<f64>| Record {
            released: accuracy.map(|accuracy| undertone_run::ReleasedMetric {
                epoch,
                accuracy: Some(accuracy),
                loss: None,
                std: 0.1,
            }),
            ..record(epoch, Some(loss))
        };
        let records = [record(1, 3.0, Some(0.9)), record(2, 2.0, Some(0.8)), record(3, 1.0, None)];
        let settings = StopEarly { patience: 1, keep: KeptEpoch::Best };
        let stop = EarlyStop::after(settings, &records, true);
        assert!(stop.is_over() && stop.kept() == 1);
        assert!(!EarlyStop::after(settings, &records, false).is_over());
    }

    #[test]
    fn a_resumed_run_knows_what_was_best() {
        let settings = StopEarly { patience: 2, keep: KeptEpoch::Best };
        let records = [record(1, Some(1.0)), record(2, None), record(2, Some(2.0))];
        let mut stop = EarlyStop::after(settings, &records, false);
        assert!(!stop.is_over() && stop.kept() == 1);
        assert!(!stop.observe(3, score(&metrics(1.5))) && stop.is_over());
    }
}
