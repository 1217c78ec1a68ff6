//! Soft-capping, y = c · tanh(x / c), which bounds values by −c and c.

use super::parallel;
use super::simd::tanh;
use crate::Host;

/// tanh x with a relative error of 1e-6: most values are small compared to their cap.
#[inline(always)]
pub fn precise_tanh(x: f32) -> f32 {
    let square = x * x;
    let series =
        x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * (17.0 / 315.0))));
    if square < 0.0625 { series } else { tanh(x) }
}

/// c · tanh(x / c).
pub fn forward(x: &Host, cap: f32) -> Host {
    let columns = x.columns();
    Host::build(x.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    for (y, x) in out.iter_mut().zip(x.row(first + i)) {
                        *y = cap * precise_tanh(x / cap);
                    }
                }
            },
        );
    })
}

/// (1 − (y / c)²) · dy.
pub fn backward(capped: &Host, output_gradient: &Host, cap: f32) -> Host {
    let columns = capped.columns();
    Host::build(capped.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    let (y, dy) = (capped.row(first + i), output_gradient.row(first + i));
                    for ((d, y), dy) in out.iter_mut().zip(y).zip(dy) {
                        let t = y / cap;
                        *d = (1.0 - t * t) * dy;
                    }
                }
            },
        );
    })
}
