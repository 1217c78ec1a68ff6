//! Sampling a token from each row of logits, and the likely tokens of each row.

use super::parallel;
use super::simd::{exp, max, sum_lanes, widest};
use crate::{Host, Likely};

/// The tokens that are at most `below` under the largest of their row.
pub fn likely(logits: &Host, temperature: f32, below: f32) -> Vec<Likely> {
    parallel::map(logits.rows(), |row| {
        let row = logits.row(row);
        let largest = widest(
            #[inline(always)]
            || max(row),
        );
        let least = largest - below;
        let tokens = (0..).zip(row.iter().copied()).filter(|(_, logit)| *logit >= least);
        let tokens: Vec<(u32, f32)> = tokens.collect();
        let total = match temperature {
            0.0 => tokens.iter().filter(|(_, logit)| *logit == largest).count() as f64,
            _ => total_weight(row, largest, temperature),
        };
        Likely { largest, total, tokens: Some(tokens) }
    })
}

/// Number of tokens whose weights are added up first.
const RUN: usize = 512;

/// Samples a token from each row; see [`crate::sample`].
pub fn sample(logits: &Host, temperature: f32, uniforms: &[f64]) -> Vec<u32> {
    parallel::map(logits.rows(), |row| {
        let (uniform, row) = (uniforms[row], logits.row(row));
        let largest = widest(
            #[inline(always)]
            || max(row),
        );
        let runs: Vec<f64> = row
            .chunks(RUN)
            .map(|run| f64::from(weight_of_run(run, largest, temperature)))
            .collect();
        let mut left = uniform * runs.iter().sum::<f64>();
        let last = runs.len().saturating_sub(1);
        let run = runs.iter().position(|weight| match *weight > left {
            true => true,
            false => {
                left -= weight;
                false
            }
        });
        let first = run.unwrap_or(last) * RUN;
        // If rounding leaves some of the share at the end of a run, its last possible token.
        let mut chosen = first;
        for (token, logit) in row[first..].iter().take(RUN).enumerate() {
            if *logit == f32::NEG_INFINITY {
                continue;
            }
            chosen = first + token;
            left -= f64::from(exp((logit - largest) / temperature));
            if left < 0.0 {
                break;
            }
        }
        chosen as u32
    })
}

/// Σ exp((logit − largest) / temperature).
fn total_weight(logits: &[f32], largest: f32, temperature: f32) -> f64 {
    logits.chunks(RUN).map(|run| f64::from(weight_of_run(run, largest, temperature))).sum()
}

/// The same of a few tokens.
fn weight_of_run(run: &[f32], largest: f32, temperature: f32) -> f32 {
    widest(
        #[inline(always)]
        || {
            let mut lanes = [0.0; 16];
            let (chunks, rest) = run.as_chunks::<16>();
            for chunk in chunks {
                for i in 0..16 {
                    lanes[i] += exp((chunk[i] - largest) / temperature);
                }
            }
            let rest: f32 = rest.iter().map(|logit| exp((logit - largest) / temperature)).sum();
            sum_lanes(lanes) + rest
        },
    )
}
