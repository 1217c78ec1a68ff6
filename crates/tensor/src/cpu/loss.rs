//! Cross-entropy: −log softmax(logits)[target], and its gradient softmax(logits) − one-hot(target).

use super::parallel;
use super::simd::{exp, max, sum, sum_lanes};
use crate::Host;

/// The loss of each row. If `weights` are given, also the gradient of Σ weightᵢ · lossᵢ.
pub fn cross_entropy(
    logits: &Host,
    targets: &[u32],
    weights: Option<&[f32]>,
) -> (Vec<f32>, Option<Host>) {
    let (rows, columns) = (logits.rows(), logits.columns());
    assert_eq!(targets.len(), rows, "one target per row");
    let mut losses = vec![0.0; rows];
    let Some(weights) = weights else {
        parallel::numbers(
            &mut losses,
            columns,
            #[inline(always)]
            |first, losses| {
                for (i, loss) in losses.iter_mut().enumerate() {
                    let row = logits.row(first + i);
                    let (largest, total) = sum_of_exponentials(row);
                    *loss = total.ln() + largest - row[targets[first + i] as usize];
                }
            },
        );
        return (losses, None);
    };
    assert_eq!(weights.len(), rows, "one weight per row");
    let gradient = Host::build(rows, columns, |out| {
        parallel::rows2(
            (out, columns),
            (&mut losses, 1),
            #[inline(always)]
            |first, out, losses| {
                for (i, (out, loss)) in out.chunks_exact_mut(columns).zip(losses).enumerate() {
                    let row = logits.row(first + i);
                    let target = targets[first + i] as usize;
                    let largest = max(row);
                    let mut total = 0.0_f64;
                    for (out, row) in out.chunks_mut(1024).zip(row.chunks(1024)) {
                        for (y, x) in out.iter_mut().zip(row) {
                            *y = exp(x - largest);
                        }
                        total += f64::from(sum(out));
                    }
                    *loss = total.ln() as f32 + largest - row[target];
                    let factor = weights[first + i] / total as f32;
                    out.iter_mut().for_each(|y| *y *= factor);
                    out[target] -= weights[first + i];
                }
            },
        );
    });
    (losses, Some(gradient))
}

/// The largest logit m, and Σ e^(x − m).
#[inline(always)]
fn sum_of_exponentials(row: &[f32]) -> (f32, f32) {
    let largest = max(row);
    let mut total = 0.0_f64;
    for chunk in row.chunks(1024) {
        let mut lanes = [0.0_f32; 16];
        for piece in chunk.chunks(16) {
            for (lane, x) in lanes.iter_mut().zip(piece) {
                *lane += exp(x - largest);
            }
        }
        total += f64::from(sum_lanes(lanes));
    }
    (largest, total as f32)
}

/// Softmax of each row.
pub fn softmax(logits: &Host) -> Host {
    let columns = logits.columns();
    Host::build(logits.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    let row = logits.row(first + i);
                    let (largest, total) = sum_of_exponentials(row);
                    for (y, x) in out.iter_mut().zip(row) {
                        *y = exp(x - largest) / total;
                    }
                }
            },
        );
    })
}
