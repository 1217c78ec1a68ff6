//! Inner products between a few rows and a few others, in registers.

use pulp::Simd;

/// Number of rows of each side processed together: the 24 sums and their operand rows stay in
/// registers.
pub const HEIGHT: usize = 6;
pub const WIDTH: usize = 4;

/// All inner products of six rows with four rows of the same length, with optional column weights.
#[inline(always)]
pub fn all_pairs<S: Simd>(
    simd: S,
    left: [&[f32]; HEIGHT],
    right: [&[f32]; WIDTH],
    weights: Option<&[f32]>,
) -> [[f32; WIDTH]; HEIGHT] {
    let (left, left_ends) = (each(left, |row| S::as_simd_f32s(row).0), each(left, rest::<S>));
    let (right, right_ends) = (each(right, |row| S::as_simd_f32s(row).0), each(right, rest::<S>));
    let steps = left[0].len();
    let left = each(left, |row| &row[..steps]);
    let right = each(right, |row| &row[..steps]);
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
    let (whole, last_weights) = S::as_simd_f32s(weights.unwrap_or(&[]));
    if weights.is_some() {
        let whole = &whole[..steps];
        for k in 0..steps {
            let mut b = each(right, |row| row[k]);
            for weighted in &mut b {
                *weighted = simd.mul_f32s(*weighted, whole[k]);
            }
            add_products(simd, &mut sums, each(left, |row| row[k]), b);
        }
    } else {
        for k in 0..steps {
            let (a, b) = (each(left, |row| row[k]), each(right, |row| row[k]));
            add_products(simd, &mut sums, a, b);
        }
    }
    let mut out = [[0.0; WIDTH]; HEIGHT];
    for k in 0..left_ends[0].len() {
        let weight = last_weights.get(k).copied().unwrap_or(1.0);
        for i in 0..HEIGHT {
            for j in 0..WIDTH {
                out[i][j] += left_ends[i][k] * (right_ends[j][k] * weight);
            }
        }
    }
    // By value: a variable whose address is taken would be kept in memory throughout the loop
    // above.
    match bytemuck::try_cast::<_, [[[f32; 16]; 8]; 3]>(sums) {
        Ok(eights) => {
            for (i, eight) in eights.iter().enumerate() {
                for (j, sum) in totals(eight).into_iter().enumerate() {
                    out[2 * i + j / WIDTH][j % WIDTH] += sum;
                }
            }
        }
        Err(_) => {
            for i in 0..HEIGHT {
                for j in 0..WIDTH {
                    out[i][j] += simd.reduce_sum_f32s(sums[i][j]);
                }
            }
        }
    }
    out
}

#[inline(always)]
fn add_products<S: Simd>(
    simd: S,
    sums: &mut [[S::f32s; WIDTH]; HEIGHT],
    a: [S::f32s; HEIGHT],
    b: [S::f32s; WIDTH],
) {
    for i in 0..HEIGHT {
        for j in 0..WIDTH {
            sums[i][j] = simd.mul_add_e_f32s(a[i], b[j], sums[i][j]);
        }
    }
}

/// What remains of a row after its whole vectors.
#[inline(always)]
fn rest<S: Simd>(row: &[f32]) -> &[f32] {
    S::as_simd_f32s(row).1
}

/// Applies `change` to each value. This is [`array::map`], except that it is always inlined: a call
/// in the loop over a row would keep all sums in memory.
#[inline(always)]
pub fn each<T: Copy, U: Copy, const N: usize>(values: [T; N], change: impl Fn(T) -> U) -> [U; N] {
    let mut changed = [change(values[0]); N];
    for i in 1..N {
        changed[i] = change(values[i]);
    }
    changed
}

/// The sum of each of eight rows. Two rows are folded into one whose halves hold their partial
/// sums, and so on: three operations for two rows, where each row alone would take ten.
#[inline(always)]
fn totals(rows: &[[f32; 16]; 8]) -> [f32; 8] {
    let four: [[f32; 16]; 4] = std::array::from_fn(|i| fold::<8>(&rows[i], &rows[i + 4]));
    let two: [[f32; 16]; 2] = std::array::from_fn(|i| fold::<4>(&four[i], &four[i + 2]));
    let halves = fold::<2>(&two[0], &two[1]);
    std::array::from_fn(|row| halves[2 * row] + halves[2 * row + 1])
}

/// Adds the two halves of each run of 2·SIZE lanes of both rows: the results of the first row go to
/// the lanes in which bit SIZE is clear, those of the second to the lanes in which it is set.
#[inline(always)]
fn fold<const SIZE: usize>(left: &[f32; 16], right: &[f32; 16]) -> [f32; 16] {
    std::array::from_fn(|lane| {
        if lane & SIZE == 0 {
            left[lane] + left[lane + SIZE]
        } else {
            right[lane - SIZE] + right[lane]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_rows_are_added_up_each_for_itself() {
        let rows = std::array::from_fn(|i| std::array::from_fn(|lane| (100 * i + lane) as f32));
        assert_eq!(totals(&rows), std::array::from_fn(|i| (1600 * i + 120) as f32));
    }
}
