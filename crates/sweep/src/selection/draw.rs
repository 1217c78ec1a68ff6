//! The draw of a selection: the number of runs and their cells.

use crate::cells::Run;
use crate::error::{Error, Result};
use crate::write_whole;
use serde::{Deserialize, Serialize};
use std::path::Path;
use undertone::noise::Secret;
use undertone_accounting::selection::NumberOfRuns;

/// The draw. It is secret: the guarantee does not hold against anyone who knows it.
#[derive(Debug, Deserialize, Serialize)]
pub struct Draw {
    /// Identifies the ledger.
    pub id: String,
    /// The candidates of the draw: a changed sweep cannot continue with it.
    candidates: Vec<String>,
    pub drawn: Vec<Drawn>,
}

/// One run of the draw.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Drawn {
    /// Index of the candidate.
    pub candidate: usize,
    /// Breaks ties between runs with the same score.
    pub tie: u64,
}

impl Draw {
    /// Reads the selection's existing draw, or makes one and saves it.
    pub fn read_or_make(path: &Path, runs: NumberOfRuns, candidates: &[Run]) -> Result<Self> {
        let identity = |run: &Run| run.plan.file().to_toml().map_err(|e| e.to_string());
        let names: std::result::Result<Vec<String>, String> =
            candidates.iter().map(identity).collect();
        let names = names.map_err(Error::mistake)?;
        if path.exists() {
            let damaged = |e: String| Error::mistake(format!("{} is damaged: {e}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|e| damaged(e.to_string()))?;
            let draw: Self = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
            let is_ours = draw.candidates == names
                && draw.drawn.iter().all(|drawn| drawn.candidate < candidates.len());
            return match is_ours {
                true => Ok(draw),
                false => Err(Error::mistake(format!(
                    "{} belongs to another sweep, whose selection has started; continue that one, \
                     or choose another folder with --out",
                    path.display()
                ))),
            };
        }
        let secret = Secret::from_system().map_err(|e| {
            Error::write(
                path,
                format!(
                    "the operating system provides no random \
                                                     numbers: {e}"
                ),
            )
        })?;
        let drawn = draw(&secret, runs, candidates.len());
        let made = Self { id: secret.ledger_id(), candidates: names, drawn };
        let text = serde_json::to_string(&made).map_err(|e| Error::write(path, e))?;
        write_whole(path, &text)?;
        Ok(made)
    }

    /// The runs, each with its own folder, since a candidate can be drawn several times.
    pub fn runs(&self, candidates: &[Run]) -> Vec<Run> {
        let run = |(i, drawn): (usize, &Drawn)| {
            let Run { name, plan, .. } = &candidates[drawn.candidate];
            Run { name: name.clone(), folder: format!("run-{i}"), plan: plan.clone() }
        };
        self.drawn.iter().enumerate().map(run).collect()
    }
}

/// K runs, each of a uniformly chosen candidate.
fn draw(secret: &Secret, runs: NumberOfRuns, candidates: usize) -> Vec<Drawn> {
    // Streams of this secret, which has no other use.
    const COUNT: u64 = 1 << 32;
    let words = |stream: u64| -> [u64; 4] {
        let key = secret.key(stream);
        std::array::from_fn(|w| u64::from_le_bytes(std::array::from_fn(|i| key[8 * w + i])))
    };
    let uniform = (words(COUNT)[0] >> 11) as f64 / (1_u64 << 53) as f64;
    (1..=runs.draw(uniform))
        .map(|i| {
            let [choice, tie, ..] = words(COUNT + i);
            // The remainder of 64 bits is uniform to one part in 2^64 / candidates.
            Drawn { candidate: (choice % candidates.max(1) as u64) as usize, tie }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of runs has the stated distribution, candidates are uniform and independent.
    #[test]
    fn draws_have_the_stated_distribution() {
        let runs = NumberOfRuns::NegativeBinomial { eta: 1.0, gamma: 0.25 };
        let (mut counts, mut chosen, mut all) = ([0.0; 12], [0.0; 3], 0.0);
        let trials = 20_000;
        for seed in 0..trials {
            let drawn = draw(&Secret::from_seed(seed), runs, 3);
            if drawn.len() < counts.len() {
                counts[drawn.len()] += 1.0;
            }
            for run in &drawn {
                chosen[run.candidate] += 1.0;
                all += 1.0;
            }
        }
        for (k, (count, p)) in counts.iter().zip(runs.probabilities()).enumerate() {
            let n = trials as f64;
            assert!(
                (count - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt() + 1e-9,
                "{k}: {count}"
            );
        }
        for count in chosen {
            assert!((count - all / 3.0_f64).abs() < 5.0 * (all * 2.0 / 9.0).sqrt(), "{count}");
        }
    }
}
