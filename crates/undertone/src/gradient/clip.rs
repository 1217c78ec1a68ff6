//! Gradient clipping: computes clipping factors from per-example norms.

use super::groups::ClippingGroups;
use crate::model::Parameters;
use undertone_run::Clip;

/// γ of automatic clipping: gradients whose norm is well below γ keep their relative norms.
const STABILISER: f64 = 0.01;

/// 2⁻⁵⁰: a unit with a smaller clipping factor is treated as zero.
///
/// The clipped sum multiplies rows of f32 by the factor c. Products that become subnormal are off
/// by up to 2⁻¹²⁶ if they are flushed to zero, which moves the clipped gradient by at most 2⁻¹²⁶ √p
/// Σ_t α_t. The [bound on the norm](crate::tensor::unit_norms) exceeds the norm by at least 2⁻²¹
/// Σ_t α′_t ε′_t ≥ 2⁻⁷¹ √p Σ_t α_t, of which c preserves 2⁻¹²¹ √p Σ_t α_t. With two masks, no
/// coordinate of one group overflows while that of the other group is formed.
const SMALLEST_FACTOR: f64 = 1.0 / (1_u64 << 50) as f64;

/// Clipping statistics of one or more batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clipped {
    /// Number of privacy units.
    pub units: usize,
    /// Units whose gradient was clipped, that is, whose factor was below 1.
    pub clipped: usize,
    /// Units whose gradient was not finite, or more than 2⁵⁰ times the bound, and was treated as
    /// zero.
    pub not_finite: usize,
    /// Sum of the units' gradient norms before clipping.
    pub norms: f64,
}

impl Clipped {
    /// Adds the statistics of another batch.
    pub fn add(&mut self, other: &Clipped) {
        self.units += other.units;
        self.clipped += other.clipped;
        self.not_finite += other.not_finite;
        self.norms += other.norms;
    }

    /// Encodes the statistics for exchange between ranks.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { units, clipped, not_finite, norms } = self;
        let numbers = [*units as u64, *clipped as u64, *not_finite as u64, norms.to_bits()];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let [units, clipped, not_finite, norms] =
            <[[u8; 8]; 4]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        Some(Self {
            units: units as usize,
            clipped: clipped as usize,
            not_finite: not_finite as usize,
            norms: f64::from_bits(norms),
        })
    }

    /// Σ_i (b_i − ½) over the units, where b_i indicates whether the norm of unit i's gradient is
    /// within the clipping bound. Adding or removing one unit moves this by ½, whatever its
    /// gradient.
    ///
    /// Noise is added in f32, which represents halves only up to 2²³: beyond that, one unit could
    /// move the rounded count by 1. The count is therefore clamped to ±2²², which never moves two
    /// counts further apart.
    pub fn centered_count(&self) -> f64 {
        const MOST: f64 = (1 << 22) as f64;
        let within = self.units - self.clipped - self.not_finite;
        (within as f64 - 0.5 * self.units as f64).clamp(-MOST, MOST)
    }
}

/// Groups and thresholds of gradient clipping.
pub trait Clipping {
    /// The groups of coordinates that are clipped separately.
    fn groups(&self, parameters: &Parameters) -> ClippingGroups;

    /// The maximum ℓ2 norm of a unit's gradient after clipping.
    fn bound(&self) -> f64;

    /// Wraps the given thresholds, one for each group.
    fn bounds_of(&self, thresholds: Vec<f64>) -> Bounds;

    /// Equal thresholds for `groups` groups, such that the overall norm is at most [`Self::bound`].
    fn bounds(&self, groups: usize) -> Bounds {
        let threshold = self.bound() / (groups.max(1) as f64).sqrt();
        self.bounds_of(vec![threshold; groups])
    }
}

impl Clipping for Clip {
    fn groups(&self, parameters: &Parameters) -> ClippingGroups {
        match self {
            Self::Flat(_) | Self::Automatic | Self::Adaptive(_) => ClippingGroups::one(parameters),
            Self::PerLayer(_) => ClippingGroups::by_layer(parameters),
        }
    }

    fn bound(&self) -> f64 {
        match self {
            Self::Flat(bound) | Self::PerLayer(bound) => *bound,
            Self::Automatic => 1.0,
            // The bound of the first step.
            Self::Adaptive(adaptive) => adaptive.initial,
        }
    }

    fn bounds_of(&self, thresholds: Vec<f64>) -> Bounds {
        Bounds { thresholds, always: matches!(self, Self::Automatic) }
    }
}

/// The clipping threshold of each group: the maximum ℓ2 norm of a unit's gradient in that group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    thresholds: Vec<f64>,
    /// Whether every gradient is normalized (automatic clipping), not only those above the
    /// threshold.
    always: bool,
}

impl Bounds {
    /// C_k for each group k.
    pub fn thresholds(&self) -> &[f64] {
        &self.thresholds
    }

