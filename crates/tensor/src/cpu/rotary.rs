//! Rotary position embedding: rotates each pair (j, j + width/2) of a head's features by position ·
//! frequency(j).

use super::parallel;
use crate::Host;

/// Rotates the heads in the leading `columns` of each row in place, row `i` by `positions[i]`.
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
                    // The angle is rounded to f32 as in the reference implementation; its sine and
                    // cosine are accurate to f32.
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
