//! The norm bound of a sequence's rows.
//!
//! # What is proved
//!
//! Whatever the encoded rows are (any finite numbers, infinities, NaN) and whatever C is, the
//! released rows y, taken as real numbers, satisfy ‖y‖₂ ≤ C, unless the bounding is
//! [`Bounding::Box`], where each coordinate is at most `squash`/√Ψ. The weights may be adversarial.
//!
//! Coordinates x/√Ψ of `f32` numbers lie within 10⁻⁸⁴ … 10⁸⁴, so their squares neither overflow nor
//! underflow in `f64`, and the computed norm is within n·2⁻⁵³ of the true one for n coordinates. A
//! sequence whose norm is not finite becomes zero. Otherwise each coordinate is multiplied by
//! min(1, (1 − 10⁻⁶) C/norm) in `f64` (without the minimum for normalization), which leaves room
//! for 2³⁰ coordinates, and is then rounded to `f32` toward zero, which can only shrink it. The
//! factor itself is never an `f32`: it would be infinite for a large C and a small norm, and
//! subnormal, with only a few bits, for a small C and a large norm.

use super::{Bounding, Rows, Sanitizer};
use std::ops::Range;
use undertone_tensor::Host;

impl Sanitizer {
    /// A coordinate after `squash`.
    pub(super) fn squashed(&self, x: f32) -> f32 {
        self.squash.map_or(x, |most| x.clamp(0.0, most))
    }

    /// A coordinate after `squash` and division by √Ψ.
    fn coordinate(&self, x: f32, column: usize) -> f64 {
        let direction = self.direction.as_ref().map_or(1.0, |d| f64::from(d[column]));
        f64::from(self.squashed(x)) / direction
    }

    /// Writes the bounded rows of one sequence, `range` of the encoded rows, to `out`, which may
    /// have room for fewer or more rows; returns the norm before bounding.
    pub(super) fn bound(&self, encoded: &Host, range: Range<usize>, out: &mut [f32]) -> f64 {
        out.fill(0.0);
        let columns = encoded.columns().max(1);
        let room = out.len() / columns;
        // As published, rows that are not passed on also count toward the norm.
        let counted = if let Rows::Padded(_) = self.rows { usize::MAX } else { room };
        let of_row = |row: usize| {
            encoded.row(row).iter().enumerate().map(|(column, &x)| self.coordinate(x, column))
        };
        let squares: f64 = range.clone().take(counted).flat_map(of_row).map(|x| x * x).sum();
        let norm = squares.sqrt();
        let factor = self.factor(norm);
        if factor > 0.0 {
            for (row, out) in range.zip(out.chunks_exact_mut(columns)) {
                out.iter_mut().zip(of_row(row)).for_each(|(y, x)| *y = toward_zero(x * factor));
            }
        }
        norm
    }

    /// Factor by which a sequence of this norm is multiplied; 0 if the norm is not finite.
    pub(super) fn factor(&self, norm: f64) -> f64 {
        let most = f64::from(self.norm) * (1.0 - 1e-6);
        match self.bounding {
            _ if !norm.is_finite() => 0.0,
            Bounding::Box => 1.0,
            Bounding::Clip if norm <= most => 1.0,
            Bounding::Normalize if norm < 1e-12 => 0.0,
            Bounding::Clip | Bounding::Normalize => most / norm,
        }
    }
}