    /// The clipping factor for each group and unit, computed from the squared per-unit norms
    /// (`[groups][units]`). A unit gets 0 in all groups if its norm is not finite or more than 2⁵⁰
    /// times the threshold in any group.
    pub fn factors(&self, squared: &[Vec<f64>]) -> (Vec<Vec<f32>>, Clipped) {
        let units = squared.first().map_or(0, Vec::len);
        let mut factors = vec![vec![0.0; units]; squared.len()];
        let mut clipped = Clipped { units, ..Clipped::default() };
        for unit in 0..units {
            let whole: f64 = squared.iter().map(|group| group[unit]).sum();
            let fits = |(group, bound): (&Vec<f64>, &f64)| {
                group[unit] <= (bound / SMALLEST_FACTOR).powi(2)
            };
            if !whole.is_finite() || !squared.iter().zip(&self.thresholds).all(fits) {
                clipped.not_finite += 1;
                continue;
            }
            clipped.norms += whole.max(0.0).sqrt();
            let mut is_clipped = false;
            for ((factors, squared), &bound) in
                factors.iter_mut().zip(squared).zip(&self.thresholds)
            {
                // Rounding can make the squared norm of a zero gradient negative.
                let norm = squared[unit].max(0.0).sqrt();
                let factor = match self.always {
                    true => bound / (norm + STABILISER),
                    false if norm > bound => bound / norm,
                    false => 1.0,
                };
                is_clipped |= factor < 1.0;
                // Round down to the next f32, so that factor times norm does not exceed the
                // threshold.
                factors[unit] = (factor as f32).next_down().max(0.0);
                if factor >= 1.0 && !self.always {
                    factors[unit] = 1.0;
                }
            }
            clipped.clipped += usize::from(is_clipped);
        }
        (factors, clipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_group_exceeds_its_bound() {
        let squared = [vec![4.0, 1e-12, 0.25, f64::NAN], vec![1e6, 0.0, 0.25, 1.0]];
        for clip in [Clip::Flat(0.7), Clip::PerLayer(0.7), Clip::Automatic] {
            let groups =
                if matches!(clip, Clip::PerLayer(_)) { &squared[..] } else { &squared[..1] };
            let bounds = clip.bounds(groups.len());
            let (factors, clipped) = bounds.factors(groups);
            for (factors, squared) in factors.iter().zip(groups) {
                for (&factor, &squared) in factors.iter().zip(squared).take(3) {
                    assert!(f64::from(factor) * squared.sqrt() <= bounds.thresholds()[0]);
                }
                assert_eq!(factors[3], 0.0);
            }
            assert_eq!((clipped.units, clipped.not_finite), (4, 1));
        }
        // A squared norm that rounding made negative gives a finite, positive factor.
        for clip in [Clip::Flat(0.7), Clip::PerLayer(0.7), Clip::Automatic] {
            let factor = clip.bounds(1).factors(&[vec![-1e-20]]).0[0][0];
            assert!(factor.is_finite() && factor > 0.0, "{clip:?}: {factor}");
        }
        let (factors, clipped) = Clip::Flat(0.7).bounds(1).factors(&squared[..1]);
        assert_eq!(factors[0][1..3], [1.0, 1.0]);
        assert_eq!(clipped.clipped, 1);
    }

    /// Factor times norm is within the bound for every norm of f32 gradients and every clipping
    /// norm that a run file may contain; gradients far above the bound are treated as zero.
    #[test]
    fn factors_are_within_the_bound_at_any_magnitude() {
        for clip in [1e-10, 1e-3, 1.0, 1e10] {
            for (exponent, automatic) in (-900..=780).flat_map(|e| [(e, false), (e, true)]) {
                let norm = 10_f64.powf(f64::from(exponent) / 20.0);
                let clipping = if automatic { Clip::Automatic } else { Clip::Flat(clip) };
                let bounds = clipping.bounds(1);
                let (factors, clipped) = bounds.factors(&[vec![norm * norm]]);
                let (factor, bound) = (f64::from(factors[0][0]), bounds.thresholds()[0]);
                assert!(factor * norm <= bound, "{factor:e} times {norm:e} is above {bound:e}");
                let is_far = norm > bound / SMALLEST_FACTOR * (1.0 + 1e-9);
                assert_eq!(is_far, factor == 0.0, "{norm:e} of {bound:e}");
                assert_eq!(clipped.not_finite, usize::from(is_far));
            }
        }
    }

    /// Adding a unit moves the released count by ½ up or down, which is what its noise covers.
    #[test]
    fn a_unit_moves_the_centered_count_by_a_half() {
        let bounds = Clip::Flat(0.7).bounds(1);
        let mut squared = vec![0.1, 4.0, 0.2, 0.0];
        let before = bounds.factors(&[squared.clone()]).1.centered_count();
        assert_eq!(before, 1.0);
        for (one_more, moved) in [(0.3, 0.5), (0.8, -0.5), (f64::NAN, -0.5), (f64::INFINITY, -0.5)]
        {
            squared.push(one_more);
            let after = bounds.factors(&[squared.clone()]).1.centered_count();
            assert_eq!(after - before, moved, "{one_more}");
            squared.pop();
        }
    }

    /// This also holds for batches of millions of units, where halves are no longer representable
    /// in f32.
    #[test]
    fn a_unit_moves_the_count_in_f32_by_at_most_a_half() {
        for units in [1 << 10, (1 << 23) - 3, (1 << 24) + 1, (1 << 25) + 7] {
            let count = |units: usize| {
                let clipped = Clipped { units, ..Clipped::default() };
                clipped.centered_count() as f32
            };
            for units in units..units + 9 {
                let moved = (count(units + 1) - count(units)).abs();
                assert!(moved <= 0.5, "{units} units: {moved}");
            }
        }
    }

    #[test]
    fn bounds_of_groups_make_up_the_whole() {
        assert_eq!(Clip::PerLayer(2.0).bounds(4).thresholds(), [1.0; 4]);
        assert_eq!(Clip::Automatic.bounds(1).thresholds(), [1.0]);
    }
}
