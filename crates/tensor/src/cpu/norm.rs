//! LayerNorm and RMSNorm, fused with the residual sum.
//!
//! LayerNorm: y = γ ⊙ x̂ + β with x̂ = (x − mean) · r and r = 1/√(var + ε). RMSNorm: the same
//! without mean and β, and r = 1/√(mean(x²) + ε). With g = γ ⊙ dy, the gradient of the input is r ·
//! (g − mean(g) − x̂ · mean(g ⊙ x̂)), again without mean(g) for RMSNorm. x̂ and r are saved by the
//! forward pass.

use super::parallel;
use super::simd::{dot, sum};
use crate::{Host, NormKind, Normalized};

/// Normalizes `x`, or `x + residual`.
pub fn forward(
    kind: NormKind,
    x: &Host,
    residual: Option<&Host>,
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
) -> Normalized<Host> {
    let (rows, columns) = (x.rows(), x.columns());
    let mut inverse = vec![0.0; rows];
    let mut normalized = Host::build(rows, columns, |_| {});
    let output = Host::build(rows, columns, |out| {
        let hats = normalized.values_mut();
        let rest = parallel_triples(out, hats, &mut inverse, columns);
        parallel::each(
            rest,
            #[inline(always)]
            |(first, out, hats, inverse)| {
                for (i, ((y, hat), r)) in out
                    .chunks_exact_mut(columns)
                    .zip(hats.chunks_exact_mut(columns))
                    .zip(inverse)
                    .enumerate()
                {
                    match residual {
                        Some(residual) => {
                            for ((h, a), b) in
                                hat.iter_mut().zip(x.row(first + i)).zip(residual.row(first + i))
                            {
                                *h = a + b;
                            }
                        }
                        None => hat.copy_from_slice(x.row(first + i)),
                    }
                    *r = normalize(kind, hat, epsilon);
                    match bias {
                        Some(bias) => {
                            for (((y, h), w), b) in y.iter_mut().zip(&*hat).zip(weight).zip(bias) {
                                *y = h.mul_add(*w, *b);
                            }
                        }
                        None => {
                            for ((y, h), w) in y.iter_mut().zip(&*hat).zip(weight) {
                                *y = h * w;
                            }
                        }
                    }
                }
            },
        );
    });
    Normalized { output, normalized, inverse_std: Host::from_vec(rows, 1, inverse) }
}

type Piece<'a> = (usize, &'a mut [f32], &'a mut [f32], &'a mut [f32]);

fn parallel_triples<'a>(
    out: &'a mut [f32],
    hats: &'a mut [f32],
    inverse: &'a mut [f32],
    columns: usize,
) -> Vec<Piece<'a>> {
    let task = parallel::rows_per_task(inverse.len(), columns);
    let pieces = out
        .chunks_mut((task * columns).max(1))
        .zip(hats.chunks_mut((task * columns).max(1)))
        .zip(inverse.chunks_mut(task));
    pieces.enumerate().map(|(i, ((out, hats), inverse))| (i * task, out, hats, inverse)).collect()
}

/// Normalizes one row in place and returns r.
#[inline(always)]
fn normalize(kind: NormKind, row: &mut [f32], epsilon: f32) -> f32 {
    let count = row.len() as f32;
    if kind == NormKind::Layer {
        let mean = sum(row) / count;
        row.iter_mut().for_each(|v| *v -= mean);
    }
    let r = 1.0 / (dot(row, row) / count + epsilon).sqrt();
    row.iter_mut().for_each(|v| *v *= r);
    r
}

/// Gradient with respect to the input (the gradient with respect to the residual is the same).
pub fn backward(
    kind: NormKind,
    normalized: &Host,
    inverse_std: &[f32],
    weight: &[f32],
    output_gradient: &Host,
) -> Host {
    let (rows, columns) = (normalized.rows(), normalized.columns());
    Host::build(rows, columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, dx) in out.chunks_exact_mut(columns).enumerate() {
                    let row = first + i;
                    let hat = normalized.row(row);
                    for ((d, dy), w) in dx.iter_mut().zip(output_gradient.row(row)).zip(weight) {
                        *d = dy * w;
                    }
                    let mean = if kind == NormKind::Layer { sum(dx) / columns as f32 } else { 0.0 };
                    let along = dot(dx, hat) / columns as f32;
                    let r = inverse_std[row];
                    for (d, h) in dx.iter_mut().zip(hat) {
                        *d = r * (*d - mean - h * along);
                    }
                }
            },
        );
    })
}
