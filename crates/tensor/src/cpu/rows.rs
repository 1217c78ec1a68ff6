//! Operations on whole rows: sums, gather and scatter.

use super::parallel;
use crate::Host;

/// a + b.
pub fn add(a: &Host, b: &Host) -> Host {
    let columns = a.columns();
    assert_eq!((a.rows(), columns), (b.rows(), b.columns()), "sizes of a sum");
    Host::build(a.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    for ((y, a), b) in out.iter_mut().zip(a.row(first + i)).zip(b.row(first + i)) {
                        *y = a + b;
                    }
                }
            },
        );
    })
}

/// average + weight · (x − average).
pub fn lerp(average: &mut Host, x: &Host, weight: f32) {
    let columns = x.columns();
    assert_eq!((average.rows(), average.columns()), (x.rows(), columns), "sizes of an average");
    parallel::rows(
        average.values_mut(),
        columns,
        #[inline(always)]
        |first, out| {
            for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                for (y, x) in out.iter_mut().zip(x.row(first + i)) {
                    *y += weight * (x - *y);
                }
            }
        },
    );
}

/// Multiplies each row by its factor; a factor of 0 gives zeros, whatever the row contains.
pub fn scale_rows(x: &Host, factors: &[f32]) -> Host {
    let columns = x.columns();
    assert_eq!(factors.len(), x.rows(), "one factor per row");
    Host::build(x.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    let factor = factors[first + i];
                    if factor == 0.0 {
                        out.fill(0.0);
                        continue;
                    }
                    for (y, x) in out.iter_mut().zip(x.row(first + i)) {
                        *y = x * factor;
                    }
                }
            },
        );
    })
}

/// Multiplies each column by its factor.
pub fn scale_columns(x: &Host, factors: &[f32]) -> Host {
    let columns = x.columns();
    assert_eq!(factors.len(), columns, "one factor per column");
    Host::build(x.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    for ((y, x), factor) in out.iter_mut().zip(x.row(first + i)).zip(factors) {
                        *y = x * factor;
                    }
                }
            },
        );
    })
}

/// Row `i` of the result is row `indices[i]` of the table.
pub fn gather(table: &Host, indices: &[u32]) -> Host {
    let columns = table.columns();
    Host::build(indices.len(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (out, &index) in out.chunks_exact_mut(columns).zip(&indices[first..]) {
                    table.write_row(index as usize, out);
                }
            },
        );
    })
}

/// A matrix of `rows` rows in which row `i` of `x` is added to row `indices[i]`; in order, so that
/// the result is reproducible.
pub fn scatter(x: &Host, indices: &[u32], rows: usize) -> Host {
    let columns = x.columns();
    let mut out = Host::build(rows, columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |_, out| out.fill(0.0),
        );
    });
    scatter_onto(&mut out, x, indices);
    out
}

/// Adds row `i` of `x` to row `indices[i]`.
pub fn scatter_onto(out: &mut Host, x: &Host, indices: &[u32]) {
    let columns = x.columns();
    let out = out.values_mut();
    for (i, &index) in indices.iter().enumerate() {
        let target = &mut out[index as usize * columns..(index as usize + 1) * columns];
        for (t, v) in target.iter_mut().zip(x.row(i)) {
            *t += v;
        }
    }
}

/// Sum of each column.
pub fn column_sums(x: &Host) -> Host {
    let sums = parallel::sum_over_rows(
        x.rows(),
        x.columns(),
        #[inline(always)]
        |rows, sums| {
            for row in rows {
                for (s, v) in sums.iter_mut().zip(x.row(row)) {
                    *s += v;
                }
            }
        },
    );
    Host::from_vec(1, x.columns(), sums)
}

/// Columns of a [vector sum](vector_sums) that one task adds up.
const SUMMED: usize = 4096;

/// For each of several matrices with one row per unit, the sum of its rows multiplied by their
/// factors; a row with factor 0 is ignored, whatever it contains.
pub fn vector_sums(xs: &[&Host], factors: &[f32]) -> Vec<Host> {
    let mut sums: Vec<Vec<f32>> = xs.iter().map(|x| vec![0.0; x.columns()]).collect();
    let parts = xs.iter().zip(&mut sums).flat_map(|(x, sum)| {
        assert_eq!(factors.len(), x.rows(), "one factor per row");
        sum.chunks_mut(SUMMED).enumerate().map(move |(i, part)| (*x, i * SUMMED, part))
    });
    parallel::each(
        parts.collect(),
        #[inline(always)]
        |(x, first, part)| {
            for (unit, &factor) in factors.iter().enumerate() {
                if factor == 0.0 {
                    continue;
                }
                for (sum, x) in part.iter_mut().zip(&x.row(unit)[first..]) {
                    *sum += x * factor;
                }
            }
        },
    );
    let matrices = xs.iter().zip(sums);
    matrices.map(|(x, sum)| Host::from_vec(1, x.columns(), sum)).collect()
}

/// Sum of each column of a ⊙ b.
pub fn column_sums_of_product(a: &Host, b: &Host) -> Host {
    let sums = parallel::sum_over_rows(
        a.rows(),
        a.columns(),
        #[inline(always)]
        |rows, sums| {
            for row in rows {
                for ((s, a), b) in sums.iter_mut().zip(a.row(row)).zip(b.row(row)) {
                    *s = a.mul_add(*b, *s);
                }
            }
        },
    );
    Host::from_vec(1, a.columns(), sums)
}
