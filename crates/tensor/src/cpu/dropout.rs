//! Dropout; the mask is computed where it is applied.

use super::parallel;
use crate::{Dropout, Host};

/// x ⊙ mask; the backward pass applies the same function to the gradient.
pub fn apply(dropout: Dropout, x: &Host) -> Host {
    let columns = x.columns();
    Host::build(x.rows(), columns, |out| {
        parallel::rows(
            out,
            columns,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                    let base = ((first + i) * columns) as u32;
                    for (j, (y, x)) in out.iter_mut().zip(x.row(first + i)).enumerate() {
                        *y = x * dropout.factor(base.wrapping_add(j as u32));
                    }
                }
            },
        );
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expectation_is_kept() {
        let x = Host::from_vec(200, 500, vec![1.0; 100_000]);
        let y = apply(Dropout { rate: 0.3, seed: 1 }, &x);
        let mean = y.dense().iter().map(|v| f64::from(*v)).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
