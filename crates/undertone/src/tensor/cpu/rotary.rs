//! Rotary position embedding: each pair (j, j + width/2) of a head's features is turned by position
//! · frequency(j).

use super::parallel;
use crate::tensor::Host;

/// Turns the heads in the leading `columns` of each row in place, row `i` by `positions[i]`.
/// `direction` is 1 forward and −1 backward, since the transpose of a rotation is the rotation by
/// the opposite angle.
pub fn turn(x: &mut Host, columns: usize, frequencies: &[f32], positions: &[u32], direction: f32) {
    let stride = x.columns();
    let half = frequencies.len();
    assert!(
        columns <= stride && columns.is_multiple_of(2 * half),
        "heads of {} features in {columns}",
        2 * half
    );
    assert_eq!(positions.len(), x.rows(), "one position per row");
    parallel::rows(
        x.values_mut(),
        stride,
        #[inline(always)]
        |first, rows| {
            let (mut sine, mut cosine) = (vec![0.0; half], vec![0.0; half]);
            for (i, row) in rows.chunks_exact_mut(stride).enumerate() {
                let position = positions[first + i] as f32;
                for (j, &frequency) in frequencies.iter().enumerate() {
                    // The angle is rounded to f32 as the reference does; sine and cosine of it are
                    // exact to f32.
                    let angle = position * frequency;
                    (sine[j], cosine[j]) = (direction * angle.sin(), angle.cos());
                }
                for head in row[..columns].chunks_exact_mut(2 * half) {
                    let (low, high) = head.split_at_mut(half);
                    for j in 0..half {
                        let (a, b) = (low[j], high[j]);
                        low[j] = a * cosine[j] - b * sine[j];
                        high[j] = b * cosine[j] + a * sine[j];
                    }
                }
            }
        },
    );
}