/// The `f32` nearest to a finite x among those no farther from zero.
fn toward_zero(x: f64) -> f32 {
    let nearest = x as f32;
    match f64::from(nearest).abs() > x.abs() {
        // One step down in magnitude; from infinity to the largest finite number.
        true => f32::from_bits(nearest.to_bits() - 1),
        false => nearest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::sanitizer::NoiseLayer;
    use crate::sanitized::rows_alone;
    use proptest::prelude::*;

    /// Finite numbers of all magnitudes and both signs, and a few non-finite ones.
    fn extreme() -> impl Strategy<Value = f32> {
        let finite = (any::<bool>(), 0_u32..0x7f80_0000)
            .prop_map(|(minus, bits)| f32::from_bits(bits | u32::from(minus) << 31));
        prop_oneof![
            12 => finite,
            4 => prop::sample::select(vec![1e-45_f32, -1e-38, 1e-12, 0.0, 1.0, -1e19, 3e38, f32::MAX]),
            1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        ]
    }

    fn above_zero() -> impl Strategy<Value = f32> {
        let any = (1_u32..0x7f80_0000).prop_map(f32::from_bits);
        prop_oneof![any, prop::sample::select(vec![1e-45_f32, 1e-30, 1e-10, 1.0, 1e10, 1e29, 3e38])]
    }

    fn layer(norm: f32, bounding: Bounding, rows: Rows) -> Sanitizer {
        Sanitizer { norm, bounding, ..rows_alone(NoiseLayer::Output, rows) }
    }

    fn norm_of(rows: &[f32]) -> f64 {
        rows.iter().map(|&y| f64::from(y).powi(2)).sum::<f64>().sqrt()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// For any rows and any C, √Ψ and squash, the norm is at most C, and squashed rows are
        /// never negative, on which the sensitivity √2 C relies.
        #[test]
        fn no_rows_exceed_the_bound(
            values in prop::collection::vec(extreme(), 12),
            direction in prop::option::of(prop::collection::vec(above_zero(), 3)),
            squash in prop::option::of(above_zero()),
            norm in above_zero(),
            normalize in any::<bool>(),
            padded in any::<bool>(),
            room in 1_usize..6,
        ) {
            let bounding = if normalize { Bounding::Normalize } else { Bounding::Clip };
            let rows = if padded { Rows::Padded(4) } else { Rows::Tokens(Some(room)) };
            let layer = Sanitizer { squash, direction, ..layer(norm, bounding, rows) };
            let mut out = vec![f32::NAN; 3 * room];
            layer.bound(&Host::from_vec(4, 3, values), 0..4, &mut out);
            prop_assert!(out.iter().all(|y| y.is_finite()), "{out:?}");
            prop_assert!(norm_of(&out) <= f64::from(norm), "{} is above {norm:e}", norm_of(&out));
            prop_assert!(squash.is_none() || out.iter().all(|&y| y >= 0.0), "{out:?}");
        }

        /// Without a norm bound, each coordinate lies in the box that paper mode accounts for.
        #[test]
        fn no_coordinate_leaves_the_box(
            values in prop::collection::vec(extreme(), 3),
            direction in prop::collection::vec(above_zero(), 3),
            side in above_zero(),
        ) {
            let boxed = layer(1.0, Bounding::Box, Rows::First);
            let layer =
                Sanitizer { squash: Some(side), direction: Some(direction.clone()), ..boxed };
            let mut out = vec![f32::NAN; 3];
            layer.bound(&Host::from_vec(1, 3, values), 0..1, &mut out);
            for (y, d) in out.iter().zip(direction) {
                let side = f64::from(side) / f64::from(d);
                prop_assert!(*y >= 0.0 && f64::from(*y) <= side, "{y:e} of {side:e}");
            }
        }
    }

    /// The two extremes at which an `f32` factor fails: it would be infinite, and the rows with it;
    /// or it would be subnormal, and the norm up to 1.99 C.
    #[test]
    fn a_factor_beyond_f32_bounds_as_well() {
        for (value, norm) in [(1e-30_f32, 1e29_f32), (1e-6, 3e38), (1e38, 1e-6), (3e38, 1e-7)] {
            let layer = layer(norm, Bounding::Normalize, Rows::First);
            for sign in [1.0, -1.0] {
                let mut out = [0.0; 4];
                let row = vec![value, sign * value, value, -value];
                // Rows below 1e-12 count as zero; the others are as long as C allows.
                layer.bound(&Host::from_vec(1, 4, row), 0..1, &mut out);
                let share = norm_of(&out) / f64::from(norm);
                let expected = if value < 1e-12 { 0.0 } else { 1.0 };
                assert!((share - expected).abs() < 2e-6 && share <= 1.0, "{value:e}: {out:?}");
            }
        }
    }

    #[test]
    fn rounding_is_towards_zero() {
        let next = f64::from(1.0_f32.next_up());
        for (x, expected) in [
            (next, 1.0_f32.next_up()),
            (next - 1e-12, 1.0),
            (-next + 1e-12, -1.0),
            (1e-46, 0.0),
            (-1e-46, 0.0),
            (1e300, f32::MAX),
            (-1e300, f32::MIN),
        ] {
            assert_eq!(toward_zero(x), expected, "{x:e}");
        }
    }
}
