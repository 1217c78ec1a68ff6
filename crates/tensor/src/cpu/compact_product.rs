//! Products with frozen weights stored in fewer bits than f32.
//!
//! As many rows of the weights as fit into a cache are expanded, multiplied and discarded. The
//! relative cost of expanding decreases with the number of rows on the left.

#[cfg(target_arch = "x86_64")]
use super::few_rows::MOST_ROWS as FEW_ROWS;
#[cfg(target_arch = "x86_64")]
use super::level::CpuLevel;
use super::matmul::{multiply, multiply_bf16};
use super::view::{Update, View};
#[cfg(target_arch = "x86_64")]
use super::x86::gemm::{Product, Right};
use crate::compact::{Compact, Numbers};
use crate::{Host, Operand};

/// Values expanded together: 2 MiB.
const TOGETHER: usize = 1 << 19;

/// `out (+)= scale · left · right` on all cores, where `stride` is the distance between rows of
/// `out`.
pub fn multiply_compact(
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    right: Operand<Host>,
) {
    // Without AMX tiles, each thread expands the part that it packs.
    #[cfg(target_arch = "x86_64")]
    if CpuLevel::current() < CpuLevel::Amx && left.rows > FEW_ROWS {
        let (out, weights, right, parallel) = (&mut *out, None, Right::Compact(right), true);
        if (Product { out, stride, how, scale, left, weights, right, parallel }).run() {
            return;
        }
    }
    let Operand { matrix, transposed } = right;
    let product = match matrix.compact().map(Compact::numbers) {
        Some(Numbers::Bf16(_)) => multiply_bf16,
        _ => |out: &mut [f32], stride, how: Update, scale, left: View, right: View| {
            multiply(out, stride, how, scale, left, right, true)
        },
    };
    let rows = (TOGETHER / matrix.columns().max(1)).max(1);
    let mut first = 0;
    loop {
        let part = first..matrix.rows().min(first + rows);
        let expanded = matrix.row_range(part.clone()).expanded();
        let weights = View::of(&expanded);
        if transposed {
            // Rows of the weights are columns of the output.
            let out = out.get_mut(first..).unwrap_or_default();
            product(out, stride, how.after_columns(first), scale, left, weights.transposed());
        } else {
            // Rows of the weights are the summation index of the product.
            let how = if first == 0 { how } else { Update::Add };
            product(out, stride, how, scale, left.column_range(part.clone()), weights);
        }
        first = part.end;
        if first >= matrix.rows() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::{CpuLevel, Matrix, product};

    fn bf16(values: &[f32]) -> Vec<u16> {
        values.iter().map(|value| (value.to_bits() >> 16) as u16).collect()
    }

    /// A product with compact weights equals that with the expanded weights, in one part and in
    /// several, from either side, for whole matrices and for views; and nothing is expanded
    /// permanently.
    #[test]
    fn products_are_those_of_the_expanded_weights() {
        CpuLevel::each(|_| {
            let mut random = Random::new(7);
            for (tokens, rows, columns) in
                [(5, 70, 48), (33, 1100, 520), (1, 3, 130), (70, 203, 97), (64, 96, 1500)]
            {
                let values = random.normal(rows * columns, 0.1);
                let bf16 = Host::from_bf16(rows, columns, bf16(&values));
                let nf4 = Host::from_vec(rows, columns, values).in_nf4();
                for compact in [bf16, nf4] {
                    let some = compact.row_range(1..rows).column_range(2..columns - 1);
                    for weights in [compact.clone(), some] {
                        let expanded = Matrix::Host(weights.expanded());
                        let weights = Matrix::Host(weights);
                        for transposed in [false, true] {
                            let inner =
                                if transposed { expanded.columns() } else { expanded.rows() };
                            let x = random.normal(tokens * inner, 1.0);
                            let x = Matrix::from_vec(tokens, inner, x);
                            let of = |w: &Matrix| {
                                let w = if transposed { w.transposed() } else { w.plain() };
                                product(0.5, x.plain(), w).unwrap().to_vec().unwrap()
                            };
                            let (computed, wanted) = (of(&weights), of(&expanded));
                            let largest = wanted.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
                            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * largest;
                            assert!(computed.iter().zip(&wanted).all(near), "{tokens} {rows}");
                        }
                    }
                    assert!(!compact.compact().unwrap().was_expanded());
                }
            }
        });
    }
}
