//! Matrix products (GEMM); the shapes of the operands determine the kernel.

use super::few_rows;
use super::gemm::{Gemm, Strided};
use super::view::{Update, View};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::x86::amx::{self, Parts};
#[cfg(target_arch = "x86_64")]
use super::x86::gemm::{Product, Right};
use crate::Host;

/// Inner products of fewer values than this, such as the scores of short texts, are not worth
/// summing register by register: blocks of them are computed from packed panels.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 192;

/// `out (+)= scale · left · right`, where `stride` is the distance between rows of `out`. Uses all
/// cores if `parallel`.
#[allow(unsafe_code)]
pub fn multiply(
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    right: View,
    parallel: bool,
) {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    assert_eq!(k, right.rows, "inner sizes of a product");
    if m == 0 || n == 0 {
        return;
    }
    assert!(n <= stride || m == 1, "rows of the output overlap");
    assert!((m - 1) * stride + n <= out.len(), "the output is too short for {m} × {n}");
    if k == 0 {
        how.prepare(out, stride, [m, n]);
        return;
    }
    left.check();
    right.check();
    #[cfg(target_arch = "x86_64")]
    if few_rows::suits(&left, &right) && m > 4 && k < SHORT {
        let (out, weights, right) = (&mut *out, None, Right::Plain(right));
        if (Product { out, stride, how, scale, left, weights, right, parallel }).run() {
            return;
        }
    }
    if few_rows::suits(&left, &right) {
        return few_rows::multiply(out, stride, how, scale, left, right, parallel);
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(amx) = amx::suits(&left, &right) {
        let right = (right, Parts::Three);
        return amx::multiply(amx, out, stride, how, scale, left, None, right, parallel);
    }
    #[cfg(target_arch = "x86_64")]
    {
        let (out, weights, right) = (&mut *out, None, Right::Plain(right));
        if (Product { out, stride, how, scale, left, weights, right, parallel }).run() {
            return;
        }
    }
    let how = match how {
        Update::Bias(_) => how.prepare(out, stride, [m, n]),
        other => other,
    };
    let threads = rayon::current_num_threads();
    // Two threads pay off above about a million multiplications.
    let threads = if parallel && m * n * k > 1_000_000 { threads } else { 1 };
    let strided = |view: &View| Strided {
        first: view.values.as_ptr(),
        row_stride: view.row_stride as isize,
        column_stride: view.column_stride as isize,
    };
    let product = Gemm {
        m,
        k,
        n,
        out: Strided { first: out.as_mut_ptr(), row_stride: stride as isize, column_stride: 1 },
        keep: matches!(how, Update::Add),
        scale,
        left: strided(&left),
        right: strided(&right),
        threads,
    };
    // SAFETY: the checks above ensure that the views and the output lie within their slices with
    // these sizes and strides; the output is borrowed exclusively and does not overlap itself, and
    // every element of it is written before it is read unless it is kept.
    unsafe { product.run() }
}

/// [`multiply`] on all cores, for a right side whose values are all bfloat16.
pub fn multiply_bf16(
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    right: View,
) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(tiles) = amx::suits(&left, &right) {
        let right = (right, Parts::One);
        return amx::multiply(tiles, out, stride, how, scale, left, None, right, true);
    }
    multiply(out, stride, how, scale, left, right, true);
}

/// `out (+)= leftᵀ · diag(weights) · right` on all cores: the sum over rows t of weight_t · left_t
/// ⊗ right_t. No weight may be 0.
pub fn multiply_weighted(
    out: &mut [f32],
    stride: usize,
    how: Update,
    left: &Host,
    weights: &[f32],
    right: &Host,
) {
    assert_eq!(
        (left.rows(), weights.len()),
        (right.rows(), right.rows()),
        "one weight for each row"
    );
    let (l, r) = (View::of(left).transposed(), View::of(right));
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(amx) = amx::suits(&l, &r) {
        let r = (r, Parts::Three);
        return amx::multiply(amx, out, stride, how, 1.0, l, Some(weights), r, true);
    }
    #[cfg(target_arch = "x86_64")]
    {
        let (out, left, weights, right) = (&mut *out, l, Some(weights), Right::Plain(r));
        let (scale, parallel) = (1.0, true);
        if (Product { out, stride, how, scale, left, weights, right, parallel }).run() {
            return;
        }
    }
    // Scale the narrower side.
    if left.columns() <= right.columns() {
        let scaled = super::rows::scale_rows(left, weights);
        multiply(out, stride, how, 1.0, View::of(&scaled).transposed(), r, true);
    } else {
        let scaled = super::rows::scale_rows(right, weights);
        multiply(out, stride, how, 1.0, l, View::of(&scaled), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuLevel;

    fn plain(left: View, right: View) -> Vec<f32> {
        let mut out = vec![0.0; left.rows * right.columns];
        for i in 0..left.rows {
            for j in 0..right.columns {
                out[i * right.columns + j] = (0..left.columns)
                    .map(|k| {
                        left.values[i * left.row_stride + k * left.column_stride]
                            * right.values[k * right.row_stride + j * right.column_stride]
                    })
                    .sum();
            }
        }
        out
    }

    #[test]
    fn products_of_all_layouts_match_the_plain_loop() {
        CpuLevel::each(|_| {
            let numbers =
                |n: usize, f: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * f).sin()).collect() };
            for (m, k, n) in [
                (1, 1, 1),
                (3, 5, 2),
                (17, 33, 9),
                (64, 32, 64),
                (130, 70, 200),
                (16, 32, 16),
                (77, 100, 8),
                (40, 384, 16),
                (2, 0, 3),
                (0, 4, 3),
            ] {
                let (a, b) = (numbers(m * k + 40, 0.37), numbers(k * n + 40, 0.91));
                for (left, right) in [
                    (View::new(&a, m, k, k), View::new(&b, k, n, n)),
                    (View::new(&a, k, m, m).transposed(), View::new(&b, k, n, n)),
                    (View::new(&a, m, k, k), View::new(&b, n, k, k).transposed()),
                    (View::new(&a, k, m, m).transposed(), View::new(&b, n, k, k).transposed()),
                ] {
                    let want = plain(left, right);
                    let stride = n + 3;
                    let mut out = vec![0.25; (m.max(1) - 1) * stride + n];
                    let bias = numbers(n, 0.11);
                    multiply(&mut out, stride, Update::Overwrite, 2.0, left, right, true);
                    multiply(&mut out, stride, Update::Add, 1.0, left, right, false);
                    let mut on_bias = out.clone();
                    multiply(&mut on_bias, stride, Update::Bias(&bias), 3.0, left, right, true);
                    for i in 0..m {
                        for j in 0..n {
                            let (got, want) = (out[i * stride + j], 3.0 * want[i * n + j]);
                            let with_bias = on_bias[i * stride + j];
                            assert!(
                                (with_bias - bias[j] - want).abs() < 1e-4 * (1.0 + want.abs()),
                                "{m}×{k}×{n}: {with_bias} {want}"
                            );
                            assert!(
                                (got - want).abs() < 1e-4 * (1.0 + want.abs()),
                                "{m}×{k}×{n}: {got} {want}"
                            );
                        }
                    }
                }
            }
        });
    }
}
