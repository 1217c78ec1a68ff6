//! From the norms of a unit's gradient to the factors that bound it.

use super::measure::Measure;
use crate::model::Parameters;
use serde::{Deserialize, Serialize};

/// How a unit's gradient is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clip {
    /// The whole gradient is made no longer than this: c = min(1, C/‖g‖).
    Flat(f64),
    /// Each of K layers is made no longer than C/√K, so that the whole is no longer than C.
    PerLayer(f64),
    /// Every gradient is brought to nearly the same length, c = 1/(‖g‖ + γ), so that no threshold
    /// is left to tune. Its length is then below 1.
    Automatic,
}

/// γ of automatic clipping: gradients much shorter than this keep their differences in length.
const STABILISER: f64 = 0.01;

/// The factors of one batch, and what they say about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clipped {
    /// Units in the batch.
    pub units: usize,
    /// Units whose gradient was shortened.
    pub shortened: usize,
    /// Units whose gradient was not finite and counted as zero.
    pub not_finite: usize,
    /// Sum over the units of the norm of the whole gradient.
    pub norms: f64,
}

impl Clipped {
    /// Both batches together.
    pub fn add(&mut self, other: &Clipped) {
        self.units += other.units;
        self.shortened += other.shortened;
        self.not_finite += other.not_finite;
        self.norms += other.norms;
    }
}

impl Clip {
    /// The groups that are bounded each on its own.
    pub fn measure(&self, parameters: &Parameters) -> Measure {
        match self {
            Self::Flat(_) | Self::Automatic => Measure::one(parameters),
            Self::PerLayer(_) => Measure::by_layer(parameters),
        }
    }

    /// The length that no unit's whole gradient exceeds after clipping.
    pub fn bound(&self) -> f64 {
        match self {
            Self::Flat(bound) | Self::PerLayer(bound) => *bound,
            Self::Automatic => 1.0,
        }
    }

    /// The same bound for each of so many groups, so that all together are no longer than
    /// [`Self::bound`].
    pub fn bounds(&self, groups: usize) -> Bounds {
        let length = self.bound() / (groups.max(1) as f64).sqrt();
        self.bounds_of(vec![length; groups])
    }

    /// These bounds, each for one group.
    pub fn bounds_of(&self, lengths: Vec<f64>) -> Bounds {
        Bounds { lengths, always: matches!(self, Self::Automatic) }
    }
}

/// The length that no unit's gradient exceeds in each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    lengths: Vec<f64>,
    /// Whether every gradient is brought to nearly its bound, and not only those that are longer.
    always: bool,
}

impl Bounds {
    /// C_k of each group.
    pub fn lengths(&self) -> &[f64] {
        &self.lengths
    }

    /// For each group and unit the factor, from the squared norms. A unit with a norm that is not
    /// finite gets 0 in all groups.
    pub fn factors(&self, squared: &[Vec<f64>]) -> (Vec<Vec<f32>>, Clipped) {
        let units = squared.first().map_or(0, Vec::len);
        let mut factors = vec![vec![0.0; units]; squared.len()];
        let mut clipped = Clipped { units, ..Clipped::default() };
        for unit in 0..units {
            let whole: f64 = squared.iter().map(|group| group[unit]).sum();
            if !whole.is_finite() {
                clipped.not_finite += 1;
                continue;
            }
            clipped.norms += whole.max(0.0).sqrt();
            let mut shortened = false;
            for ((factors, squared), &bound) in factors.iter_mut().zip(squared).zip(&self.lengths) {
                // An upper bound below zero is that of a gradient of zeros.
                let norm = squared[unit].max(0.0).sqrt();
                let factor = match self.always {
                    true => bound / (norm + STABILISER),
                    false if norm > bound => bound / norm,
                    false => 1.0,
                };
                shortened |= factor < 1.0;
                // The next smaller f32, so that the product does not exceed the bound.
                factors[unit] = (factor as f32).next_down().max(0.0);
                if factor >= 1.0 && !self.always {
                    factors[unit] = 1.0;
                }
            }
            clipped.shortened += usize::from(shortened);
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
                    assert!(f64::from(factor) * squared.sqrt() <= bounds.lengths()[0]);
                }
                assert_eq!(factors[3], 0.0);
            }
            assert_eq!((clipped.units, clipped.not_finite), (4, 1));
        }
        // Rounding below zero neither lets a unit through nor makes its factor a NaN.
        for clip in [Clip::Flat(0.7), Clip::PerLayer(0.7), Clip::Automatic] {
            let factor = clip.bounds(1).factors(&[vec![-1e-20]]).0[0][0];
            assert!(factor.is_finite() && factor > 0.0, "{clip:?}: {factor}");
        }
        let (factors, clipped) = Clip::Flat(0.7).bounds(1).factors(&squared[..1]);
        assert_eq!(factors[0][1..3], [1.0, 1.0]);
        assert_eq!(clipped.shortened, 1);
    }

    #[test]
    fn bounds_of_groups_make_up_the_whole() {
        assert_eq!(Clip::PerLayer(2.0).bounds(4).lengths(), [1.0; 4]);
        assert_eq!(Clip::Automatic.bounds(1).lengths(), [1.0]);
    }
}
