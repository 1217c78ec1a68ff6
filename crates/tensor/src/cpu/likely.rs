//! The likely tokens of each row of logits.

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

/// Σ exp((logit − largest) / temperature).
fn total_weight(logits: &[f32], largest: f32, temperature: f32) -> f64 {
    widest(
        #[inline(always)]
        || {
            let mut total = 0.0;
            for run in logits.chunks(512) {
                let mut lanes = [0.0; 16];
                let (chunks, rest) = run.as_chunks::<16>();
                for chunk in chunks {
                    for i in 0..16 {
                        lanes[i] += exp((chunk[i] - largest) / temperature);
                    }
                }
                total += f64::from(sum_lanes(lanes));
                for logit in rest {
                    total += f64::from(exp((logit - largest) / temperature));
                }
            }
            total
        },
    )
}
